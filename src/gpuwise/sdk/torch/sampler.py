"""The samples of each step, on any number of workers and however often the training is resumed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from gpuwise.sdk.environment import read_environment


class ResumableSampler:
    """A stream of all samples, epoch after epoch, of which every step takes the next ``batch``.

    The order depends on ``seed`` alone. Each of ``world_size`` workers takes its part of the batch, in turn, so that
    what a step trains on is the same on one worker and on many. Parts differ by one sample if ``batch`` is no multiple
    of ``world_size``. ``rank`` and ``world_size`` are those of the process, unless given.
    """

    def __init__(
        self,
        dataset_len: int,
        batch: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        environment = read_environment()
        self.dataset_len, self.batch, self.shuffle, self.seed = dataset_len, batch, shuffle, seed
        self.rank = environment.rank if rank is None else rank
        self.world_size = environment.world_size if world_size is None else world_size
        self.position = 0
        """Samples trained on so far, by all workers together."""
        if dataset_len < 1:
            raise ValueError(f"dataset_len is {dataset_len}; there must be at least 1 sample")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank is {self.rank} of {self.world_size}; ranks go from 0 to world_size - 1")
        if batch < self.world_size:
            raise ValueError(f"batch is {batch} for {self.world_size} workers; each needs at least 1 sample")
        self._order = (-1, torch.empty(0, dtype=torch.int64))

    @property
    def epoch(self) -> int:
        """The number of times that all samples have been trained on."""
        return self.position // self.dataset_len

    def indices(self) -> Iterator[list[int]]:
        """This worker's part of one batch after another, without end; what was yielded counts as trained on."""
        for part in self._parts(self.position):
            self.position += self.batch
            yield part

    def loader(self, dataset: Dataset[Any], **options: Any) -> Iterator[Any]:
        """This worker's part of one batch after another, by a `DataLoader` with these options, without end.

        Worker processes fetch ahead; a batch counts as trained on when it is yielded, not when it is fetched. The
        loader draws its seeds from a generator of its own, so that resuming does not shift the model's random numbers.
        """
        seeds = torch.Generator().manual_seed(self.seed)
        for loaded in DataLoader(dataset, batch_sampler=self._parts(self.position), generator=seeds, **options):
            self.position += self.batch
            yield loaded

    def state_dict(self) -> dict[str, Any]:
        """The position, and what the order depends on."""
        return {"position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the position. Batch and number of workers may have changed; what the order depends on may not."""
        for name, value in self._identity().items():
            if state[name] != value:
                raise ValueError(f"{name} is {value!r} and was {state[name]!r} when the training was saved; keep it")
        self.position = state["position"]

    def _identity(self) -> dict[str, Any]:
        return {"dataset_len": self.dataset_len, "shuffle": self.shuffle, "seed": self.seed}

    def _parts(self, position: int) -> Iterator[list[int]]:
        begin = self.rank * self.batch // self.world_size
        end = (self.rank + 1) * self.batch // self.world_size
        while True:
            yield self._samples(position + begin, position + end)
            position += self.batch

    def _samples(self, begin: int, end: int) -> list[int]:
        """The stream from one position to another; it may run over the end of an epoch."""
        found: list[int] = []
        while begin < end:
            epoch, offset = divmod(begin, self.dataset_len)
            found += self._epoch_order(epoch)[offset : offset + end - begin].tolist()
            begin = min(end, (epoch + 1) * self.dataset_len)
        return found

    def _epoch_order(self, epoch: int) -> torch.Tensor:
        if self._order[0] != epoch:
            self._order = (epoch, self._shuffled(epoch) if self.shuffle else torch.arange(self.dataset_len))
        return self._order[1]

    def _shuffled(self, epoch: int) -> torch.Tensor:
        mixed = random.Random(f"{self.seed}/{epoch}").getrandbits(63)  # so that seed 1 is not seed 0, an epoch later
        return torch.randperm(self.dataset_len, generator=torch.Generator().manual_seed(mixed))
