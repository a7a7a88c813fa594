"""For training with PyTorch: the state to save, a sampler that resumes, and process groups.

state = sdk.torch.TrainingState(model, optimizer, sampler=sampler)
job = sdk.attach(save=state.save, load=state.load)
"""

from __future__ import annotations

from gpuwise.sdk.torch.process_group import data_parallel, init_process_group
from gpuwise.sdk.torch.sampler import ResumableSampler
from gpuwise.sdk.torch.state import TrainingState

__all__ = ["ResumableSampler", "TrainingState", "data_parallel", "init_process_group"]
