"""How many steps a training run needs."""
