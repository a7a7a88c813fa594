"""A PyTorch training saved and loaded goes on exactly as it would have."""

from __future__ import annotations

import os
import random
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel

from gpuwise import sdk
from gpuwise.sdk.torch.sampler import ResumableSampler
from gpuwise.sdk.torch.state import TrainingState


class Training:
    """A little of everything that has a state: dropout, momentum, a schedule, random numbers of three libraries."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=40)
        self.sampler = ResumableSampler(50, 5)
        self.best: dict[str, Any] = {"loss": 9.0, "ema": nn.Linear(1, 1)}
        self.parts = self.sampler.indices()
        self.state = TrainingState(self.model, self.optimizer, self.scheduler, self.sampler, extra=self.best)

    def train(self, steps: int) -> None:
        for _, part in zip(range(steps), self.parts, strict=False):
            noise = random.random() + np.random.random()
            inputs = torch.linspace(0, 1, 4).outer(torch.tensor(part, dtype=torch.float32)).T + noise
            loss = (self.model(inputs) - 1).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.best["loss"] = min(self.best["loss"], loss.item())

    def weights(self) -> torch.Tensor:
        return torch.cat([each.detach().flatten().double() for each in self.model.state_dict().values()])


def test_goes_on_exactly_where_it_was(tmp_path: Path) -> None:
    whole = Training(seed=0)
    whole.train(20)

    first = Training(seed=0)
    first.train(8)
    first.state.save(tmp_path / "state")
    second = Training(seed=99)  # other weights, other random numbers
    second.state.load(tmp_path / "state")
    assert second.sampler.position == 40
    second.train(12)
    assert torch.equal(second.weights(), whole.weights())
    assert second.best["loss"] == whole.best["loss"]
    assert second.scheduler.get_last_lr() == whole.scheduler.get_last_lr()


def test_each_generator_is_restored(tmp_path: Path) -> None:
    training = Training(seed=0)
    training.state.save(tmp_path / "state")
    expected = (torch.rand(3).tolist(), random.random(), np.random.random(3).tolist())
    training.state.load(tmp_path / "state")
    assert (torch.rand(3).tolist(), random.random(), np.random.random(3).tolist()) == expected


def test_other_ranks_get_random_numbers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Training(seed=0).state.save(tmp_path / "state")
    drawn = set()
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in (0, 1, 2, 2):
        monkeypatch.setenv("RANK", str(rank))
        training = Training(seed=rank)
        training.state.load(tmp_path / "state")
        drawn.add((torch.rand(1).item(), random.random(), np.random.random()))
    assert len(drawn) == 3  # all ranks differ, and rank 2 gets the same each time


def test_objects_in_extra_are_loaded_in_place(tmp_path: Path) -> None:
    training = Training(seed=0)
    ema = training.best["ema"]
    saved = ema.weight.item()
    training.state.save(tmp_path / "state")
    nn.init.zeros_(ema.weight)
    training.best["loss"] = -1.0
    training.state.load(tmp_path / "state")
    assert training.best["ema"] is ema
    assert (ema.weight.item(), training.best["loss"]) == (saved, 9.0)


def test_a_wrapped_model_is_saved_as_the_model_within(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    TrainingState(torch.compile(DataParallel(model), backend="eager"), optimizer).save(tmp_path / "state")
    kept = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    TrainingState(model, optimizer).load(tmp_path / "state")
    assert torch.equal(model.weight, kept)


class Foreign:
    """A class that a safe loader does not know."""


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    training = Training(seed=0)
    training.state.save(tmp_path / "state")
    before = (tmp_path / "state").read_bytes()
    training.best["thing"] = Foreign()
    with pytest.raises(TypeError, match=r"contains test_sdk_torch_state.Foreign.*save plain values"):
        training.state.save(tmp_path / "state")
    assert os.listdir(tmp_path) == ["state"]
    assert (tmp_path / "state").read_bytes() == before


def test_a_file_of_another_training_is_refused(tmp_path: Path) -> None:
    training = Training(seed=0)
    training.state.save(tmp_path / "state")
    other = TrainingState(training.model, training.optimizer)
    with pytest.raises(
        ValueError, match="contains extra, model, optimizer, sampler, scheduler; the training has model"
    ):
        other.load(tmp_path / "state")


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    torch.save({"model": Evil()}, tmp_path / "state")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        Training(seed=0).state.load(tmp_path / "state")
    assert not (tmp_path / "evil").exists()


def test_tensors_of_torch_are_losses() -> None:
    from gpuwise.sdk.progress import as_number

    loss = torch.tensor(0.5, requires_grad=True) * 1
    assert as_number(loss) == 0.5
    assert as_number(torch.tensor([0.5])) == 0.5
    assert as_number(torch.tensor([0.5, 1.0])) is None
    weight = torch.tensor(0.5, requires_grad=True)
    graph = weakref.ref(weight)
    job = sdk.attach()
    job.report(loss=weight * 1)
    del weight
    assert graph() is None  # the loss is kept without the graph that leads to it


def test_one_process_joins_nobody() -> None:
    device = sdk.torch.init_process_group()
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert not torch.distributed.is_initialized()
    model = nn.Linear(1, 1)
    assert sdk.torch.data_parallel(model) is model
