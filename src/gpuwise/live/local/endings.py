"""The end of a run: what it means, and telling those who must know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuwise.live.local.attempts import Exit, finite, text, whole
from gpuwise.live.local.limits import peak_memory_bytes, ran_out_of_memory, tail
from gpuwise.live.local.outbox import Outbox, Wanted
from gpuwise.live.local.outcome import Outcome, cause_of, judge
from gpuwise.live.local.plan import Goal
from gpuwise.live.local.runs import Run
from gpuwise.live.local.steps import believed_steps, scaled

LAST_LINE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    exit: Exit
    outcome: Outcome
    cause: str
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
        cause = ""
        if outcome in (Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.LOST):
            cause = cause_of(ended, outcome, why=why, limit_bytes=limit, last_line=last)
        peak = peak_memory_bytes(ended, group) if stand_in else run.gpu_memory_bytes or None
        return cls(ended, outcome, cause, peak)

    def tell(self, outbox: Outbox, run: Run, want: Wanted, goal: Goal) -> None:
        """Tells the engine and the records; of a run that was to be gone, only the records if we ended it."""
        uid, at_s = run.uid, outbox.moment(self.exit.at, want.row)
        if goal is not Goal.END or self.exit.asked:
            outbox.ended(run, self.exit, self.outcome, self.cause, self.peak_memory_bytes, at_s)
        if goal is Goal.END:
            return
        if run.is_started:
            outbox.started(run, want)
        if self.outcome is Outcome.SUCCEEDED:
            outbox.finished(uid, want, at_s)
        elif self.outcome is Outcome.SUSPENDED:
            outbox.suspended(uid, want, _saved_steps(outbox, run, want))
        elif self.cause:
            outbox.failed(uid, want, self.cause, at_s, run.declared_steps)

    @staticmethod
    def parked(outbox: Outbox, run: Run, want: Wanted, now_s: float) -> None:
        """A run that was stopped where it is keeps what it has done."""
        outbox.ended(run, Exit(), Outcome.SUSPENDED, "", None, now_s)
        outbox.suspended(run.uid, want, believed_steps(outbox.state.jobs, want.row, now_s))


def _saved_steps(outbox: Outbox, run: Run, want: Wanted) -> float:
    saved = run.attempt.read("saved")
    total = outbox.state.jobs.steps.item(want.row)
    steps = scaled(finite(saved, "step"), finite(saved, "steps") or None, total, run.declared_steps)
    if steps is None or "step" not in saved:
        return outbox.kept(run.uid, want.row, run.declared_steps)
    return steps


def last_line(printed: bytes) -> str:
    """The last thing that was printed, as far as it can be shown."""
    lines = printed.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(each for each in last if each.isprintable())[:LAST_LINE_LENGTH]
