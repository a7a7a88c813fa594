"""GPU priority assignment: the newest GPUs for the jobs that gain most (Takayama et al.)."""

from gpuwise.experiments.priority.experiment import rows

__all__ = ["rows"]
