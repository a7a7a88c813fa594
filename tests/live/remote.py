"""A cluster far away, as its executor sees it: late, twice, out of order; and what really runs there, watched.

Pods stand for attempts. The executor notes what is wanted at once, as the contract asks; the cluster follows some time
later, and what it reports arrives later still. The cluster itself is the observer: it checks at every start of a
process that nothing runs twice and no device is given away twice, whatever the controller believes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpuwise.core.assignments import Assignment, Desired, Intent, Where
from gpuwise.core.cluster.spec import NodeSpec
from gpuwise.core.commands import Placement
from gpuwise.core.events import Event, NodeAdded, NodeLost, NodeRestored
from gpuwise.core.job.needs import Sharing
from gpuwise.core.observations import AttemptObserved, Cause, Details, Observations, Phase, RankStatus

Device = tuple[str, str]


@dataclass(frozen=True)
class Trouble:
    """How often things go wrong, and until when."""

    until_s: float = 120.0
    refuse: float = 0.15
    half_gang: float = 0.3
    fail: float = 0.15
    twice: float = 0.3
    lose_node_every_s: float = 40.0
    late_s: float = 3.0
    bad_node: str = ""
    """A node that refuses every start, for as long as the world stands."""


@dataclass
class Pod:
    """One attempt of a job, rank by rank."""

    job: str
    attempt: int
    placement: Placement
    ranks: dict[Device, Phase] = field(default_factory=dict)
    """STARTING until its process runs."""
    running_since_s: float = math.nan
    leaving: Phase | None = None
    """What it will have been when it is gone."""
    gone: bool = False


class RemoteCluster:
    """An executor, and the cluster behind it."""

    def __init__(
        self, rng: random.Random, nodes: Sequence[NodeSpec], work_of: Callable[[str], float], trouble: Trouble
    ) -> None:
        self.now_s = 0.0
        self.nodes = {node.name: node for node in nodes}
        self.dead: set[str] = set()
        self.finished: dict[str, int] = {}
        """How often each job did all its work; more than once if its node was lost before that could be told."""
        self.counted: dict[str, int] = dict.fromkeys(("refused", "half gangs", "failures", "nodes lost"), 0)
        self._rng = rng
        self._work_of = work_of
        self._trouble = trouble
        self._desired: dict[str, Assignment] = {}
        self._pods: list[Pod] = []
        self._over: dict[tuple[str, int], AttemptObserved] = {}
        """How attempts ended, to be told again when asked."""
        self._saved: dict[str, float] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._mail: list[Event | AttemptObserved] = []
        self._nodes_told_s = 0.0
        self._woken = False
        if trouble.lose_node_every_s < math.inf:
            self._at(self._rng.uniform(5, trouble.lose_node_every_s), self._lose_a_node)

    # -- the contract ---------------------------------------------------------------------------------------------

    def follow(self, desired: Sequence[Desired], complete: bool = False) -> None:
        if complete:
            self._desired.clear()
        for each in desired:
            if isinstance(each, Assignment):
                self._desired[each.job] = each
        named = [each.job for each in desired if isinstance(each, Assignment)]
        for job in dict.fromkeys([*named, *(pod.job for pod in self._pods)] if complete else named):
            self._at(self._late(), lambda job=job: self._reconcile(job))
        if complete:
            for name in self.nodes:
                self._tell_node(NodeLost(self.now_s, name) if name in self.dead else self._joined(name))

    def observe(self, until_s: float | None) -> Observations | None:
        if self._woken:
            self._woken = False
            return self._hand_over()
        end_s = math.inf if until_s is None else max(until_s, self.now_s)
        while not self._mail:
            if not self._heap or self._heap[0][0] > end_s:
                if end_s == math.inf:
                    return None
                self.now_s = end_s
                break
            self.now_s, _, act = heapq.heappop(self._heap)
            act()
        return self._hand_over()

    def wake(self) -> None:
        self._woken = True

    def close(self) -> None:
        """A cluster goes on when nobody watches it."""

    def _hand_over(self) -> Observations:
        mail, self._mail = self._mail, []
        return self.now_s, mail

    # -- pods follow what is wanted -------------------------------------------------------------------------------

    def _reconcile(self, job: str) -> None:
        want = self._desired.get(job)
        pods = [pod for pod in self._pods if pod.job == job]
        for pod in pods:
            if want is None or want.intent is Intent.STOP:
                self._leave(pod, Phase.STOPPED)
            elif want.intent is Intent.SUSPEND:
                self._leave(pod, Phase.SUSPENDED)
            elif pod.attempt != want.attempt:
                self._leave(pod, Phase.MOVED)
        if want is None or pods or want.intent is Intent.STOP:
            return
        if (told := self._over.get((job, want.attempt))) is not None:
            self._tell(told)
        elif want.intent is Intent.SUSPEND or want.started:
            lost = Details(cause=Cause.LOST, text="nothing is left of it")
            phase = Phase.SUSPENDED if want.intent is Intent.SUSPEND else Phase.FAILED
            self._end(job, want.attempt, phase, lost)
        else:
            self._create(want)

    def _create(self, want: Assignment) -> None:
        assert want.placement is not None
        devices = [(each.node, device) for each in want.where for device in each.devices]
        missing = [node for node, device in devices if not self._has(node, device)]
        missing += [node for node, _ in devices if node == self._trouble.bad_node]
        if missing or self._happens(self._trouble.refuse):
            self.counted["refused"] += 1
            nodes = tuple(sorted(set(missing or [devices[0][0]])))
            details = Details(cause=Cause.UNAVAILABLE, text="the node does not take it", avoid=nodes)
            self._end(want.job, want.attempt, Phase.REFUSED, details)
            return
        if any(not self._is_free_for(each, want.placement) for each in devices):
            self._at(self.now_s + 0.5, lambda: self._reconcile(want.job))  # whoever is there is on its way out
            return
        pod = Pod(want.job, want.attempt, want.placement, dict.fromkeys(devices, Phase.STARTING))
        self._pods.append(pod)
        stuck = self._rng.choice(devices) if len(devices) > 1 and self._happens(self._trouble.half_gang) else None
        for device in devices:
            if device != stuck:
                self._at(self._late(), lambda device=device: self._start_rank(pod, device))
        if stuck is not None:
            self.counted["half gangs"] += 1
            self._at(self.now_s + 2 * self._trouble.late_s, lambda: self._give_up(pod, stuck))

    def _start_rank(self, pod: Pod, device: Device) -> None:
        if pod.gone or pod.leaving is not None:
            return
        others = [other for other in self._pods if other is not pod and not other.gone]
        assert all(other.job != pod.job for other in others), f"job {pod.job} runs twice at once"
        here = [other for other in others if other.ranks.get(device) is Phase.RUNNING]
        assert all(_may_share(other.placement, pod.placement) for other in here), f"{device} is given away twice"
        assert sum(other.placement.milli for other in (pod, *here)) <= 1000, f"{device} is over-allocated"
        assert self._has(*device), f"{device} is not there"
        pod.ranks[device] = Phase.RUNNING
        if any(phase is not Phase.RUNNING for phase in pod.ranks.values()):
            self._tell(self._seen(pod, Phase.STARTING))
            return
        pod.running_since_s = self.now_s
        self._tell(self._seen(pod, Phase.RUNNING, self._saved.get(pod.job, 0.0)))
        left_s = max(0.0, self._work_of(pod.job) - self._saved.get(pod.job, 0.0))
        if self._happens(self._trouble.fail):
            self._at(self.now_s + self._rng.uniform(0, left_s), lambda: self._fail(pod))
        self._at(self.now_s + left_s, lambda: self._finish(pod))

    def _give_up(self, pod: Pod, stuck: Device) -> None:
        """Half of a gang is of no use: all of it is taken back."""
        if not pod.gone and pod.leaving is None:
            self._remove(pod)
            details = Details(cause=Cause.UNAVAILABLE, text=f"rank on {stuck[1]} never came up", avoid=(stuck[0],))
            self._end(pod.job, pod.attempt, Phase.REFUSED, details)

    def _finish(self, pod: Pod) -> None:
        if not pod.gone and pod.leaving in (None, Phase.MOVED, Phase.SUSPENDED):
            self.finished[pod.job] = self.finished.get(pod.job, 0) + 1
            self._remove(pod)
            self._end(pod.job, pod.attempt, Phase.SUCCEEDED)

    def _fail(self, pod: Pod) -> None:
        if not pod.gone and pod.leaving is None:
            self.counted["failures"] += 1
            self._remove(pod)
            self._end(pod.job, pod.attempt, Phase.FAILED, Details(text="exit code 1", exit_code=1))

    def _leave(self, pod: Pod, as_what: Phase) -> None:
        """A pod has a moment to save its state; what is wanted of it may change meanwhile."""
        if pod.leaving is None:
            self._at(self._late(), lambda: self._left(pod))
        if pod.leaving is not Phase.STOPPED:
            pod.leaving = as_what

    def _left(self, pod: Pod) -> None:
        if pod.gone:
            return
        assert pod.leaving is not None
        if pod.leaving is not Phase.STOPPED and pod.running_since_s == pod.running_since_s:
            done = self._saved.get(pod.job, 0.0) + self.now_s - pod.running_since_s
            self._saved[pod.job] = min(done, self._work_of(pod.job))
        self._remove(pod)
        self._end(pod.job, pod.attempt, pod.leaving)
        self._at(self._late(), lambda: self._reconcile(pod.job))

    def _remove(self, pod: Pod) -> None:
        pod.gone = True
        self._pods.remove(pod)

    def _end(self, job: str, attempt: int, phase: Phase, details: Details | None = None) -> None:
        known = replace(details or Details(), started_s=self.now_s)
        kept, work = self._saved.get(job, 0.0), self._work_of(job)
        seen = AttemptObserved(self.now_s, job, attempt, phase, kept, work, known)
        self._over[job, attempt] = seen
        self._tell(seen)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _lose_a_node(self) -> None:
        if self.now_s > self._trouble.until_s:
            return
        alive = sorted(self.nodes.keys() - self.dead)
        if len(alive) > 1:
            self.counted["nodes lost"] += 1
            self._kill_node(self._rng.choice(alive))
        self._at(self.now_s + self._rng.uniform(5, self._trouble.lose_node_every_s), self._lose_a_node)

    def _kill_node(self, name: str) -> None:
        self.dead.add(name)
        for pod in [pod for pod in self._pods if any(node == name for node, _ in pod.ranks)]:
            self._remove(pod)
            if self._happens(0.5):  # else nobody is left to say so
                self._end(pod.job, pod.attempt, Phase.FAILED, Details(cause=Cause.NODE_LOST, text=f"{name} was lost"))
        self._tell_node(NodeLost(self.now_s, name))
        self._at(self.now_s + self._rng.uniform(1, 20), lambda: self._revive(name))

    def _revive(self, name: str) -> None:
        """A node comes back: as it was, or as another machine with other devices."""
        self.dead.discard(name)
        if self._happens(0.5):
            self._tell_node(NodeRestored(self.now_s, name))
            return
        number, gpus = next(self._sequence), self._rng.choice([2, 4])
        ids = tuple(f"{name}-{number}-{each}" for each in range(gpus))
        self.nodes[name] = replace(self.nodes[name], uid=f"{name}.{number}", gpus=gpus, device_ids=ids)
        self._tell_node(self._joined(name))

    def _joined(self, name: str) -> Event:
        return NodeAdded(self.now_s, self.nodes[name])

    def _tell_node(self, event: Event) -> None:
        """What happens to nodes is told late and sometimes twice, but in order, as a watch on them does."""
        self._nodes_told_s = max(self._nodes_told_s, self._late())
        for _ in range(1 + self._happens(self._trouble.twice)):
            self._at(self._nodes_told_s, lambda: self._mail.append(event))

    # -- messages -------------------------------------------------------------------------------------------------

    def _tell(self, seen: AttemptObserved) -> None:
        self._at(self._late(), lambda: self._mail.append(seen))
        if self._happens(self._trouble.twice):
            self._at(self._late() + self._late() - self.now_s, lambda: self._mail.append(seen))

    def _seen(self, pod: Pod, phase: Phase, step: float | None = None) -> AttemptObserved:
        ranks = tuple(RankStatus(rank, each, node) for rank, ((node, _), each) in enumerate(pod.ranks.items()))
        where = tuple(Where(node, (device,)) for node, device in pod.ranks)
        details = Details(ranks=ranks, where=where, started_s=self.now_s)
        return AttemptObserved(self.now_s, pod.job, pod.attempt, phase, step, self._work_of(pod.job), details)

    def _has(self, node: str, device: str) -> bool:
        spec = self.nodes.get(node)
        return spec is not None and node not in self.dead and device in {spec.device_id(i) for i in range(spec.gpus)}

    def _is_free_for(self, device: Device, placement: Placement) -> bool:
        here = [pod for pod in self._pods if device in pod.ranks]
        shared = all(_may_share(pod.placement, placement) and pod.leaving is None for pod in here)
        return shared and sum(pod.placement.milli for pod in here) + placement.milli <= 1000

    def _late(self) -> float:
        return self.now_s + self._rng.uniform(0, self._trouble.late_s)

    def _happens(self, how_often: float) -> bool:
        return self.now_s < self._trouble.until_s and self._rng.random() < how_often

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (round(at_s, 6), next(self._sequence), act))

    @property
    def is_idle(self) -> bool:
        return not self._pods


def _may_share(one: Placement, other: Placement) -> bool:
    return one.sharing is other.sharing is not Sharing.EXCLUSIVE
