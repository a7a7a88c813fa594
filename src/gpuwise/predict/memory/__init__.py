"""How much GPU memory a training job takes."""
