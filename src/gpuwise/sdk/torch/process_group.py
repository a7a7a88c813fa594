"""The process group of a job's workers, if there are several."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpuwise.sdk.environment import read_environment


def init_process_group(backend: str | None = None, timeout_s: float = 1800.0) -> torch.device:
    """Joins the job's workers by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and returns the device to train on.

    A single process has no group. The backend is NCCL with a GPU and Gloo without, unless given. The group is left when
    the process ends.
    """
    device = _device()
    if read_environment().world_size > 1 and not dist.is_initialized():
        backend = backend or ("nccl" if device.type == "cuda" else "gloo")
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        atexit.register(_leave_group)
    return device


def data_parallel(model: torch.nn.Module) -> torch.nn.Module:
    """The model with its gradients averaged over the workers; the model itself if there is one process."""
    return DistributedDataParallel(model) if dist.is_initialized() else model


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local_rank % torch.cuda.device_count())  # a worker may see its own GPU only
    return torch.device("cuda", torch.cuda.current_device())


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
