"""A small convolutional network, in PyTorch, distinguishes circles, squares and crosses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpuwise import sdk
from gpuwise.demo.jobs.script import Log, finish, options

SIZE = 16


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Outlines at any place and of any size, in noise, and which shape each is."""
    dice = torch.Generator().manual_seed(seed)
    grid = torch.arange(SIZE, dtype=torch.float32)
    middle = 5 + 6 * torch.rand(2, count, 1, 1, generator=dice)
    radius = 2.5 + 2.5 * torch.rand(count, 1, 1, generator=dice)
    across, down = (grid - middle[0]).abs(), (grid[:, None] - middle[1]).abs()
    farther = torch.maximum(across, down)
    circle = ((across**2 + down**2).sqrt() - radius).abs()
    square = (farther - radius).abs()
    cross = torch.where(farther < radius, torch.minimum(across, down), torch.tensor(9.0))
    shape = torch.randint(3, (count,), generator=dice)
    lines = torch.stack((circle, square, cross))[shape, torch.arange(count)]
    noise = 0.5 * torch.randn(count, SIZE, SIZE, generator=dice)
    return ((lines < 0.8).float() + noise)[:, None], shape


def network() -> nn.Sequential:
    """Two convolutions and a layer that decides."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24 * SIZE, 3),
    )  # fmt: skip


def main() -> None:
    """Trains and prints the accuracy on unseen pictures."""
    given = options(steps=250, learning_rate=0.004, batch=128)
    torch.manual_seed(31)
    device = sdk.torch.init_process_group()
    x, shape = (part.to(device) for part in pictures(6000, seed=37))
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=given.learning_rate)
    sampler = sdk.torch.ResumableSampler(len(x), given.batch)
    state = sdk.torch.TrainingState(model, optimizer, sampler=sampler)

    log = Log(given.steps)
    job = sdk.attach(save=state.save, load=state.load)
    batches = sampler.indices()
    for step in job.steps(given.steps):
        chosen = next(batches)
        loss = nn.functional.cross_entropy(model(x[chosen]), shape[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss.item())

    unseen, truth = (part.to(device) for part in pictures(2000, seed=41))
    with torch.no_grad():
        scores = model(unseen)
    right = (scores.argmax(1) == truth).float().mean()
    finish(loss=nn.functional.cross_entropy(scores, truth).item(), accuracy=right.item())


if __name__ == "__main__":
    main()
