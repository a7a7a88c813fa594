"""An autoencoder, in PyTorch, encodes noisy digits in six numbers and draws them from these, without the noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpuwise import sdk
from gpuwise.demo.jobs import digits
from gpuwise.demo.jobs.script import Log, finish, options


def pairs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures of digits, and the same without noise."""
    noisy, digit = digits.pictures(count, 0.4, seed)
    clean = torch.tensor([[float(dot) for dot in each.replace(" ", "")] for each in digits.FONT])
    return torch.tensor(noisy, dtype=torch.float32), clean[torch.tensor(digit)]


def network() -> nn.Sequential:
    """From 35 dots to 6 numbers and back."""
    return nn.Sequential(nn.Linear(35, 96), nn.ReLU(), nn.Linear(96, 6), nn.Linear(6, 96), nn.ReLU(), nn.Linear(96, 35))


def main() -> None:
    """Trains and prints how far its drawings are from the digits."""
    given = options(steps=1500, learning_rate=0.002, batch=256)
    torch.manual_seed(43)
    device = sdk.torch.init_process_group()
    noisy, clean = (part.to(device) for part in pairs(8000, seed=47))
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=given.learning_rate)
    sampler = sdk.torch.ResumableSampler(len(noisy), given.batch)
    state = sdk.torch.TrainingState(model, optimizer, sampler=sampler)

    log = Log(given.steps)
    job = sdk.attach(save=state.save, load=state.load)
    batches = sampler.indices()
    for step in job.steps(given.steps):
        chosen = next(batches)
        loss = nn.functional.mse_loss(model(noisy[chosen]), clean[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        job.report(loss=loss, samples=given.batch)
        log.step(step, loss.item())

    unseen, truth = (part.to(device) for part in pairs(2000, seed=53))
    with torch.no_grad():
        drawn = model(unseen)
    right = ((drawn > 0.5) == (truth > 0.5)).all(1).float().mean()
    finish(loss=nn.functional.mse_loss(drawn, truth).item(), accuracy=right.item())


if __name__ == "__main__":
    main()
