"""A PyTorch training that resumes exactly where it was stopped: python examples/train_torch.py.

Model, optimizer, learning rate, dropout's random numbers and the order of samples are all saved, so that a run that was
interrupted ends with the same weights, bit by bit, as one that was not.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from gpuwise import sdk

SAMPLES, BATCH = 2000, 64


def spirals(count: int, seed: int) -> TensorDataset:
    """Points on two interleaved spirals, and on which of the two each lies."""
    generator = torch.Generator().manual_seed(seed)
    radius = 3 * torch.rand(count, generator=generator).sqrt()
    label = torch.randint(2, (count,), generator=generator)
    angle = 2 * radius + torch.pi * label
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return TensorDataset(points + 0.1 * torch.randn(count, 2, generator=generator), label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="make a step take at least this long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--checkpoint-dir", help="where to save when there is no controller")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data = spirals(SAMPLES, args.seed)
    model = nn.Sequential(
        nn.Linear(2, 128), nn.Tanh(), nn.Dropout(0.1), nn.Linear(128, 32), nn.Tanh(), nn.Linear(32, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    sampler = sdk.torch.ResumableSampler(len(data), BATCH, seed=args.seed)

    state = sdk.torch.TrainingState(model, optimizer, scheduler, sampler)
    job = sdk.attach(save=state.save, load=state.load, checkpoint_dir=args.checkpoint_dir)
    if job.resumed:
        print(f"resumes at step {job.step}", flush=True)
    batches = sampler.loader(data, num_workers=args.workers)
    for _ in job.steps(args.steps):
        began_s = time.monotonic()
        points, label = next(batches)
        loss = nn.functional.cross_entropy(model(points), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        job.report(loss=loss, samples=len(points))
        time.sleep(max(0.0, args.seconds_per_step - (time.monotonic() - began_s)))

    model.eval()
    points, label = spirals(1000, args.seed + 1).tensors
    accuracy = (model(points).argmax(dim=1) == label).float().mean().item()
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest()[:16]
    print(f"accuracy {accuracy:.3f} weights {digest}")


if __name__ == "__main__":
    main()
