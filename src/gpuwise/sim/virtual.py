"""The virtual executor: carries commands out on a clock that jumps from event to event."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

from gpuwise.core.commands import (
    Command,
    Migrate,
    MigSlice,
    Placement,
    Provision,
    Rearrange,
    Repartition,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from gpuwise.core.events import (
    PROFILE_S,
    Event,
    JobFailed,
    JobFinished,
    JobRevised,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeLost,
    NodeRestored,
    WokeUp,
)
from gpuwise.core.jobs import JobTable, Status
from gpuwise.core.protocols import ClusterFacts, RateModel
from gpuwise.core.spec import Sharing
from gpuwise.core.state import ClusterState, Residents
from gpuwise.sim.faults import NodeFault, apart
from gpuwise.sim.memory import OUT_OF_MEMORY_S, Memory

TICK_DIGITS = 6
"""The clock ticks in microseconds: times that should be equal are equal, whatever arithmetic led to them."""


class VirtualExecutor:
    """Jobs advance by their true rates; nothing runs."""

    def __init__(
        self,
        jobs: JobTable,
        truth: RateModel,
        *,
        faults: Iterable[NodeFault] = (),
        provision_s: float = 0.0,
        memory: Memory | None = None,
        repartition_s: float = 0.0,
        utilization: Sequence[float] | None = None,
    ) -> None:
        self._jobs = jobs
        self._truth = truth
        self._provision_s = provision_s
        self._memory = memory
        self._repartition_s = repartition_s
        self._utilization = utilization
        """What each job will be seen to use; None where nobody looks."""
        self._layouts: dict[tuple[int, int], tuple[MigSlice, ...]] = {}
        self._doomed: dict[int, float] = {}
        """Jobs that found too little memory, and when they will have run out of it."""
        self._submit_s: list[float] = [*jobs.submit_s[: len(jobs)].tolist(), math.inf]
        self._arrived = 0
        self._left: list[float] = jobs.steps[: len(jobs)].tolist()
        self._saved = [0.0] * len(jobs)
        self._rate = [0.0] * len(jobs)
        self._since = [0.0] * len(jobs)
        self._epoch = [0] * len(jobs)
        self._placed: dict[int, Placement] = {}
        self._residents = Residents()
        self._down: set[int] = set()
        self._saving: dict[tuple[int, int], float] = {}
        """Devices on which a suspended job is still saving its state, or that are being cut, and until when."""
        self._savers: dict[int, tuple[tuple[int, ...], float]] = {}
        """Jobs that are saving: on which nodes, and what an earlier save has kept."""
        self._heap: list[tuple[float, int, Event, int, int]] = []
        """(time, sequence, event, job or -1, epoch); an entry of an older epoch is stale and is dropped when met."""
        self._sequence = count()
        self._now: list[Event] = []
        self.lost_steps = 0.0
        for fault in apart(faults):
            self._push(fault.at_s, NodeLost(fault.at_s, fault.node, ()))
            if math.isfinite(fault.down_s):
                back_s = fault.at_s + fault.down_s
                self._push(back_s, NodeRestored(back_s, fault.node))

    @classmethod
    def going_on(cls, state: ClusterState, truth: RateModel) -> VirtualExecutor:
        """One that takes over from where a state is: nobody new comes, whoever runs runs on."""
        jobs = state.jobs
        executor = cls(jobs, truth)
        executor._arrived = len(jobs)
        for job in range(len(jobs)):
            done, status = jobs.steps_done.item(job), state.status(job)
            if status is Status.RUNNING:
                done += jobs.rate.item(job) * (state.now_s - jobs.since_s.item(job))
            executor._left[job] = max(0.0, jobs.steps.item(job) - done)
            executor._saved[job] = jobs.saved_steps.item(job)
            if job in state.placed:
                executor._take_over(state.now_s, job, state.placed[job], starting=status is Status.STARTING)
            elif status is Status.SUSPENDING:
                executor._now.append(JobSuspended(state.now_s, job, done))
        return executor

    # -- what the engine sees ------------------------------------------------------------------------------------

    def wait(self, until_s: float | None) -> tuple[float, list[Event]] | None:
        """The next events; ends and returns come before arrivals of the same moment."""
        if self._now:
            events, self._now = self._now, []
            return events[0].at_s, events
        heap, epoch = self._heap, self._epoch
        while heap and (top := heap[0])[3] >= 0 and top[4] != epoch[top[3]]:
            heappop(heap)
        submit_s = self._submit_s[self._arrived]
        next_s = heap[0][0] if heap else math.inf
        if submit_s < next_s:
            next_s = submit_s
        if until_s is not None and until_s < next_s:
            return until_s, [WokeUp(until_s)]
        if next_s == math.inf:
            return None
        events = self._due(next_s) if heap else []
        while submit_s == next_s:
            events.append(JobSubmitted(next_s, self._arrived))
            self._arrived += 1
            submit_s = self._submit_s[self._arrived]
        if until_s == next_s:
            events.append(WokeUp(next_s))
        return next_s, events

    def apply(self, now_s: float, commands: Sequence[Command]) -> None:
        """Begins to carry out commands; a job that takes over devices waits until those it drives out have saved."""
        for command in commands:
            if isinstance(command, (Start, Resume)):
                job = command.job
                if job >= len(self._left):
                    self._grow()
                saved = self._saved[job] > 0 or isinstance(command, Resume)
                self._begin(now_s, job, command.placement, self._jobs.resume_s.item(job) if saved else 0.0)
            elif isinstance(command, Suspend):
                self._suspend(now_s, command.job)
            elif isinstance(command, Stop):
                self._stop(now_s, command.job)
            elif isinstance(command, (Migrate, Resize)):
                table = self._jobs.migrate_s if isinstance(command, Migrate) else self._jobs.resize_s
                self._leave(now_s, command.job)
                self._begin(now_s, command.job, command.placement, table.item(command.job))
            elif isinstance(command, Rearrange):
                for job, _ in command.moves:
                    self._leave(now_s, job)
                for job, placement in command.moves:
                    self._begin(now_s, job, placement, self._jobs.migrate_s.item(job))
            elif isinstance(command, Repartition):
                where = (command.node, command.device)
                self._layouts[where] = command.slices
                if self._repartition_s:  # a GPU is cut when those who leave it have saved
                    empty_s = max(now_s, self._saving.get(where, now_s))
                    self._saving[where] = round(empty_s + self._repartition_s, TICK_DIGITS)
            elif isinstance(command, Provision):
                at_s = now_s + self._provision_s
                self._push(at_s, NodeAdded(at_s, command.node))

    def facts(self) -> ClusterFacts:
        """What runs where."""
        return ClusterFacts(dict(self._placed), frozenset(self._down))

    # -- jobs come and go ----------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Makes room for jobs that were declared since."""
        known, count = len(self._left), len(self._jobs)
        self._left += self._jobs.steps[known:count].tolist()
        for column in (self._saved, self._rate, self._since):
            column += [0.0] * (count - known)
        self._epoch += [0] * (count - known)

    def _take_over(self, now_s: float, job: int, placement: Placement, starting: bool) -> None:
        self._placed[job] = placement
        self._since[job] = now_s
        if starting:
            self._now.append(JobStarted(now_s, job))
        if placement.sharing is not Sharing.EXCLUSIVE:
            self._residents.add(job, placement)
            self._retime(now_s, (job, *self._residents.neighbours(job, placement)))
        else:
            self._rate[job] = self._truth.rates((job,), (placement,), ((),))[0]
            self._push_finish(job, now_s, self._rate[job])

    def _begin(self, now_s: float, job: int, placement: Placement, cost_s: float) -> None:
        begin_s = now_s
        if self._saving:
            self._saving = {device: until_s for device, until_s in self._saving.items() if until_s > now_s}
            begin_s = max((self._saving.get(device, now_s) for device in placement.devices()), default=now_s)
        if cost_s:
            begin_s = round(begin_s + cost_s, TICK_DIGITS)
        self._placed[job] = placement
        self._since[job] = begin_s
        if begin_s > now_s:
            self._push(begin_s, JobStarted(begin_s, job), job)
        else:
            self._now.append(JobStarted(now_s, job))
        if self._memory is not None and self._memory.overflows(job, placement, self._residents, self._layouts):
            self._doomed[job] = round(begin_s + OUT_OF_MEMORY_S, TICK_DIGITS)
        if placement.sharing is Sharing.EXCLUSIVE:
            rate = self._rate[job] = self._truth.rates((job,), (placement,), ((),))[0]
            self._push_finish(job, begin_s, rate)
        else:
            self._residents.add(job, placement)
            self._retime(now_s, (job, *self._residents.neighbours(job, placement)))
        if self._utilization is not None and not self._residents.neighbours(job, placement):
            seen_s = round(begin_s + PROFILE_S, TICK_DIGITS)
            self._push(seen_s, JobRevised(seen_s, job, gpu_util_frac=self._utilization[job]), job)

    def _push_finish(self, job: int, begin_s: float, rate: float) -> None:
        if self._doomed and job in self._doomed:
            self._push_out_of_memory(job)
        elif rate > 0:
            finish_s = round(begin_s + self._left[job] / rate, TICK_DIGITS)
            heappush(self._heap, (finish_s, next(self._sequence), JobFinished(finish_s, job), job, self._epoch[job]))

    def _push_out_of_memory(self, job: int) -> None:
        """A job will run out of memory; it comes again with a better estimate, unless no GPU is large enough."""
        assert self._memory is not None
        at_s, again = self._doomed[job], not self._memory.never_fits(job, self._jobs.shape_of(job))
        self._push(at_s, JobFailed(at_s, job, self._saved[job], "out of memory", will_retry=again), job)

    def _settle(self, now_s: float, job: int) -> None:
        """Takes off what was done since the job was last looked at."""
        if now_s > self._since[job]:
            self._left[job] = max(0.0, self._left[job] - self._rate[job] * (now_s - self._since[job]))
            self._since[job] = now_s
        self._epoch[job] += 1

    def _retime(self, now_s: float, jobs: tuple[int, ...]) -> None:
        """Gives jobs whose neighbours came or went their new rates and finish times."""
        placements = [self._placed[job] for job in jobs]
        residents = [self._residents.neighbours(*each) for each in zip(jobs, placements, strict=True)]
        for job, rate in zip(jobs, self._truth.rates(jobs, placements, residents), strict=True):
            starts_s = self._since[job]
            self._settle(now_s, job)
            self._rate[job] = rate
            if starts_s > now_s:
                self._push(starts_s, JobStarted(starts_s, job), job)
            self._push_finish(job, max(now_s, starts_s), rate)

    def _leave(self, now_s: float, job: int) -> None:
        self._settle(now_s, job)
        self._release(now_s, job)

    def _release(self, now_s: float, job: int) -> None:
        placement = self._placed.pop(job)
        self._doomed.pop(job, None)
        if placement.sharing is not Sharing.EXCLUSIVE:
            neighbours = self._residents.neighbours(job, placement)
            self._residents.remove(job, placement)
            self._retime(now_s, neighbours)

    def _suspend(self, now_s: float, job: int) -> None:
        cost_s = self._jobs.suspend_s.item(job)
        saved_s = round(now_s + cost_s, TICK_DIGITS) if cost_s else now_s
        for device in self._placed[job].devices() if cost_s else ():
            self._saving[device] = max(saved_s, self._saving.get(device, 0.0))
        nodes = self._placed[job].nodes
        self._leave(now_s, job)
        if cost_s:
            self._savers[job] = (nodes, self._saved[job])
        self._saved[job] = done = self._jobs.steps.item(job) - self._left[job]
        event = JobSuspended(saved_s, job, done)
        if cost_s:
            self._push(saved_s, event, job)
        else:
            self._now.append(event)

    def _stop(self, now_s: float, job: int) -> None:
        """A job is taken back: whatever else was to be heard of it is not."""
        if job in self._placed:
            self._leave(now_s, job)
        self._epoch[job] += 1
        self._savers.pop(job, None)
        self._now = [event for event in self._now if getattr(event, "job", -1) != job]

    # -- the heap ------------------------------------------------------------------------------------------------

    def _push(self, at_s: float, event: Event, job: int = -1) -> None:
        epoch = self._epoch[job] if job >= 0 else 0
        heappush(self._heap, (at_s, next(self._sequence), event, job, epoch))

    def _due(self, now_s: float) -> list[Event]:
        """Takes everything that happens at ``now_s`` off the heap."""
        due: list[Event] = []
        heap = self._heap
        while heap and heap[0][0] == now_s:
            _, _, event, job, epoch = heappop(heap)
            if job >= 0 and epoch != self._epoch[job]:
                continue
            if type(event) is JobFinished:
                self._left[job] = 0.0
                self._epoch[job] += 1
                self._release(now_s, job)
            elif type(event) is NodeLost:
                event = self._lose(now_s, event.node)
            elif type(event) is NodeRestored:
                self._down.discard(event.node)
            elif type(event) is JobSuspended:
                self._savers.pop(job, None)
            due.append(event)
            if type(event) is JobFailed:
                due += self._run_out(now_s, event)
        return due

    def _lose(self, now_s: float, node: int) -> NodeLost:
        self._down.add(node)
        kept = []
        for job in [job for job, placement in self._placed.items() if node in placement.nodes]:
            self._leave(now_s, job)
            steps = self._jobs.steps.item(job)
            self.lost_steps += steps - self._left[job] - self._saved[job]
            self._left[job] = steps - self._saved[job]
            kept.append((job, self._saved[job]))
        kept += [self._cut_short(job) for job, (nodes, _) in list(self._savers.items()) if node in nodes]
        return NodeLost(now_s, node, tuple(kept))

    def _run_out(self, now_s: float, failed: JobFailed) -> list[Event]:
        """What is told after a job ran out of memory: what is believed of it now."""
        job = failed.job
        steps = self._jobs.steps.item(job)
        self._leave(now_s, job)
        self.lost_steps += steps - self._left[job] - self._saved[job]
        self._left[job] = steps - self._saved[job]
        if not failed.will_retry or self._memory is None:
            return []
        estimate = self._memory.estimate(job, self._jobs.shape_of(job))
        return [JobRevised(now_s, job, gpu_memory_bytes=estimate)]

    def _cut_short(self, job: int) -> tuple[int, float]:
        """A save that does not come to its end keeps nothing but what was saved before."""
        _, before = self._savers.pop(job)
        self.lost_steps += self._saved[job] - before
        self._saved[job] = before
        self._left[job] = self._jobs.steps.item(job) - before
        self._epoch[job] += 1
        return job, before
