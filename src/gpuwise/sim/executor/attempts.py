"""Attempts of jobs on a virtual clock: where they run, how far they are, and when something will be seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from itertools import count

from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.state import Residents
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import PROFILE_S, Event, JobRevised
from gpuwise.core.job.needs import EXCLUSIVE
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved, Cause, Details, Phase
from gpuwise.core.protocols import RateModel
from gpuwise.core.rates import alone_rates
from gpuwise.sim.executor.failures import OUT_OF_MEMORY_S, Memory

RUNNING, SUCCEEDED = Phase.RUNNING, Phase.SUCCEEDED
TICK_DIGITS, TICKS_PER_S = 6, 1e6
"""The clock ticks in microseconds: times that should be equal are equal, whatever arithmetic led to them."""


def ticked(at_s: float) -> float:
    """``round(at_s, TICK_DIGITS)`` in a third of the time; only what is close to a tie is left to `round`."""
    ticks = at_s * TICKS_PER_S
    if ticks < 1e13:  # above, the product is too coarse to see a tie
        whole = int(ticks)
        rest = ticks - whole
        if rest < 0.49:
            return whole / TICKS_PER_S
        if rest > 0.51:
            return (whole + 1) / TICKS_PER_S
    return round(at_s, TICK_DIGITS)


Entry = tuple[float, int, Event | AttemptObserved, int, int]
"""(time, sequence, what is seen then, job or -1, epoch); an entry of an older epoch is stale and is dropped."""


class VirtualAttempts:
    """Jobs advance by their true rates and lose what they have not saved; what will be seen of them is on a heap."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        truth: RateModel,
        memory: Memory | None = None,
        utilization: Sequence[float] | None = None,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._truth = truth
        self._alone = alone_rates(truth)
        self._memory = memory
        self._utilization = utilization
        """What each job will be seen to use; None where jobs are not profiled."""
        self._now: list[Event | AttemptObserved] = []
        self._heap: list[Entry] = []
        self._sequence = count()
        self._placed: dict[int, Placement] = {}
        self._residents = Residents()
        self._layouts: dict[tuple[int, int], tuple[MigSlice, ...]] = {}
        self._left: list[float] = jobs.steps[: len(jobs)].tolist()
        self._saved = [0.0] * len(jobs)
        self._rate = [0.0] * len(jobs)
        self._since = [0.0] * len(jobs)
        self._epoch = [0] * len(jobs)
        self._attempt = [0] * len(jobs)
        self._kept: set[int] = set()
        """Jobs that have a checkpoint to resume from."""
        self._doomed: dict[int, float] = {}
        """Jobs that found too little memory, and when they will fail."""
        self._saving: dict[tuple[int, int], float] = {}
        """Devices on which a suspended job still saves its state, or that are being partitioned, and until when."""
        self._savers: dict[int, tuple[tuple[int, ...], float]] = {}
        """Jobs that are saving: on which nodes, and the steps of their previous checkpoint."""
        self.lost_steps = 0.0

    def placed(self) -> dict[int, Placement]:
        """What runs where."""
        return dict(self._placed)

    def _seen(self, at_s: float, job: int, phase: Phase, step: float | None = None) -> AttemptObserved:
        steps = None if step is None else self._jobs.steps.item(job)
        return AttemptObserved(at_s, self._jobs.ids[job], self._attempt[job], phase, step, steps)

    def _push(self, at_s: float, seen: Event | AttemptObserved, job: int = -1) -> None:
        epoch = self._epoch[job] if job >= 0 else 0
        heappush(self._heap, (at_s, next(self._sequence), seen, job, epoch))

    # -- start and progress --------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Makes room for jobs that were declared since."""
        known, count = len(self._left), len(self._jobs)
        self._left += self._jobs.steps[known:count].tolist()
        for column in (self._saved, self._rate, self._since):
            column += [0.0] * (count - known)
        self._epoch += [0] * (count - known)
        self._attempt += [0] * (count - known)

    def _take_over(self, now_s: float, job: int, placement: Placement, starting: bool) -> None:
        self._placed[job] = placement
        self._since[job] = now_s
        if starting:
            self._now.append(self._seen(now_s, job, RUNNING))
        if placement.sharing is not EXCLUSIVE:
            self._residents.add(job, placement)
            self._retime(now_s, (job, *self._residents.neighbours(job, placement)))
        else:
            self._rate[job] = self._alone(job, placement)
            self._push_finish(job, now_s, self._rate[job])

    def _begin(self, now_s: float, job: int, attempt: int, placement: Placement, cost_s: float) -> None:
        if job >= len(self._left):
            self._grow()
        self._attempt[job] = attempt
        begin_s = now_s
        if self._saving:
            self._saving = {device: until_s for device, until_s in self._saving.items() if until_s > now_s}
            begin_s = max((self._saving.get(device, now_s) for device in placement.devices()), default=now_s)
        if cost_s:
            begin_s = ticked(begin_s + cost_s)
        self._placed[job] = placement
        self._since[job] = begin_s
        if begin_s > now_s:
            self._push(begin_s, self._seen(begin_s, job, RUNNING), job)
        else:
            self._now.append(AttemptObserved(now_s, self._jobs.ids[job], attempt, RUNNING))
        if self._memory is not None and self._memory.overflows(job, placement, self._residents, self._layouts):
            self._doomed[job] = ticked(begin_s + OUT_OF_MEMORY_S)
        if placement.sharing is EXCLUSIVE:
            rate = self._rate[job] = self._alone(job, placement)
            self._push_finish(job, begin_s, rate)
        else:
            self._residents.add(job, placement)
            self._retime(now_s, (job, *self._residents.neighbours(job, placement)))
        if self._utilization is not None and not self._residents.neighbours(job, placement):
            seen_s = ticked(begin_s + PROFILE_S)
            self._push(seen_s, JobRevised(seen_s, job, gpu_util_frac=self._utilization[job]), job)

    def _push_finish(self, job: int, begin_s: float, rate: float) -> None:
        if self._doomed and job in self._doomed:
            self._push_out_of_memory(job)
        elif rate > 0:
            finish_s = ticked(begin_s + self._left[job] / rate)
            ended = AttemptObserved(finish_s, self._jobs.ids[job], self._attempt[job], SUCCEEDED)
            heappush(self._heap, (finish_s, next(self._sequence), ended, job, self._epoch[job]))
        elif rate != 0:
            raise GpuwiseError(f"the true rate of job {self._jobs.ids[job]!r} is {rate}; it must be 0 or more")

    def _push_out_of_memory(self, job: int) -> None:
        """A job will fail for lack of memory."""
        assert self._memory is not None
        peak = self._memory.bytes(job) * self._placed[job].gpus
        seen = self._seen(self._doomed[job], job, Phase.FAILED, self._saved[job])
        details = Details(cause=Cause.OUT_OF_MEMORY, text="out of memory", peak_memory_bytes=peak)
        seen = seen._replace(details=details)
        self._push(seen.at_s, seen, job)

    def _settle(self, now_s: float, job: int) -> None:
        """Subtracts the steps made since the last update, and makes the job's entries on the heap stale."""
        if now_s > self._since[job]:
            self._left[job] = max(0.0, self._left[job] - self._rate[job] * (now_s - self._since[job]))
            self._since[job] = now_s
        self._epoch[job] += 1

    def _retime(self, now_s: float, jobs: tuple[int, ...]) -> None:
        """Gives jobs whose neighbours have changed their new rates and finish times."""
        placements = [self._placed[job] for job in jobs]
        residents = [self._residents.neighbours(*each) for each in zip(jobs, placements, strict=True)]
        for job, rate in zip(jobs, self._truth.rates(jobs, placements, residents), strict=True):
            starts_s = self._since[job]
            self._settle(now_s, job)
            self._rate[job] = rate
            if starts_s > now_s:
                self._push(starts_s, self._seen(starts_s, job, RUNNING), job)
            self._push_finish(job, max(now_s, starts_s), rate)

    # -- stop, save and fail --------------------------------------------------------------------------------------

    def _leave(self, now_s: float, job: int) -> None:
        self._settle(now_s, job)
        self._release(now_s, job)

    def _release(self, now_s: float, job: int) -> None:
        placement = self._placed.pop(job)
        self._doomed.pop(job, None)
        if placement.sharing is not EXCLUSIVE:
            neighbours = self._residents.neighbours(job, placement)
            self._residents.remove(job, placement)
            self._retime(now_s, neighbours)

    def _suspend(self, now_s: float, job: int) -> None:
        cost_s = self._jobs.suspend_s.item(job)
        saved_s = ticked(now_s + cost_s) if cost_s else now_s
        for device in self._placed[job].devices() if cost_s else ():
            self._saving[device] = max(saved_s, self._saving.get(device, 0.0))
        nodes = self._placed[job].nodes
        self._leave(now_s, job)
        if cost_s:
            self._savers[job] = (nodes, self._saved[job])
        self._saved[job] = done = self._jobs.steps.item(job) - self._left[job]
        self._kept.add(job)
        seen = self._seen(saved_s, job, Phase.SUSPENDED, done)
        if cost_s:
            self._push(saved_s, seen, job)
        else:
            self._now.append(seen)

    def _stop(self, now_s: float, job: int) -> None:
        """Stops an attempt: nothing more is seen of it, and what it did not save is lost."""
        if job in self._savers:
            self._abort_save(job)
        if job in self._placed:
            self._lose_work(now_s, job)
        self._epoch[job] += 1
        self._savers.pop(job, None)
        uid = self._jobs.ids[job]
        self._now = [each for each in self._now if getattr(each, "job", None) not in (job, uid)]

    def _lose_node(self, now_s: float, name: str | int) -> None:
        node = self._nodes.row(name)
        for job in [job for job, placement in self._placed.items() if node in placement.nodes]:
            self._lose_work(now_s, job)
        for job in [job for job, (nodes, _) in self._savers.items() if node in nodes]:
            self._abort_save(job)

    def _lose_work(self, now_s: float, job: int) -> None:
        """An attempt failed: what it did since its last checkpoint is lost."""
        steps = self._jobs.steps.item(job)
        self._leave(now_s, job)
        self.lost_steps += steps - self._left[job] - self._saved[job]
        self._left[job] = steps - self._saved[job]

    def _abort_save(self, job: int) -> None:
        """A checkpoint that is not completed leaves the previous one."""
        _, before = self._savers.pop(job)
        self.lost_steps += self._saved[job] - before
        self._saved[job] = before
        if not before:
            self._kept.discard(job)
        self._left[job] = self._jobs.steps.item(job) - before
        self._epoch[job] += 1
