"""The engine: takes events, asks the policy, checks what it says, and is the only one to change state."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gpuwise.core.capacity import OverAllocationError
from gpuwise.core.commands import (
    NOTHING,
    Command,
    Decision,
    Migrate,
    Placement,
    Rearrange,
    Reason,
    Repartition,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
    Why,
)
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import Event, JobCancelled, JobHeld, WokeUp
from gpuwise.core.jobs import ENDED, PLACED, JobTable, Status
from gpuwise.core.protocols import MakeRates, Placer, Policy
from gpuwise.core.spec import ClusterSpec, Sharing
from gpuwise.core.state import ClusterState
from gpuwise.core.units import WHOLE_GPU_MILLI
from gpuwise.core.view import ClusterView
from gpuwise.devices.mig_slices import check_cut
from gpuwise.engine.journal import Journal
from gpuwise.engine.transitions import HANDLERS, LifeCycleError


class InvalidDecisionError(GpuwiseError):
    """A policy decided what cannot be done."""


_BEGINS: dict[type[Command], int] = {Start: int(Status.PENDING), Resume: int(Status.SUSPENDED)}


class Engine:
    """One state, one policy, one journal."""

    def __init__(
        self,
        cluster: ClusterSpec,
        policy: Policy,
        *,
        placer: Placer,
        seed: int = 0,
        beliefs: MakeRates | None = None,
        jobs: JobTable | None = None,
        round_s: float | None = None,
    ) -> None:
        if round_s is not None and not (round_s > 0 and math.isfinite(round_s)):
            raise GpuwiseError(f"a round of {round_s} s; it must be above 0")
        self.policy = policy
        self.state = ClusterState(cluster, beliefs, jobs)
        self.view = ClusterView(self.state, placer)
        if hasattr(policy, "rank"):
            self.state.waiting.key = partial(policy.rank, self.view)
        self.journal = Journal(cluster, self.state.jobs, policy.name, seed)
        self.wake_at: float | None = None
        self.decide_s = array("d")
        """How long each decision took."""
        self._rng = np.random.default_rng(seed)
        self._wakes_on = policy.wakes_on | {WokeUp}
        self._round_s = round_s
        self._last: Decision = NOTHING

    def step(self, now_s: float, events: Sequence[Event]) -> Sequence[Command]:
        """Takes in what happened and returns what shall be done about it."""
        state, record = self.state, self.journal.append
        if now_s > state.now_s:
            state.now_s = now_s
        wakes = False
        follows: tuple[Command, ...] = ()
        for event in events:
            kind = type(event)
            if event.at_s < state.now_s:
                record(WokeUp(state.now_s))  # heard of late: replay must know what time it was
            consequence = self._consequence(event) if isinstance(event, (JobCancelled, JobHeld)) else ()
            HANDLERS[kind](state, event)
            record(event)
            if consequence:
                self._carry_out(consequence)
                follows += consequence
            if kind in self._wakes_on:
                wakes = True
        if not wakes:
            return follows
        if self._round_s is not None and not self._round_begins(now_s):
            return follows
        return (*follows, *self._decide()) if follows else self._decide()

    def order(self, now_s: float, commands: Sequence[Command]) -> Sequence[Command]:
        """Carries out what a person asks for, checked as a policy's decision is."""
        if now_s > self.state.now_s:
            self.state.now_s = now_s
            self.journal.append(WokeUp(now_s))
        self._carry_out(commands, by="a person")
        return commands

    def reason(self, job: int) -> Reason | None:
        """Why a job waits; None for one that does not wait."""
        status = self.state.status(job)
        if status in PLACED or status in ENDED or status is Status.DECLARED:
            return None
        if status is Status.SUSPENDING:
            return Reason(Why.STOPPING)
        if job in self.state.holds:
            return Reason(Why.HELD)
        if self._round_s is not None and self.wake_at is not None and self._last is NOTHING:
            return Reason(Why.NEXT_ROUND, {"at_s": self.wake_at})
        return self._last.reasons(job)

    def _consequence(self, event: JobCancelled | JobHeld) -> tuple[Command, ...]:
        """What follows of itself: a job that is taken back leaves no process behind, one that is held its GPUs."""
        if isinstance(event, JobHeld):
            return (Suspend(event.job),) if event.job in self.state.placed else ()
        status = self.state.status(event.job)
        return (Stop(event.job),) if status in PLACED or status in (Status.SUSPENDING, Status.SUSPENDED) else ()

    def _round_begins(self, now_s: float) -> bool:
        """Whether this is the first moment of a round; else asks to be woken at the next."""
        assert self._round_s is not None
        rounds = now_s / self._round_s
        if abs(rounds - round(rounds)) * self._round_s < 1e-6:
            return True
        self.wake_at = math.ceil(rounds) * self._round_s
        return False

    def _decide(self) -> Sequence[Command]:
        begun = perf_counter()
        decision = self.policy.decide(self.view, self._rng)
        self.decide_s.append(perf_counter() - begun)
        self._last = decision
        self.wake_at = decision.wake_at
        commands = decision.commands
        if len(commands) > 1:
            self._check_once(commands)
        if commands:
            self._carry_out(commands)
        if self._round_s is not None and (self.state.waiting or commands):
            self.wake_at = (math.floor(self.state.now_s / self._round_s + 1e-9) + 1) * self._round_s
        return commands

    def _carry_out(self, commands: Sequence[Command], by: str = "") -> None:
        state, record = self.state, self.journal.append
        for command in commands:
            kind = type(command)
            try:
                self._check(kind, command)
                if kind is Repartition and not by:  # how a machine is found to be cut needs no catalogue's leave
                    self._check_cut(command)
                HANDLERS[kind](state, command)
            except (OverAllocationError, LifeCycleError, InvalidDecisionError) as error:
                who = by or f"policy {self.policy.name!r}"
                raise InvalidDecisionError(f"{who} decided {command}: {error}") from error
            record(command)

    def _check_once(self, commands: Sequence[Command]) -> None:
        """A decision has one command for a job: what a second one finds would depend on how the first came out."""
        told: set[int] = set()
        for command in commands:
            moves = command.moves if isinstance(command, Rearrange) else ((getattr(command, "job", None), None),)
            jobs = {job for job, _ in moves if job is not None}
            if told & jobs:
                twice = self.state.jobs.ids[min(told & jobs)]
                raise InvalidDecisionError(
                    f"policy {self.policy.name!r} decided {command}: it has another command for job {twice!r}"
                )
            told |= jobs

    def _check(self, kind: type[Command], command: Any) -> None:
        """Start is for jobs that never ran or must begin again, resume for the suspended, the rest for the placed."""
        if kind in _BEGINS:
            expected = _BEGINS[kind]
            if self.state.jobs.status.item(command.job) != expected:
                raise InvalidDecisionError(
                    f"its job is {self.state.status(command.job).name}, not {Status(expected).name}"
                )
            if self.state.jobs.held.item(command.job):
                raise InvalidDecisionError("its job is held")
            self._check_placement(command.job, command.placement)
        elif kind is Rearrange:
            self._check_moves(command.moves)
        elif kind in (Migrate, Resize):
            self._check_moves(((command.job, command.placement),))
        elif kind is Suspend:
            self._check_held(command.job)
        elif kind is Repartition:
            self._check_device(command.node, command.device)

    def _check_device(self, node: int, device: int) -> None:
        nodes = self.state.nodes
        if not (0 <= node < len(nodes) and 0 <= device < nodes.gpus.item(node)):
            raise InvalidDecisionError(f"there is no device {device} on node {node}")

    def _check_cut(self, command: Any) -> None:
        nodes = self.state.nodes
        try:
            check_cut(nodes.types[nodes.type_of[command.node]], command.slices)
        except GpuwiseError as error:
            raise InvalidDecisionError(str(error)) from error

    def _check_moves(self, moves: Sequence[tuple[int, Placement]]) -> None:
        """Jobs that move hold GPUs, may have the new ones, and there is room once they have left the old."""
        trial, jobs = self.state.capacity.fork(), self.state.jobs
        for job, placement in moves:
            self._check_held(job)
            self._check_placement(job, placement)
            trial.give(self.state.placed[job], jobs.shape_of(job))
        for job, placement in moves:
            trial.take(placement, jobs.shape_of(job))

    def _check_held(self, job: int) -> None:
        if job not in self.state.placed:
            raise InvalidDecisionError("its job holds no GPUs")

    def _check_placement(self, job: int, placement: Placement) -> None:
        state = self.state
        shape = state.jobs.shape_by_row[job]
        types, type_of = state.capacity.types_for(shape), state.nodes.type_of
        for grant in placement.grants:
            if not 0 <= grant.node < len(type_of):
                raise InvalidDecisionError(f"there is no node {grant.node}")
            if type_of[grant.node] not in types:
                raise InvalidDecisionError(
                    f"job {job} may not run on GPU type {state.nodes.types[type_of[grant.node]]}"
                )
        if not shape.min_gpus <= placement.gpus <= shape.max_gpus:
            raise InvalidDecisionError(
                f"job {job} may run on {shape.min_gpus} to {shape.max_gpus} GPUs, not {placement.gpus}"
            )
        alone = placement.sharing is Sharing.EXCLUSIVE
        if not (shape.alone if alone else placement.sharing in shape.sharing):
            raise InvalidDecisionError(f"job {job} does not allow {placement.sharing.name}")
        if alone and placement.milli != WHOLE_GPU_MILLI:
            raise InvalidDecisionError(f"{placement.milli}/1000 of a GPU held alone")
        if not 1 <= placement.milli <= WHOLE_GPU_MILLI:
            raise InvalidDecisionError(f"a share of {placement.milli}/1000 of a GPU")
        if placement.sharing is Sharing.MIG:
            self._check_slices(placement)

    def _check_slices(self, placement: Placement) -> None:
        """A placement on slices says how large they are; whether they are free is for the capacity to say."""
        for node, devices, start in placement.grants:
            piece = self.state.capacity.slice_at(node, devices.bit_length() - 1, start)
            if devices.bit_count() != 1 or (piece is not None and piece.milli != placement.milli):
                raise InvalidDecisionError(f"{placement.milli}/1000 of a GPU is not a slice at {start} of one device")
