"""The version of gpuwise."""

__version__ = "0.1.0"
