"""Nodes and devices that come, change, fail and go, and others that use them: rules for the state machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from random_policy import Dice

from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Placement
from gpuwise.core.events import (
    DeviceLost,
    DeviceRestored,
    DevicesClaimed,
    Event,
    NodeAdded,
    NodeChanged,
    NodeLost,
    NodeRemoved,
    NodeRestored,
)
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.units import GIB

numbers = st.integers(0, 10_000)
pauses = st.sampled_from([0.0, 0.0, 0.25, 1.0, 7.5])


class MachineRoom(RuleBasedStateMachine):
    """What happens to nodes; a subclass drives the engine."""

    state: Any
    policy: Any
    now_s: float
    joining: list[NodeSpec]
    unknown_nodes: int
    """How often nodes were heard of that nobody knows."""
    may_lose: set[int]

    def _pass(self, pause_s: float) -> None:
        raise NotImplementedError

    def _tell(self, *events: Event) -> None:
        raise NotImplementedError

    def _kept(self, job: int, newer: float) -> float:
        raise NotImplementedError

    def _present(self) -> list[NodeSpec]:
        return [spec for _, spec in self.state.nodes.present()]

    def _drained(self) -> list[NodeSpec]:
        return [spec for spec in self._present() if not spec.schedulable]

    def _on(self, row: int, devices: set[int] | None = None) -> list[int]:
        """Who is on a node, or on some of its devices, or still saving there."""
        held: dict[int, Placement] = {**self.state.placed, **self.state.leaving}
        if devices is None:
            return [job for job, placement in held.items() if row in placement.nodes]
        wanted = {(row, device) for device in devices}
        return [job for job, placement in held.items() if wanted & set(placement.devices())]

    # -- lost and back -------------------------------------------------------------------------------------------

    @precondition(lambda self: self._present() and len(self.state.capacity.down) < 2)
    @rule(number=numbers, newer=st.sampled_from([None, 0.0, 0.5]), pause_s=pauses, again=st.booleans())
    def lose_node(self, number: int, newer: float | None, pause_s: float, again: bool) -> None:
        """Its jobs are back in the queue; without word of what they kept, with what they last saved."""
        self._pass(pause_s)
        name = Dice([number]).one_of(self._present()).name
        row = self.state.nodes.row_of[name]
        hit = self._on(row)
        kept = {job: self._kept(job, newer or 0.0) for job in hit}
        self.may_lose.update(hit)
        lost = NodeLost(self.now_s, name, tuple(kept.items()) if newer is not None else ())
        self._tell(lost, *([lost] if again and newer is None else []))
        for job in hit:
            assert self.state.status(job) is Status.PENDING
            assert self.state.jobs.steps_done.item(job) == kept[job]

    @precondition(lambda self: self.state.capacity.down)
    @rule(number=numbers, pause_s=pauses)
    def restore_node(self, number: int, pause_s: float) -> None:
        """It is in service again, unless it was released and has only not left yet."""
        self._pass(pause_s)
        row = Dice([number]).one_of(sorted(self.state.capacity.down))
        name = self.state.nodes.names[row]
        self._tell(NodeRestored(self.now_s, name))
        assert (row in self.state.capacity.down) == (name in self.state.released)

    @precondition(lambda self: self._present() and len(self.state.capacity.lost) < 2)
    @rule(number=numbers, device=st.integers(0, 3), pause_s=pauses)
    def lose_device(self, number: int, device: int, pause_s: float) -> None:
        """Those on it wait again; those beside it on the node run on."""
        spec = Dice([number]).one_of(self._present())
        if device >= spec.gpus:
            return
        self._pass(pause_s)
        hit = set(self._on(self.state.nodes.row_of[spec.name], {device}))
        others = set(self.state.placed) - hit
        self.may_lose.update(hit)
        self.policy.dice = Dice([])
        kept = tuple((job, self._kept(job, 0.5)) for job in hit)
        self._tell(DeviceLost(self.now_s, spec.name, spec.device_id(device), kept))
        assert all(self.state.status(job) is Status.PENDING for job in hit)
        assert others <= set(self.state.placed)

    @precondition(lambda self: self.state.capacity.lost)
    @rule(pause_s=pauses)
    def restore_device(self, pause_s: float) -> None:
        self._pass(pause_s)
        row, mask = next(iter(self.state.capacity.lost.items()))
        spec = self.state.nodes.specs[row]
        self._tell(DeviceRestored(self.now_s, spec.name, spec.device_id(mask.bit_length() - 1)))

    # -- joined, changed, removed --------------------------------------------------------------------------------

    @precondition(lambda self: self.joining)
    @rule(pause_s=pauses)
    def provisioned_node_joins(self, pause_s: float) -> None:
        self._pass(pause_s)
        self._tell(NodeAdded(self.now_s, self.joining.pop(0)))

    @precondition(lambda self: len(self.state.nodes) < 6)
    @rule(gpus=st.integers(0, 6), pause_s=pauses, memory=st.sampled_from([16, 24]))
    def add_node(self, gpus: int, pause_s: float, memory: int) -> None:
        self._pass(pause_s)
        name = f"new{len(self.state.nodes)}"
        spec = NodeSpec(name=name, gpu_type="L4", gpus=gpus, gpu_memory_bytes=memory * GIB, cpus=4, uid=name)
        self._tell(NodeAdded(self.now_s, spec), NodeAdded(self.now_s, spec))

    @precondition(lambda self: len(self._present()) > 2)
    @rule(number=numbers, pause_s=pauses)
    def remove_node(self, number: int, pause_s: float) -> None:
        self._pass(pause_s)
        name = Dice([number]).one_of(self._present()).name
        hit = self._on(self.state.nodes.row_of[name])
        self.may_lose.update(hit)
        self._tell(NodeRemoved(self.now_s, name), NodeRemoved(self.now_s, name))
        assert all(self.state.status(job) is Status.PENDING for job in hit)

    @precondition(lambda self: self.state.released)
    @rule(pause_s=pauses)
    def released_node_leaves(self, pause_s: float) -> None:
        self._pass(pause_s)
        name = min(self.state.released)
        assert not self._on(self.state.nodes.row_of[name])
        self._tell(NodeRemoved(self.now_s, name))
        assert name not in self.state.released

    @precondition(lambda self: self.state.nodes.removed)
    @rule(number=numbers, pause_s=pauses)
    def node_returns(self, number: int, pause_s: float) -> None:
        """Under its name, in the row it had."""
        self._pass(pause_s)
        row = Dice([number]).one_of(sorted(self.state.nodes.removed))
        self._tell(NodeAdded(self.now_s, self.state.nodes.specs[row]))
        assert row not in self.state.nodes.removed
        assert len(set(self.state.nodes.names)) == len(self.state.nodes)

    @precondition(lambda self: self._present())
    @rule(number=numbers, pause_s=pauses, uid=st.booleans())
    def another_machine_under_the_name(self, number: int, pause_s: float, uid: bool) -> None:
        self._pass(pause_s)
        spec = Dice([number]).one_of(self._present())
        new = replace(spec, uid=f"{spec.uid}x" if uid else spec.uid)
        hit = self._on(self.state.nodes.row_of[spec.name]) if uid and spec.uid else []
        self.may_lose.update(hit)
        self._tell(NodeAdded(self.now_s, new))
        assert all(self.state.status(job) is Status.PENDING for job in hit)

    @precondition(lambda self: self._present())
    @rule(number=numbers, order=st.permutations(range(6)), count=st.integers(0, 6), pause_s=pauses)
    def change_devices(self, number: int, order: list[int], count: int, pause_s: float) -> None:
        """Those on devices that went wait again; the others run on, whatever the index of their devices."""
        self._pass(pause_s)
        spec = Dice([number]).one_of(self._present())
        row = self.state.nodes.row_of[spec.name]
        ids = tuple(f"{spec.name}-{each}" for each in order[:count])
        new = replace(spec, gpus=count, device_ids=ids)
        gone = set(range(spec.gpus)) - spec.kept_devices(new).keys()
        hit = self._on(row, gone)
        staying = {job: (at.gpus, at.tasks) for job, at in self.state.placed.items() if job not in hit}
        self.may_lose.update(hit)
        self.policy.dice = Dice([])
        self._tell(NodeChanged(self.now_s, new))
        assert all(self.state.status(job) is Status.PENDING for job in hit)
        assert {job: (self.state.placed[job].gpus, self.state.placed[job].tasks) for job in staying} == staying

    @precondition(lambda self: self._present() and len(self._drained()) < 2)
    @rule(number=numbers, pause_s=pauses)
    def drain(self, number: int, pause_s: float) -> None:
        """Who is there stays; nobody new comes."""
        self._pass(pause_s)
        self._set_schedulable(Dice([number]).one_of(self._present()), False)

    @precondition(lambda self: self._drained())
    @rule(pause_s=pauses)
    def end_a_drain(self, pause_s: float) -> None:
        self._pass(pause_s)
        self._set_schedulable(self._drained()[0], True)

    def _set_schedulable(self, spec: NodeSpec, schedulable: bool) -> None:
        placed = dict(self.state.placed)
        self.policy.dice = Dice([])
        self._tell(NodeChanged(self.now_s, replace(spec, schedulable=schedulable)))
        assert self.state.placed == placed

    # -- others --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._present())
    @rule(
        number=numbers,
        parked=st.booleans(),
        claims=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 4.0, 14.0]), st.booleans()), max_size=3),
        cpus=st.sampled_from([0.0, 3.0, 100.0]),
        pause_s=pauses,
    )
    def others_use_a_node(
        self, number: int, parked: bool, claims: list[tuple[int, float, bool]], cpus: float, pause_s: float
    ) -> None:
        """Nobody is driven out by it; saying it again changes nothing. Some of it may be what a parked job keeps."""
        self._pass(pause_s)
        spec = Dice([number]).one_of(self._present())
        per_device = {device: (memory * GIB, exclusive) for device, memory, exclusive in claims if device < spec.gpus}
        devices = tuple((spec.device_id(device), *use) for device, use in per_device.items())
        placed = dict(self.state.placed)
        self.policy.dice = Dice([])
        suspended = [job for job in range(len(self.state.jobs)) if self.state.status(job) is Status.SUSPENDED]
        uid = self.state.jobs.ids[Dice([number]).one_of(suspended)] if parked and suspended else ""
        kept = tuple((uid, device, memory) for device, memory, _ in devices if uid and memory)
        claimed = DevicesClaimed(self.now_s, spec.name, devices, cpus, cpus * GIB, kept)
        self._tell(claimed, claimed)
        assert self.state.placed == placed

    @precondition(lambda self: self.unknown_nodes < 2)
    @rule(pause_s=pauses)
    def hear_of_nodes_that_nobody_knows(self, pause_s: float) -> None:
        self._pass(pause_s)
        self.unknown_nodes += 1
        before = (list(self.state.nodes.names), dict(self.state.placed))
        self.policy.dice = Dice([])
        self._tell(
            NodeLost(self.now_s, "nobody"),
            NodeRestored(self.now_s, "nobody"),
            NodeRemoved(self.now_s, "nobody"),
            NodeChanged(self.now_s, NodeSpec(name="nobody", gpu_type="T4", gpus=1)),
            DeviceLost(self.now_s, "nobody", "x"),
            DeviceRestored(self.now_s, "a0", "x"),
            DevicesClaimed(self.now_s, "nobody"),
        )
        assert (self.state.nodes.names, self.state.placed) == before
