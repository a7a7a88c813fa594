"""The placements by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuwise.core.errors import UnknownNameError
from gpuwise.core.job.table import JobTable
from gpuwise.core.protocols import Placer
from gpuwise.policies.placing.fragmentation import FragmentationDescent, typical_classes
from gpuwise.policies.placing.least_left import least_left
from gpuwise.policies.placing.placement import best_fit, consolidated, first_fit, spread, worst_fit
from gpuwise.policies.placing.random_fit import RandomFit
from gpuwise.policies.placing.roles import with_roles

DEFAULT_PLACER = "best-fit"

Maker = Callable[[JobTable, int], Placer]
"""Makes a placer for the mix of jobs in a table and a seed."""

PLACERS: Mapping[str, tuple[str, Maker]] = {
    "best-fit": (
        "the node with the least room that is enough; larger gangs take empty nodes and one more",
        lambda *_: best_fit,
    ),
    "first-fit": ("the first node with room; larger gangs take empty nodes and one more", lambda *_: first_fit),
    "worst-fit": ("the node with the most room; larger gangs take empty nodes and one more", lambda *_: worst_fit),
    "consolidated": (
        "the fewest nodes possible now: splits a gang rather than keep it waiting",
        lambda *_: consolidated,
    ),
    "least-left": (
        "the node with the least CPUs and GPUs left, for jobs that need much of both",
        lambda *_: least_left,
    ),
    "spread": ("as many nodes as there are GPUs asked for", lambda *_: spread),
    "fgd": (
        "fragmentation gradient descent: where the typical job loses least room, for fractions of GPUs",
        lambda jobs, _: FragmentationDescent(typical_classes(jobs)),
    ),
    "random": ("any node that has room", lambda _, seed: RandomFit(seed)),
}


def make_placer(name: str, jobs: JobTable, seed: int = 0) -> Placer:
    """The placement of that name, for the mix of jobs in a table; it also places jobs with roles."""
    try:
        _, maker = PLACERS[name]
    except KeyError:
        raise UnknownNameError("placement", name, PLACERS) from None
    return with_roles(maker(jobs, seed))
