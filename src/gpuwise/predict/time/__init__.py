"""How long a step takes, and how busy it keeps the GPU."""
