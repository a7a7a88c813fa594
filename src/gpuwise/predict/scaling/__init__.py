"""How a job scales over GPUs, nodes and batch sizes."""
