"""Data-parallel training that resumes where it was stopped, on any number of workers.

    python examples/train_torch_ddp.py                             # one worker
    torchrun --nproc-per-node 2 examples/train_torch_ddp.py        # two; a controller starts one per GPU by itself

The batch of a step is the same samples on any number of workers, each of which takes its part. At the same number of
workers, a run that was interrupted ends with the same weights, bit by bit, as one that was not. On another number, sums
of gradients are rounded in another order, and weights agree to a few parts in a million.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from gpuwise import sdk

SAMPLES, BATCH = 2000, 64


def waves(count: int, seed: int) -> TensorDataset:
    """Points, and a smooth function of them that is to be learned."""
    points = 4 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 2
    return TensorDataset(points, torch.sin(2 * points[:, :1]) * torch.cos(points[:, 1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="make a step take at least this long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-dir", help="where to save when there is no controller")
    parser.add_argument("--weights", help="file to write the final weights to")
    args = parser.parse_args()

    device = sdk.torch.init_process_group()
    torch.manual_seed(args.seed)
    data = waves(SAMPLES, args.seed)
    model = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = sdk.torch.ResumableSampler(len(data), BATCH, seed=args.seed)

    state = sdk.torch.TrainingState(model, optimizer, sampler=sampler)
    job = sdk.attach(save=state.save, load=state.load, checkpoint_dir=args.checkpoint_dir)
    if job.rank == 0:
        print(f"{job.world_size} workers from step {job.step}", flush=True)
    parallel = sdk.torch.data_parallel(model)
    batches = sampler.loader(data)
    for _ in job.steps(args.steps):
        began_s = time.monotonic()
        points, wanted = (each.to(device) for each in next(batches))
        # Gradients are averaged over workers: scaled like this, that is the mean over the batch, in parts of any size.
        loss = nn.functional.mse_loss(parallel(points), wanted, reduction="sum") * job.world_size / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss, samples=BATCH)
        time.sleep(max(0.0, args.seconds_per_step - (time.monotonic() - began_s)))

    if job.rank == 0:
        points, wanted = (each.to(device) for each in waves(1000, args.seed + 1).tensors)
        print(f"test loss {nn.functional.mse_loss(model(points), wanted).item():.6f}")
        if args.weights:
            torch.save(model.state_dict(), args.weights)


if __name__ == "__main__":
    main()
