"""The end of a run: what it means, and telling those who must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwise.core.observations import Cause, Details, Phase
from gpuwise.live.local.attempts.folders import Exit, finite, text, whole
from gpuwise.live.local.attempts.outbox import Outbox
from gpuwise.live.local.attempts.outcome import Outcome, cause_of, judge
from gpuwise.live.local.attempts.runs import Run
from gpuwise.live.local.plan import Goal
from gpuwise.live.local.supervisor.limits import peak_memory_bytes, ran_out_of_memory, tail

LAST_LINE_LENGTH = 200
SEEN: Mapping[Outcome, Phase] = {
    Outcome.SUCCEEDED: Phase.SUCCEEDED,
    Outcome.FAILED: Phase.FAILED,
    Outcome.OUT_OF_MEMORY: Phase.FAILED,
    Outcome.LOST: Phase.FAILED,
    Outcome.SUSPENDED: Phase.SUSPENDED,
    Outcome.MOVED: Phase.MOVED,
    Outcome.CANCELLED: Phase.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    exit: Exit
    outcome: Outcome
    cause: Cause
    text: str
    peak_memory_bytes: float | None

    @classmethod
    def of(cls, run: Run, goal: Goal, output: Path, group: Path | None, stand_in: bool) -> Ending:
        """Reads everything that says how a run ended; ``group`` is its control group."""
        attempt = run.attempt
        ended = run.lost or attempt.exit()
        orders, offset = run.orders(), whole(attempt.read("started"), "offset")
        why = text(orders, "why")
        no_memory = ended.code != 0 and ran_out_of_memory(ended, group, output, offset)
        left = attempt.left_as_asked(ended.code) and (goal is not Goal.RUN or run.is_going_on)
        final = orders.get("final") is True
        outcome = judge(ended, goal, left_as_asked=left, final=final, why=why, no_memory=no_memory)
        limit = finite(attempt.read("launch"), "memory_bytes")
        last = last_line(tail(output, offset)) if outcome is Outcome.FAILED else ""
        told = ""
        if outcome in (Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.LOST):
            told = cause_of(ended, outcome, why=why, limit_bytes=limit, last_line=last)
        peak = peak_memory_bytes(ended, group) if stand_in else run.gpu_memory_bytes or None
        return cls(ended, outcome, _cause(outcome, why, final), told, peak)

    def tell(self, outbox: Outbox, run: Run, goal: Goal) -> None:
        """Tells how a run ended; of one that was to be gone only if we ended it."""
        if goal is Goal.END and not self.exit.asked:
            return
        if run.is_started and goal is Goal.RUN:
            outbox.running(run)
        kept = _saved_steps(outbox, run) if self.outcome is Outcome.SUSPENDED else outbox.kept(run.uid)
        details = Details(cause=self.cause, text=self.text, peak_memory_bytes=self.peak_memory_bytes)
        outbox.ended(run, SEEN[self.outcome], self.exit, details, kept)

    @staticmethod
    def parked(outbox: Outbox, run: Run) -> None:
        """A run that was stopped where it is keeps all that it has done."""
        outbox.ended(run, Phase.SUSPENDED, Exit(), Details(), (None, None))


def _cause(outcome: Outcome, why: str, final: bool) -> Cause:
    """What kind of failure it was; ``why`` is the reason for which it was ended, ``final`` if its job ends with it."""
    if outcome is Outcome.OUT_OF_MEMORY:
        return Cause.OUT_OF_MEMORY
    if outcome is Outcome.LOST:
        return Cause.DEVICE_LOST if why else Cause.LOST
    return Cause.LIMIT if why and final else Cause.ERROR


def _saved_steps(outbox: Outbox, run: Run) -> tuple[float, float | None]:
    saved = run.attempt.read("saved")
    if "step" not in saved:
        return outbox.kept(run.uid)
    return finite(saved, "step"), finite(saved, "steps") or None


def last_line(printed: bytes) -> str:
    """The last thing that was printed, as far as it can be shown."""
    lines = printed.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(each for each in last if each.isprintable())[:LAST_LINE_LENGTH]
