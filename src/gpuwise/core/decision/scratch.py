"""A scratch copy of the cluster, with a log of what was tried on it, so that it can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwise.core.cluster.capacity import Capacity
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Command, Placement
from gpuwise.core.decision.steps import Cut, DraftError, Noted, Released, Step, commands_of, exchange, moves_of
from gpuwise.core.job.shape import Shape
from gpuwise.core.protocols import Placer

if TYPE_CHECKING:
    from gpuwise.core.decision.view import ClusterView


class Scratch:
    """What the cluster would be after the steps so far; the copy is made when a step first needs it."""

    __slots__ = (
        "_capacity", "_cuts", "_for_placer", "_notes", "_placed", "_placer", "_repeated", "_state", "_steps",
        "_untried", "closed", "view",
    )  # fmt: skip

    def __init__(self, view: ClusterView, state: ClusterState, placer: Placer) -> None:
        self.view = view
        self._state = state
        self._placer = placer
        self._for_placer = view._for_placer if placer is view.placer else view.capacity
        self._capacity: Capacity | None = None
        self._untried: tuple[Placement, Shape] | None = None
        """A first start that the scratch copy, which is made when it is first needed, does not show yet."""
        self._placed: dict[int, Placement | None] = {}
        self._steps: list[Step] = []
        self._cuts = 0
        self._repeated = False
        """Whether there may be a job with more than one step, so that the order of commands is in question."""
        self._notes: dict[tuple[str, int], float] = {}
        self.closed: set[int] = set()
        """Shapes that were found not to fit since the last time anything was freed."""

    @property
    def capacity(self) -> Capacity:
        """What is free if everything so far is carried out; for looking at, not for taking."""
        if self._capacity is None and self._untried is None:
            return self.view.capacity
        return self._scratch()

    @property
    def commands(self) -> list[Command]:
        """What the operations so far come to: one command per job."""
        return commands_of(self._steps, self._state, self._repeated)

    def placement(self, job: int) -> Placement | None:
        """Where a job would be."""
        return self._placed[job] if job in self._placed else self._state.placed.get(job)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Undoes everything since a mark, the last first."""
        if not 0 <= mark <= len(self._steps):
            raise DraftError(f"there is no mark {mark} to roll back to; the draft has {len(self._steps)} steps")
        while len(self._steps) > mark:
            self._undo(self._steps.pop())
        self.closed.clear()

    def _undo(self, step: Step) -> None:
        moves = moves_of(step)
        if moves:
            before, after = {m.job: m.before for m in moves}, {m.job: m.after for m in moves}
            exchange(self._scratch(), self._state, after, before, self._placed)
            self._placed.update(before)
            for job, placement in before.items():
                if placement == self._state.placed.get(job):
                    del self._placed[job]
        elif isinstance(step, Cut):
            self._cuts -= 1
            self._scratch().repartition(step.node, step.device, step.before)
        elif isinstance(step, Released):
            self._scratch().set_up(step.node, True)
        elif isinstance(step, Noted):
            self._notes.pop((step.column, step.job))
            if step.before is not None:
                self._notes[step.column, step.job] = step.before

    def _log(self, step: Step) -> None:
        """Takes note of a step that freed something."""
        self._steps.append(step)
        for job, _, after in moves_of(step):
            self._repeated |= job in self._placed
            self._placed[job] = after
        self._check_order()
        self.closed.clear()

    def _check_order(self) -> None:
        """Undoes the last step if no decision can carry it out: a job would have to leave a GPU to be repartitioned."""
        if not (self._cuts and self._repeated):
            return
        try:
            commands_of(self._steps, self._state, self._repeated)
        except DraftError:
            self._undo(self._steps.pop())
            raise

    def _shown(self) -> Capacity:
        """What the placer is shown of what is free."""
        if self._capacity is None and self._untried is None:
            return self._for_placer
        return self._scratch()

    def _id(self, job: int) -> str:
        return repr(self._state.jobs.ids[job])

    def _scratch(self) -> Capacity:
        if self._capacity is None:
            self._capacity = self.view.capacity.fork()
            if self._untried is not None:
                self._capacity.take(*self._untried)
                self._untried = None
        return self._capacity
