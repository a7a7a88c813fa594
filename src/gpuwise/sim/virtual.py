"""The virtual executor: jobs advance by their true rates on a clock that jumps from event to event."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, NodeRequest
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.state import ClusterState, Residents
from gpuwise.core.commands import MigSlice, Placement
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import (
    PROFILE_S,
    Event,
    JobRevised,
    JobSubmitted,
    NodeAdded,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    WokeUp,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import EXCLUSIVE
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase
from gpuwise.core.protocols import RateModel
from gpuwise.core.rates import alone_rates, steps_made
from gpuwise.sim.faults import NodeFault, apart
from gpuwise.sim.memory import OUT_OF_MEMORY_S, Memory

RUN, RUNNING, SUCCEEDED = Intent.RUN, Phase.RUNNING, Phase.SUCCEEDED
TICK_DIGITS, TICKS_PER_S = 6, 1e6
"""The clock ticks in microseconds: times that should be equal are equal, whatever arithmetic led to them."""


def ticked(at_s: float) -> float:
    """``round(at_s, TICK_DIGITS)`` in a third of the time; only what is close to a tie needs its care."""
    ticks = at_s * TICKS_PER_S
    if ticks < 1e13:  # above, the product is too coarse to see a tie coming
        whole = int(ticks)
        rest = ticks - whole
        if rest < 0.49:
            return whole / TICKS_PER_S
        if rest > 0.51:
            return (whole + 1) / TICKS_PER_S
    return round(at_s, TICK_DIGITS)


Entry = tuple[float, int, Event | AttemptObserved, int, int]
"""(time, sequence, what is seen then, job or -1, epoch); an entry of an older epoch is stale and is dropped."""


class VirtualExecutor:
    """Jobs advance by their true rates; nothing runs. It keeps what is truly its own: rates, progress, memory."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: NodeTable,
        truth: RateModel,
        *,
        faults: Iterable[NodeFault] = (),
        provision_s: float = 0.0,
        memory: Memory | None = None,
        repartition_s: float = 0.0,
        utilization: Sequence[float] | None = None,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._truth = truth
        self._alone = alone_rates(truth)
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
        self._attempt = [0] * len(jobs)
        self._kept: set[int] = set()
        """Jobs that have something to resume from."""
        self._now_s = 0.0
        self._placed: dict[int, Placement] = {}
        self._residents = Residents()
        self._saving: dict[tuple[int, int], float] = {}
        """Devices on which a suspended job is still saving its state, or that are being cut, and until when."""
        self._savers: dict[int, tuple[tuple[int, ...], float]] = {}
        """Jobs that are saving: on which nodes, and what an earlier save has kept."""
        self._heap: list[Entry] = []
        self._sequence = count()
        self._now: list[Event | AttemptObserved] = []
        self.lost_steps = 0.0
        for fault in apart(faults):
            name = nodes.names[fault.node]
            self._push(fault.at_s, NodeLost(fault.at_s, name))
            if math.isfinite(fault.down_s):
                back_s = fault.at_s + fault.down_s
                self._push(back_s, NodeRestored(back_s, name))

    @classmethod
    def going_on(cls, state: ClusterState, truth: RateModel) -> VirtualExecutor:
        """One that takes over from where a state is: nobody new comes, whoever runs runs on."""
        jobs = state.jobs
        executor = cls(jobs, state.nodes, truth)
        executor._arrived = len(jobs)
        executor._now_s = state.now_s
        executor._attempt = jobs.placements[: len(jobs)].tolist()
        for node in state.requested.values():  # when it will come, nobody knows
            executor._push(state.now_s, NodeAdded(state.now_s, node))
        for job in range(len(jobs)):
            done, status = jobs.steps_done.item(job), state.status(job)
            if status is Status.RUNNING:
                done = steps_made(jobs, job, state.now_s)
            executor._left[job] = max(0.0, jobs.steps.item(job) - done)
            executor._saved[job] = jobs.saved_steps.item(job)
            if job in state.placed:
                executor._take_over(state.now_s, job, state.placed[job], starting=status is Status.STARTING)
            elif status is Status.SUSPENDING:
                executor._now.append(executor._seen(state.now_s, job, Phase.SUSPENDED, done))
            if status in (Status.SUSPENDING, Status.SUSPENDED) or executor._saved[job] > 0:
                executor._kept.add(job)
        return executor

    def expect(self, events: Iterable[Event]) -> None:
        """Lets events that have nothing to do with jobs happen at their times, such as drains and claims."""
        for event in events:
            self._push(event.at_s, event)

    # -- what the engine sees ------------------------------------------------------------------------------------

    def observe(self, until_s: float | None) -> Observations | None:
        """What happens next; ends and returns come before arrivals of the same moment."""
        if self._now:
            happened, self._now = self._now, []
            return self._now_s, happened
        heap, epoch = self._heap, self._epoch
        while heap and (top := heap[0])[3] >= 0 and top[4] != epoch[top[3]]:
            heappop(heap)
        submit_s = self._submit_s[self._arrived]
        next_s = heap[0][0] if heap else math.inf
        if submit_s < next_s:
            next_s = submit_s
        if until_s is not None and until_s < next_s:
            self._now_s = until_s
            return until_s, [WokeUp(until_s)]
        if next_s == math.inf:
            return None
        self._now_s = next_s
        happened = self._due(next_s) if heap else []
        while submit_s == next_s:
            happened.append(JobSubmitted(next_s, self._arrived))
            self._arrived += 1
            submit_s = self._submit_s[self._arrived]
        if until_s == next_s:
            happened.append(WokeUp(next_s))
        return next_s, happened

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        """Takes note of what is wanted; a job that takes over devices waits until those it preempts have saved."""
        now_s, row_of, placed = self._now_s, self._jobs.row_of, self._placed
        moves: list[tuple[int, Assignment]] = []
        for each in desired:
            if type(each) is not Assignment:
                self._move(now_s, moves)
                self._change(now_s, each)
                continue
            uid, attempt, intent, placement, _, _, _, _ = each
            job = row_of[uid]
            if intent is RUN and job in placed:
                if attempt != self._attempt[job]:
                    moves.append((job, each))
                continue
            if moves:
                self._move(now_s, moves)
            if placement is not None:
                cost_s = self._resume_s(job) if self._kept and job in self._kept else 0.0
                self._begin(now_s, job, attempt, placement, cost_s)
            elif intent is Intent.SUSPEND:
                if job in placed:
                    self._suspend(now_s, job)
            elif attempt == self._attempt[job]:
                self._stop(now_s, job)
        if moves:
            self._move(now_s, moves)
        if complete:
            named = {row_of[each.job] for each in desired if isinstance(each, Assignment)}
            for job in [job for job in placed if job not in named]:
                self._stop(now_s, job)

    def _resume_s(self, job: int) -> float:
        """What loading what a job has kept costs; one that was suspended before its first step keeps nothing."""
        if not self._saved[job]:
            self._kept.discard(job)
        cost_s: float = self._jobs.resume_s.item(job)
        return cost_s

    def _move(self, now_s: float, moves: list[tuple[int, Assignment]]) -> None:
        """Moves jobs together, since they may take each other's places: all leave, then all begin."""
        had = {job: self._placed[job].gpus for job, _ in moves}
        for job, _ in moves:
            self._leave(now_s, job)
        for job, wanted in moves:
            assert wanted.placement is not None
            costs_s = self._jobs.migrate_s if wanted.placement.gpus == had[job] else self._jobs.resize_s
            self._begin(now_s, job, wanted.attempt, wanted.placement, costs_s.item(job))
        moves.clear()

    def _change(self, now_s: float, wanted: Desired) -> None:
        """Cuts a device, brings a node, or takes one away."""
        if isinstance(wanted, NodeRequest):
            at_s = now_s + self._provision_s
            if wanted.wanted:
                self._push(at_s, NodeAdded(at_s, wanted.node))
            else:
                self._push(now_s, NodeRemoved(now_s, wanted.node.name))
        if not isinstance(wanted, DeviceCut):
            return
        where = wanted.at
        self._layouts[where] = wanted.slices
        if self._repartition_s:  # a GPU is cut when those who leave it have saved
            empty_s = max(now_s, self._saving.get(where, now_s))
            self._saving[where] = ticked(empty_s + self._repartition_s)

    def placed(self) -> dict[int, Placement]:
        """What runs where."""
        return dict(self._placed)

    def _seen(self, at_s: float, job: int, phase: Phase, step: float | None = None) -> AttemptObserved:
        steps = None if step is None else self._jobs.steps.item(job)
        return AttemptObserved(at_s, self._jobs.ids[job], self._attempt[job], phase, step, steps)

    # -- jobs come and go ----------------------------------------------------------------------------------------

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
            self._now.append(self._seen(now_s, job, Phase.RUNNING))
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
            self._push(begin_s, self._seen(begin_s, job, Phase.RUNNING), job)
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
        """A job will run out of memory."""
        assert self._memory is not None
        peak = self._memory.bytes(job) * self._placed[job].gpus
        seen = self._seen(self._doomed[job], job, Phase.FAILED, self._saved[job])
        details = Details(cause=Cause.OUT_OF_MEMORY, text="out of memory", peak_memory_bytes=peak)
        seen = seen._replace(details=details)
        self._push(seen.at_s, seen, job)

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
                self._push(starts_s, self._seen(starts_s, job, Phase.RUNNING), job)
            self._push_finish(job, max(now_s, starts_s), rate)

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
        """An attempt is not wanted any more: nothing else is to be seen of it, and what it did not save is lost."""
        if job in self._savers:
            self._cut_short(job)
        if job in self._placed:
            self._lose_work(now_s, job)
        self._epoch[job] += 1
        self._savers.pop(job, None)
        uid = self._jobs.ids[job]
        self._now = [each for each in self._now if getattr(each, "job", None) not in (job, uid)]

    # -- the heap ------------------------------------------------------------------------------------------------

    def _push(self, at_s: float, seen: Event | AttemptObserved, job: int = -1) -> None:
        epoch = self._epoch[job] if job >= 0 else 0
        heappush(self._heap, (at_s, next(self._sequence), seen, job, epoch))

    def _due(self, now_s: float) -> list[Event | AttemptObserved]:
        """Takes everything that happens at ``now_s`` off the heap."""
        due: list[Event | AttemptObserved] = []
        heap = self._heap
        while heap and heap[0][0] == now_s:
            _, _, seen, job, epoch = heappop(heap)
            if job >= 0 and epoch != self._epoch[job]:
                continue
            if type(seen) is AttemptObserved:
                phase = seen.phase
                if phase is SUCCEEDED:
                    self._left[job] = 0.0
                    self._epoch[job] += 1
                    self._release(now_s, job)
                elif phase is Phase.SUSPENDED:
                    self._savers.pop(job, None)
                elif phase is Phase.FAILED:
                    self._lose_work(now_s, job)
            elif type(seen) is NodeLost:
                self._lose(now_s, seen.node)
            due.append(seen)
        return due

    def _lose(self, now_s: float, name: str | int) -> None:
        node = self._nodes.row(name)
        for job in [job for job, placement in self._placed.items() if node in placement.nodes]:
            self._lose_work(now_s, job)
        for job in [job for job, (nodes, _) in self._savers.items() if node in nodes]:
            self._cut_short(job)

    def _lose_work(self, now_s: float, job: int) -> None:
        """An attempt failed: what it has done since the last save is lost."""
        steps = self._jobs.steps.item(job)
        self._leave(now_s, job)
        self.lost_steps += steps - self._left[job] - self._saved[job]
        self._left[job] = steps - self._saved[job]

    def _cut_short(self, job: int) -> None:
        """A save that does not come to its end keeps nothing but what was saved before."""
        _, before = self._savers.pop(job)
        self.lost_steps += self._saved[job] - before
        self._saved[job] = before
        if not before:
            self._kept.discard(job)
        self._left[job] = self._jobs.steps.item(job) - before
        self._epoch[job] += 1
