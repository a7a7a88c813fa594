"""Which samples come next, on any number of workers, however often the training is resumed."""

from __future__ import annotations

import random
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from gpuwise.sdk.torch.sampler import ResumableSampler

sizes = st.integers(1, 40)


def stream(dataset_len: int, seed: int, samples: int) -> list[int]:
    """The first samples as one worker with batches of 1 sees them."""
    sampler = ResumableSampler(dataset_len, 1, seed=seed)
    return [part[0] for part in islice(sampler.indices(), samples)]


@given(dataset_len=sizes, seed=st.integers(0, 5), epochs=st.integers(1, 3))
def test_every_epoch_takes_each_sample_once(dataset_len: int, seed: int, epochs: int) -> None:
    samples = stream(dataset_len, seed, dataset_len * epochs)
    for begin in range(0, len(samples), dataset_len):
        assert sorted(samples[begin : begin + dataset_len]) == list(range(dataset_len))


@given(
    dataset_len=sizes,
    batch=st.integers(4, 30),
    plan=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=5),
)
def test_order_does_not_depend_on_workers_or_interruptions(
    dataset_len: int, batch: int, plan: list[tuple[int, int]]
) -> None:
    """A plan is a list of workers and steps: the training is resumed on so many workers for so many steps."""
    seen: list[int] = []
    state = ResumableSampler(dataset_len, batch, seed=3).state_dict()
    for workers, steps in plan:
        samplers = [ResumableSampler(dataset_len, batch, seed=3, rank=r, world_size=workers) for r in range(workers)]
        for sampler in samplers:
            sampler.load_state_dict(state)
        loops = [sampler.indices() for sampler in samplers]
        for _ in range(steps):
            parts = [next(loop) for loop in loops]
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            seen += [index for part in parts for index in part]
        states = [sampler.state_dict() for sampler in samplers]
        assert all(each == states[0] for each in states)
        state = states[0]
    assert seen == stream(dataset_len, 3, len(seen))
    assert len(seen) == batch * sum(steps for _, steps in plan) == state["position"]


def test_seeds_and_epochs_give_orders_of_their_own() -> None:
    orders = {seed: stream(50, seed, 150) for seed in (0, 1)}
    epochs = {tuple(order[begin : begin + 50]) for order in orders.values() for begin in (0, 50, 100)}
    assert len(epochs) == 6


def test_without_shuffling() -> None:
    assert list(islice(ResumableSampler(5, 3, shuffle=False).indices(), 3)) == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]


def test_the_order_is_not_shifted_by_other_random_numbers() -> None:
    torch.manual_seed(1)
    random.seed(1)
    first = stream(50, 0, 50)
    torch.rand(10)
    random.random()
    assert stream(50, 0, 50) == first


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_fetched_ahead_does_not_count(workers: int) -> None:
    data = TensorDataset(torch.arange(100))
    sampler = ResumableSampler(100, 4, seed=1)
    batches = sampler.loader(data, num_workers=workers)
    seen = [index for _ in range(5) for index in next(batches)[0].tolist()]
    assert sampler.position == 20
    resumed = ResumableSampler(100, 4, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    seen += next(resumed.loader(data))[0].tolist()
    assert seen == stream(100, 1, 24)


def test_a_loader_that_begins_draws_nothing_from_the_models_random_numbers() -> None:
    before = torch.get_rng_state()
    next(ResumableSampler(10, 2).loader(TensorDataset(torch.arange(10)), num_workers=0))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loader_asked_for_before_loading_begins_where_it_was_loaded() -> None:
    sampler = ResumableSampler(10, 2, shuffle=False)
    batches = sampler.loader(TensorDataset(torch.arange(10)))
    sampler.load_state_dict({**sampler.state_dict(), "position": 6})
    assert next(batches)[0].tolist() == [6, 7]


def test_rank_and_world_size_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert next(ResumableSampler(10, 4, shuffle=False).indices()) == [2, 3]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"dataset_len": 0, "batch": 1}, "dataset_len is 0"),
        ({"dataset_len": 9, "batch": 1, "rank": 0, "world_size": 2}, "batch is 1 for 2 workers"),
        ({"dataset_len": 9, "batch": 4, "rank": 2, "world_size": 2}, "rank is 2 of 2"),
    ],
)
def test_what_makes_no_sense_is_told(given, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ResumableSampler(**given)


@pytest.mark.parametrize("changed", [{"seed": 1}, {"dataset_len": 11}, {"shuffle": False}])
def test_another_order_cannot_be_resumed(changed) -> None:
    given = {"dataset_len": 10, "seed": 0, "shuffle": True}
    saved = ResumableSampler(batch=2, **given).state_dict()
    with pytest.raises(ValueError, match=f"{next(iter(changed))} is"):
        ResumableSampler(batch=2, **given | changed).load_state_dict(saved)


def test_it_cannot_be_given_to_a_data_loader_by_mistake() -> None:
    data = TensorDataset(torch.arange(10))
    with pytest.raises(TypeError, match="not iterable"):
        next(iter(DataLoader(data, batch_sampler=ResumableSampler(10, 2), num_workers=0)))
