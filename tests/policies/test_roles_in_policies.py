"""Every policy and every placement runs jobs with roles beside plain ones to the end, with whole gangs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import cluster, job, node, started
from gpuwise.core.commands import Command, Migrate, Placement, Rearrange, Resize, Resume, Start
from gpuwise.core.job.life_cycle import Status
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.shape import Shape
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.engine.journal import replay
from gpuwise.policies.placing.placers import PLACERS
from gpuwise.policies.registry import OWN
from gpuwise.service.offline.simulate import simulate
from gpuwise.sim.results.result import SimulationResult
from gpuwise.sim.traces.files import read_trace

SMALL = cluster(
    node("g0", 4, "A100", cpus=16.0, memory_bytes=64.0 * GIB, gpu_memory_bytes=40.0 * GIB, labels=(("rack", "r0"),)),
    node("g1", 4, "A100", cpus=16.0, memory_bytes=64.0 * GIB, gpu_memory_bytes=40.0 * GIB, labels=(("rack", "r1"),)),
    node("c0", 0, "", cpus=32.0, memory_bytes=64.0 * GIB, labels=(("rack", "r1"),)),
)


def gang(id: str, at: float, *roles: Role, **more: Any) -> JobSpec:
    low, high = (sum(role.count_range[end] * role.gpus for role in roles) for end in (0, 1))
    gpus = sum(role.count * role.gpus for role in roles)
    return job(id, 40.0, gpus, at, min_gpus=low, max_gpus=high, roles=roles, **more)


def workload() -> list[JobSpec]:
    """Plain jobs and gangs by turns, more than the cluster holds at once."""
    worker, ps = Role("worker", 2, gpus=1, cpus=2.0), Role("ps", 1, cpus=4.0, memory_bytes=4.0 * GIB)
    jobs = []
    for turn in range(6):
        at = 15.0 * turn
        jobs += [
            job(f"plain{turn}", 30.0, 1 + turn % 3, at, gpu_util_frac=0.4, cpus=2.0),
            gang(f"gang{turn}", at + 1, worker, ps, priority=turn),
            gang(f"one{turn}", at + 2, Role("worker", 1, gpus=1, cpus=1.0), Role("ps", 2, cpus=6.0)),
            job(f"small{turn}", 20.0, 1, at + 3, gpu_frac=0.5, gpu_util_frac=0.3),
            gang(f"part{turn}", at + 4, Role("worker", 1, gpus=1), Role("ps", 1, cpus=1.0), gpu_frac=0.5),
        ]
    jobs.append(gang("pairs", 20.0, Role("worker", 2, gpus=2, cpus=4.0), Role("chief", 1, gpus=1, cpus=1.0)))
    jobs.append(gang("elastic", 25.0, Role("worker", 2, 1, 4, gpus=1), Role("ps", 1, 1, 2, cpus=2.0)))
    jobs.append(gang("servers", 30.0, Role("ps", 3, cpus=8.0)))
    jobs.append(gang("rack", 35.0, worker, Role("ps", 1, cpus=14.0), within="rack"))
    jobs.append(gang("alone", 40.0, worker, ps, sharing=frozenset((Sharing.EXCLUSIVE,))))
    return jobs


def placements(commands: list[Command]) -> list[tuple[int, Placement]]:
    found: list[tuple[int, Placement]] = []
    for each in commands:
        if isinstance(each, (Start, Resume, Migrate, Resize)):
            found.append((each.job, each.placement))
        elif isinstance(each, Rearrange):
            found += each.moves
    return found


def check_whole(placement: Placement, shape: Shape) -> None:
    """Counts the tasks of each role, and the GPUs on each node, anew."""
    of = {role.name: role for role in shape.roles}
    for role in shape.roles:
        low, high = role.count_range
        assert low <= sum(task.number for task in placement.tasks if task.role == role.name) <= high
    for row in placement.nodes if shape.roles else ():
        given = sum(grant.devices.bit_count() for grant in placement.grants if grant.node == row)
        assert given == sum(task.number * of[task.role].gpus for task in placement.tasks if task.node == row)
    assert all(task.role in of for task in placement.tasks)


def check(result: SimulationResult) -> None:
    state = result.engine.state
    status = {state.jobs.ids[row]: state.status(row) for row in range(len(state.jobs))}
    assert {name: each for name, each in status.items() if each is not Status.SUCCEEDED} == {}
    records = [each for each in result.engine.journal.records if isinstance(each, Command)]
    made = placements(records)
    for row, placement in made:  # an attempt is whole from its first moment to its last: only a command changes it
        check_whole(placement, state.jobs.shape_of(row))
    with_roles = {row for row in range(len(state.jobs)) if state.jobs.shape_of(row).roles}
    assert {row for row, at in made if at.tasks} == with_roles
    whole = replay(result.engine.journal.lines())
    assert not whole.placed
    assert whole.capacity.free_cpus.tolist() == [spec.cpus for _, spec in whole.nodes.present()]


@pytest.mark.parametrize("policy", sorted(OWN))
def test_every_policy_runs_gangs_to_the_end(policy: str) -> None:
    # Where all GPUs are cut at once, gangs run on those that cannot be.
    uncut = [replace(each, gpu_type=each.gpu_type and "V100") for each in SMALL.nodes]
    spec = (
        cluster(*uncut, node("a0", 2, "A100", cpus=8.0, gpu_memory_bytes=40.0 * GIB)) if "static" in policy else SMALL
    )
    check(simulate(workload(), spec, policy))


@pytest.mark.parametrize("placement", sorted(PLACERS))
def test_every_placement_places_gangs(placement: str) -> None:
    check(simulate(workload(), SMALL, "srtf", placement=placement))


def test_a_gang_that_can_never_be_whole_is_too_large() -> None:
    too_many = gang("x", 0.0, Role("worker", 1, gpus=1), Role("ps", 20, cpus=4.0))
    with pytest.raises(Exception, match="does not have even when it is empty"):
        simulate([too_many], SMALL, "fifo")


def test_a_gang_waits_until_all_of_it_has_room() -> None:
    def servers(id: str, at: float) -> JobSpec:
        return gang(id, at, Role("worker", 1, gpus=1), Role("ps", 1, cpus=30.0))

    assert started(simulate([servers("a", 0.0), servers("b", 1.0)], SMALL, "fifo")) == {"a": 0.0, "b": 40.0}


def test_jobs_without_gpus_run_at_their_declared_rate() -> None:
    result = simulate([gang("servers", 0.0, Role("ps", 3, cpus=8.0))], SMALL, "fifo")
    assert result.engine.state.jobs.finish_s.item(0) == 40.0


def test_a_trace_carries_roles_into_a_simulation(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "id,submit_s,duration_s,gpus,min_gpus,max_gpus,roles\n"
        'a,0,10,2,2,2,"worker:2,gpus=1,cpus=2|ps:1,cpus=30"\n'
        "b,1,10,1,1,1,\n"
        'c,2,10,1,1,1,"worker:1,gpus=1|ps:1,cpus=30"\n'
    )
    result = simulate(read_trace(path), SMALL, "fifo")
    assert started(result) == {"a": 0.0, "b": 1.0, "c": 10.0}  # only one node has 30 CPUs
    state = result.engine.state
    assert [role.name for role in state.jobs.shape_of(0).roles] == ["worker", "ps"]
