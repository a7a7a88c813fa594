"""A policy that decides anything that may be decided, as a list of numbers tells it to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Decision, Grant, MigSlice, Placement, TaskGrant
from gpuwise.core.decision.draft import Draft
from gpuwise.core.decision.steps import DraftError
from gpuwise.core.decision.view import ClusterView
from gpuwise.core.errors import OverAllocationError
from gpuwise.core.events import Event
from gpuwise.core.job.needs import Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.units import GIB

T = TypeVar("T")

LAYOUTS: tuple[tuple[MigSlice, ...], ...] = (
    (MigSlice("3g.20gb", 0, 429, 20 * GIB), MigSlice("3g.20gb", 4, 429, 20 * GIB)),
    (MigSlice("3g.20gb", 0, 429, 20 * GIB), MigSlice("1g.5gb", 4, 143, 5 * GIB), MigSlice("1g.5gb", 5, 143, 5 * GIB)),
)


MOVES = (
    "start", "start", "start", "suspend", "move", "move", "resize_roles", "rearrange", "repartition",
    "try_and_take_back", "keep", "provision", "release",
)  # fmt: skip
START, REPARTITION = MOVES.index("start"), MOVES.index("repartition")


class Dice:
    """Numbers drawn elsewhere, read one after the other; when they are used up, always the first choice."""

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        self._left = list(numbers)

    def __bool__(self) -> bool:
        return bool(self._left)

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` - 1."""
        return self._left.pop(0) % count if self._left else 0

    def one_of(self, choices: Sequence[T]) -> T:
        """One of some choices."""
        return choices[self.below(len(choices))]

    def some_of(self, choices: Sequence[T], count: int) -> list[T]:
        """So many different ones of some choices."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]


class RandomPolicy:
    """Asked only when it is woken; reads from ``dice`` what to do."""

    name = "random"
    wakes_on: frozenset[type[Event]] = frozenset()

    def __init__(self) -> None:
        self.dice = Dice()
        self.new_nodes = 0

    def decide(self, view: ClusterView, rng: Any) -> Decision:
        """Tries things on a draft until the numbers are used up; what does not fit is left."""
        draft = view.draft()
        hand = _Hand(draft, self)
        while self.dice:
            self.dice.one_of(hand.moves)()
        return draft.seal()


class _Hand:
    """What may be tried in one decision, on any job as often as it comes."""

    def __init__(self, draft: Draft, policy: RandomPolicy) -> None:
        self.draft = draft
        self.view = draft.view
        self.policy = policy
        self.dice = policy.dice
        self.moves = [getattr(self, name) for name in MOVES]

    def _placed(self) -> list[int]:
        """Those that would have GPUs."""
        return [job for job in range(len(self.view.jobs)) if self.draft.placement(job) is not None]

    def _waiting(self) -> list[int]:
        """Those that would have none, and may."""
        known = (job for job in range(len(self.view.jobs)) if job in self.view.placed or job in self.view.waiting)
        return [job for job in known if self.draft.placement(job) is None and not self.view.jobs.held.item(job)]

    def start(self) -> None:
        """A start, a resumption, or a migration of one that was suspended in this draft."""
        jobs = self._waiting()
        if not jobs:
            return
        job = self.dice.one_of(jobs)
        if self.dice.below(2):
            self._fits(lambda: self.draft.start(job))
            return
        placement = self._placement(self.draft.capacity, self.view.shape(job))
        if placement is not None:
            self._fits(lambda: self.draft.start(job, placement))

    def suspend(self) -> None:
        if jobs := self._placed():
            self.draft.suspend(self.dice.one_of(jobs))

    def keep(self) -> None:
        if jobs := self._placed():
            job = self.dice.one_of(jobs)
            self.draft.suspend(job)
            assert self.draft.keep(job)

    def move(self) -> None:
        """A migration, or a resize where the job is elastic."""
        jobs = self._placed()
        if not jobs:
            return
        job = self.dice.one_of(jobs)
        placement = self._placement(self.draft.capacity, self.view.shape(job))
        if placement is not None:
            self._fits(lambda: self.draft.move(job, placement))

    def resize_roles(self) -> None:
        """Other numbers of tasks, where the placer finds room for them."""
        jobs = [job for job in self._placed() if self.view.shape(job).roles]
        if jobs:
            job = self.dice.one_of(jobs)
            counts = self._counts(self.view.shape(job))
            self._fits(lambda: self.draft.resize_roles(job, counts))

    def rearrange(self) -> None:
        """Up to three jobs change places with each other, or go elsewhere, with as many GPUs as before."""
        chosen = self.dice.some_of(self._placed(), 1 + self.dice.below(3))
        before = {job: self.draft.placement(job) for job in chosen}
        trial = self.draft.capacity.fork()
        for job, held in before.items():
            trial.give(held, self.view.shape(job))
        moves: dict[int, Placement] = {}
        for job, held in before.items():
            shape = self.view.shape(job)
            placement = self._placement(trial, shape, held.gpus)
            if placement is None or not self._fits(lambda: trial.take(placement, shape)):  # noqa: B023
                return
            moves[job] = placement
        if moves:
            self._fits(lambda: self.draft.rearrange(moves))

    def repartition(self) -> None:
        nodes = self.view.nodes
        with_mig = [node for node in self._up() if nodes.types[nodes.type_of[node]] == "A100"]
        devices = [(node, device) for node in with_mig for device in range(nodes.gpus.item(node))]
        if devices:
            node, device = self.dice.one_of(devices)
            slices = self.dice.one_of((*LAYOUTS, ()))
            self._fits(lambda: self.draft.cut(node, device, slices))

    def try_and_take_back(self) -> None:
        """A draft that is rolled back leaves no trace."""
        mark = self.draft.mark()
        for move in self.dice.some_of((self.suspend, self.start, self.move, self.rearrange, self.repartition), 3):
            move()
        self.draft.rollback(mark)

    def provision(self) -> None:
        if self.policy.new_nodes < 3:
            self.policy.new_nodes += 1
            name = f"p{self.policy.new_nodes}"
            spec = NodeSpec(name=name, gpu_type="A100", gpus=2, gpu_memory_bytes=40 * GIB, speed=2.0)
            self.draft.provision(spec)

    def release(self) -> None:
        """An empty node is given back; nothing in this decision may be on it from then on."""
        busy = {node for job in self._placed() for node in self.draft.placement(job).nodes}
        empty = [node for node in self._up() if node not in busy]
        if empty and self.dice.below(4) == 0:
            node = self.dice.one_of(empty)
            self._fits(lambda: self.draft.release(node))  # not one that a job is still leaving

    # -- placements ----------------------------------------------------------------------------------------------

    def _fits(self, attempt: Any) -> bool:
        try:
            attempt()
        except (OverAllocationError, DraftError):
            return False
        return True

    def _up(self) -> list[int]:
        return [node for node, up in enumerate(self.draft.capacity.up) if up]

    def _placement(self, capacity: Capacity, shape: Shape, gpus: int | None = None) -> Placement | None:
        """Any placement that the job allows; whether there is room for it the draft will say."""
        if shape.roles:
            found = self._gang(capacity, shape, gpus)
        else:
            found = self._somewhere(capacity, shape, gpus)
        return found if found is not None and not capacity.misfit(found, shape) else None

    def _counts(self, shape: Shape) -> dict[str, int]:
        """Some number of tasks of each role."""
        ranges = {role.name: role.count_range for role in shape.roles}
        return {name: low + self.dice.below(high - low + 1) for name, (low, high) in ranges.items()}

    def _gang(self, capacity: Capacity, shape: Shape, gpus: int | None) -> Placement | None:
        """GPUs anywhere, divided among tasks as far as that comes out even; tasks without GPUs anywhere."""
        counts = self._counts(shape)
        needed = sum(counts[role.name] * role.gpus for role in shape.roles)
        found = self._somewhere(capacity, shape, needed) if needed else Placement(())
        hosts = [node for node in self._up() if capacity.allowed(shape) >> node & 1]
        if found is None or gpus not in (None, needed) or not hosts:
            return None
        left = dict.fromkeys(found.nodes, 0)
        for node, devices, _ in found.grants:
            left[node] += devices.bit_count()
        tasks: dict[tuple[str, int], int] = {}
        for role in sorted(shape.roles, key=lambda role: -role.gpus):
            for _ in range(counts[role.name]):
                nodes = [node for node in left if left[node] >= role.gpus] if role.gpus else hosts
                if not nodes:
                    return None
                node = self.dice.one_of(nodes)
                left[node] = left.get(node, 0) - role.gpus
                tasks[role.name, node] = tasks.get((role.name, node), 0) + 1
        made = tuple(TaskGrant(*where, number) for where, number in tasks.items())
        grants = found.grants or tuple(Grant(node, 0) for node in dict.fromkeys(node for _, node in tasks))
        return found._replace(grants=grants, tasks=made)

    def _somewhere(self, capacity: Capacity, shape: Shape, gpus: int | None) -> Placement | None:
        sharing = self.dice.one_of(sorted(shape.sharing))
        if Sharing.MIG in shape.sharing and any(capacity.free_slices.values()) and self.dice.below(2):
            sharing = Sharing.MIG
        if gpus is None:
            gpus = shape.min_gpus + self.dice.below(shape.max_gpus - shape.min_gpus + 1)
        types = capacity.types_for(shape)
        allowed = capacity.allowed(shape)
        nodes = [node for node in self._up() if self.view.nodes.type_of[node] in types and allowed >> node & 1]
        if sharing is Sharing.MIG:
            return self._slices(capacity, nodes, gpus)
        devices = [(node, device) for node in nodes for device in range(self.view.nodes.gpus.item(node))]
        chosen = self.dice.some_of([each for each in devices if _may_have_room(capacity, each, sharing)], gpus)
        if len(chosen) < gpus or not chosen:
            return None
        masks: dict[int, int] = {}
        for node, device in chosen:
            masks[node] = masks.get(node, 0) | 1 << device
        milli = 1000 if sharing is Sharing.EXCLUSIVE else shape.milli
        return Placement(tuple(Grant(*each) for each in masks.items()), sharing, milli)

    def _slices(self, capacity: Capacity, nodes: list[int], gpus: int) -> Placement | None:
        free = capacity.free_slices
        pieces = [(where, piece) for where in sorted(free) if where[0] in nodes for piece in free[where]]
        if not pieces or not gpus:
            return None
        milli = self.dice.one_of(pieces)[1].milli
        chosen = self.dice.some_of([each for each in pieces if each[1].milli == milli], gpus)
        if len(chosen) < gpus:
            return None
        grants = tuple(Grant(node, 1 << device, piece.start) for (node, device), piece in chosen)
        return Placement(grants, Sharing.MIG, milli)


def _may_have_room(capacity: Capacity, where: tuple[int, int], sharing: Sharing) -> bool:
    """Idle, or open to the same kind of sharing; how much is left is for the draft to say."""
    idle = bool(capacity.idle[where[0]] >> where[1] & 1)
    return idle or (sharing is not Sharing.EXCLUSIVE and capacity.open_sharing[where] == sharing)
