"""A cluster on which a draft has everything to consider, and any operations to try on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from random_policy import LAYOUTS

from builders import HALVES, Scripted, cluster, job, mig, node, on
from gpuwise.core.commands import Grant, Placement, TaskGrant
from gpuwise.core.decision.draft import Draft
from gpuwise.core.events import (
    DevicesClaimed,
    Event,
    JobHeld,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    NodeChanged,
    WokeUp,
)
from gpuwise.core.job.needs import Role, Sharing
from gpuwise.core.job.spec import JobSpec
from gpuwise.core.units import GIB
from gpuwise.engine.engine import Engine
from gpuwise.policies.placing.placement import first_fit
from gpuwise.policies.placing.roles import with_roles

NODES, DEVICES = 5, 2
SHARES = (Sharing.EXCLUSIVE, Sharing.SHARED, Sharing.TIME_SLICE)
SPECS = [
    *(
        node(f"n{row}", DEVICES, "A100", cpus=8.0, memory_bytes=32.0 * GIB, gpu_memory_bytes=40.0 * GIB)
        for row in range(NODES - 1)
    ),
    node("c0", 0, "", cpus=8.0, memory_bytes=32.0 * GIB),
]
WORKERS = (
    Role("worker", 2, 1, 3, gpus=1, cpus=1.0, memory_bytes=4.0 * GIB),
    Role("ps", 1, 1, 2, cpus=3.0, memory_bytes=8.0 * GIB),
)
PAIRS = (Role("chief", 1, gpus=1, cpus=1.0), Role("worker", 1, gpus=2, cpus=2.0), Role("ps", 1, cpus=2.0))
JOBS, PLAIN, PAIRS_ROW = 9, range(6), 7


def gang(id: str, roles: tuple[Role, ...]) -> JobSpec:
    """A job whose GPUs are those of its roles."""
    low, high = (sum(role.count_range[end] * role.gpus for role in roles) for end in (0, 1))
    gpus = sum(role.count * role.gpus for role in roles)
    return job(id, 100.0, gpus, min_gpus=low, max_gpus=high, gpu_memory_bytes=4.0 * GIB, roles=roles)


def crowded(happened: list[Event]) -> Engine:
    """Jobs 0 to 2 and 6 run, 3 is suspended, the others wait; 6 to 8 have roles, a GPU is cut; then things happen."""
    jobs = [
        job(
            f"j{row}", 100.0, 1 + row % 2, min_gpus=1, max_gpus=2, cpus=2.0, memory_bytes=8.0 * GIB,
            gpu_memory_bytes=(4.0, 4.0, 15.0)[row % 3] * GIB,
        )
        for row in PLAIN
    ]  # fmt: skip
    jobs += [gang("j6", WORKERS), gang("j7", PAIRS), gang("j8", WORKERS)]
    engine = Engine(cluster(*SPECS), Scripted(), placer=with_roles(first_fit))
    engine.step(0.0, [JobSubmitted(0.0, row) for row in engine.state.jobs.declare(jobs)])
    half = on((0, 0), sharing=Sharing.SHARED, milli=500)
    begun = ((0, half), (1, None), (2, half), (3, on((2, 0))), (6, None))
    engine.policy.script = [
        lambda draft: ([draft.start(*each) for each in begun], draft.cut(2, 1, HALVES)),
        lambda draft: draft.suspend(3),
    ]
    engine.step(0.0, [WokeUp(0.0)])
    engine.step(1.0, [*(JobStarted(1.0, row) for row, _ in begun), WokeUp(1.0)])
    engine.step(1.0, [JobSuspended(1.0, 3, 0.0), *happened])
    return engine


# -- what happens ------------------------------------------------------------------------------------------------------

nodes = st.integers(0, NODES - 1)
device_claims = st.lists(
    st.tuples(st.integers(0, DEVICES - 1), st.sampled_from([0.0, 20.0, 38.0]), st.booleans()),
    max_size=2, unique_by=lambda claim: claim[0],
)  # fmt: skip


def _claimed(row: int, claims: list[tuple[int, float, bool]], cpus: float, memory: float) -> Event:
    spec = SPECS[row]
    devices = tuple((spec.device_id(each), used * GIB, alone) for each, used, alone in claims if each < spec.gpus)
    return DevicesClaimed(1.0, spec.name, devices, cpus, memory * GIB)


happenings = st.lists(
    st.one_of(
        st.builds(lambda row: NodeChanged(1.0, replace(SPECS[row], schedulable=False)), nodes),
        st.builds(_claimed, nodes, device_claims, st.sampled_from([0.0, 4.0, 7.0]), st.sampled_from([0.0, 20.0])),
        st.builds(lambda row: JobHeld(1.0, row, "user"), st.integers(0, JOBS - 1)),
    ),
    max_size=4,
)
"""Nodes are drained, others use devices, CPUs and memory, jobs are held."""

# -- what is tried -----------------------------------------------------------------------------------------------------

devices = st.lists(
    st.tuples(st.integers(0, NODES - 2), st.integers(0, DEVICES - 1)), min_size=1, max_size=3, unique=True
)
shares = st.tuples(st.sampled_from(SHARES), st.sampled_from([250, 500, 1000]))


def _shared(where: list[tuple[int, int]], how: tuple[Sharing, int]) -> Placement:
    return on(*where, sharing=how[0], milli=how[1] if how[0] else 1000)


def _workers(where: list[tuple[int, int]], how: tuple[Sharing, int], servers: list[int]) -> Placement:
    """A worker on each device, and parameter servers."""
    placement = _shared(where, how)
    workers = [TaskGrant("worker", grant.node, grant.devices.bit_count()) for grant in placement.grants]
    return placement._replace(tasks=(*workers, *(TaskGrant("ps", row, servers.count(row)) for row in set(servers))))


def _pairs(first: int, second: int, server: int) -> Placement:
    """A chief on one node, a worker on both GPUs of another."""
    tasks = (TaskGrant("chief", first, 1), TaskGrant("worker", second, 1), TaskGrant("ps", server, 1))
    return Placement((Grant(first, 1), Grant(second, 3)), tasks=tasks)


places = st.tuples(
    st.one_of(
        st.builds(_shared, devices, shares),
        st.builds(lambda piece: mig(2, 1, *piece), st.sampled_from([(0, 429), (5, 143)])),
    ),
    st.builds(_workers, devices, shares, st.lists(nodes, min_size=1, max_size=2)),
    st.builds(_pairs, *(st.integers(0, NODES - 2) for _ in range(2)), nodes),
)
"""A placement for each kind of job: without roles, with `WORKERS`, with `PAIRS`."""
picks = st.integers(0, 10 * JOBS)
operations: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("start"), picks, st.none() | places),
    st.tuples(st.just("suspend"), picks),
    st.tuples(st.just("keep"), picks),
    st.tuples(st.just("move"), picks, st.none() | places),
    st.tuples(st.just("resize"), picks, st.integers(1, 3)),
    st.tuples(st.just("resize_roles"), picks, st.fixed_dictionaries(
        {}, optional={"worker": st.integers(1, 3), "ps": st.integers(1, 2)})),
    st.tuples(st.just("swap"), picks, picks),
    st.tuples(st.just("rearrange"), st.dictionaries(picks, st.none() | places, min_size=1, max_size=3)),
    st.tuples(
        st.just("time_slice"), picks, st.sampled_from([0.0, 30.0]), st.none() | devices, st.sampled_from([0.25, 0.5])
    ),
    st.tuples(st.just("cut"), st.just(2), st.just(1), st.sampled_from([(), HALVES, *LAYOUTS])),
    st.one_of(st.just(("provision", node("new", 1))), st.tuples(st.just("release"), nodes)),
)  # fmt: skip
plans = st.lists(st.one_of(operations, st.just(("mark",)), st.just(("rollback",))), min_size=5, max_size=25)


def concrete(draft: Draft, what: str, *more: Any) -> tuple[Any, ...]:
    """An operation on jobs to which it may be done, if there are any: what was drawn says which, and where to."""
    if what in ("cut", "provision", "release"):
        return (what, *more)
    rows = [row for row in range(JOBS) if _may(draft, what, row)] or [JOBS - 1]
    if what == "rearrange":
        drawn = {rows[pick % len(rows)]: at for pick, at in more[0].items()}
        return what, {row: _place(draft, row, at) for row, at in drawn.items()}
    row = rows[more[0] % len(rows)]
    if what == "swap":
        return what, row, rows[more[1] % len(rows)]
    if what == "start" and more[1] is None:
        return what, row
    if what in ("start", "move"):
        return what, row, _place(draft, row, more[1])
    return what, row, *more[1:]


def _may(draft: Draft, what: str, row: int) -> bool:
    """Whether it is worth a try; jobs that are held, or that still save their state, are tried too."""
    here = draft.placement(row) is not None
    if what == "keep":
        return not here and row in draft.view.placed
    return not here if what == "start" else here or what == "time_slice"


def _place(draft: Draft, row: int, at: tuple[Placement, Placement, Placement] | None) -> Placement:
    """The placement of the job's kind; none drawn is where it was before this draft."""
    if at is None:
        return draft.view.placed.get(row) or on((0, 1))
    return at[0] if row in PLAIN else at[2] if row == PAIRS_ROW else at[1]
