"""The virtual executor: jobs advance by their true rates on a clock that jumps from event to event."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop

from gpuwise.core.assignments import Assignment, Desired, DeviceCut, Intent, NodeRequest
from gpuwise.core.cluster.nodes import NodeTable
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.events import Event, JobSubmitted, NodeAdded, NodeLost, NodeRemoved, NodeRestored, WokeUp
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.table import JobTable
from gpuwise.core.observations import AttemptObserved, Observations, Phase
from gpuwise.core.protocols import RateModel
from gpuwise.core.rates import steps_made
from gpuwise.sim.executor.attempts import SUCCEEDED, VirtualAttempts, ticked
from gpuwise.sim.executor.failures import Memory, NodeFault, apart

RUN = Intent.RUN


class VirtualExecutor(VirtualAttempts):
    """Follows what the engine wants and reports what it would see of it; nothing runs."""

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
        super().__init__(jobs, nodes, truth, memory, utilization)
        self._provision_s = provision_s
        self._repartition_s = repartition_s
        self._now_s = 0.0
        self._submit_s: list[float] = [*jobs.submit_s[: len(jobs)].tolist(), math.inf]
        self._arrived = 0
        for fault in apart(faults):
            name = nodes.names[fault.node]
            self._push(fault.at_s, NodeLost(fault.at_s, name))
            if math.isfinite(fault.down_s):
                back_s = fault.at_s + fault.down_s
                self._push(back_s, NodeRestored(back_s, name))

    @classmethod
    def from_state(cls, state: ClusterState, truth: RateModel) -> VirtualExecutor:
        """One that continues from a state: running jobs run on, and no new ones are submitted."""
        jobs = state.jobs
        executor = cls(jobs, state.nodes, truth)
        executor._arrived = len(jobs)
        executor._now_s = state.now_s
        executor._attempt = jobs.placements[: len(jobs)].tolist()
        for node in state.requested.values():  # how long it will take is unknown
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
        """Schedules events other than those of jobs, such as drains and claims."""
        for event in events:
            self._push(event.at_s, event)

    def observe(self, until_s: float | None) -> Observations | None:
        """What happens next; jobs end and nodes return before new jobs of the same moment are submitted."""
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
        """Takes note of what is wanted; a job on devices of preempted ones waits until these are checkpointed."""
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
                self._lose_node(now_s, seen.node)
            due.append(seen)
        return due

    def _resume_s(self, job: int) -> float:
        """What loading its checkpoint costs a job; one that was suspended before its first step has none."""
        if not self._saved[job]:
            self._kept.discard(job)
        cost_s: float = self._jobs.resume_s.item(job)
        return cost_s

    def _move(self, now_s: float, moves: list[tuple[int, Assignment]]) -> None:
        """Moves jobs together, since they may swap devices: all leave, then all start."""
        had = {job: self._placed[job].gpus for job, _ in moves}
        for job, _ in moves:
            self._leave(now_s, job)
        for job, wanted in moves:
            assert wanted.placement is not None
            costs_s = self._jobs.migrate_s if wanted.placement.gpus == had[job] else self._jobs.resize_s
            self._begin(now_s, job, wanted.attempt, wanted.placement, costs_s.item(job))
        moves.clear()

    def _change(self, now_s: float, wanted: Desired) -> None:
        """Partitions a device, adds a node, or removes one."""
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
        if self._repartition_s:  # a GPU is partitioned when the jobs that leave it are checkpointed
            empty_s = max(now_s, self._saving.get(where, now_s))
            self._saving[where] = ticked(empty_s + self._repartition_s)
