"""Co-location by predicted utilization: the experiment of Yeung et al., HotCloud'20, and packing beyond it."""

from gpuwise.experiments.colocation.experiment import rows

__all__ = ["rows"]
