"""gpuwise: know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""

__version__ = "0.1.0"
