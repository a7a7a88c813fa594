"""Puts the running service together: state folder, store, devices, executor, controller, use cases."""

from __future__ import annotations

import getpass
import logging
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.table import JobTable
from gpuwise.core.records import JobRecord, Role
from gpuwise.core.spec import ClusterSpec
from gpuwise.devices.machine import Machine, Reading, Where, this_machine
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock
from gpuwise.live.controller import Controller
from gpuwise.live.local.attempts.launch import LaunchSpec
from gpuwise.live.local.executor import LocalExecutor
from gpuwise.live.profile import Alone, Profiler, alone
from gpuwise.live.recovery import MakeEngine
from gpuwise.live.submissions import JOBS_PER_USER, UserLimits
from gpuwise.policies.placing.placers import DEFAULT_PLACER, make_placer
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.predict.rates import PredictedRates
from gpuwise.predict.sharing.contention import MPS, TIME_SLICE
from gpuwise.service.live.access import Access, digest_of
from gpuwise.service.live.estimates import Estimates
from gpuwise.service.live.overview import About
from gpuwise.service.live.service import Service
from gpuwise.service.live.state_folder import StateFolder, default_state_folder
from gpuwise.service.live.upkeep import Upkeep
from gpuwise.store.sql import open_store

log = logging.getLogger("gpuwise.up")
FALLBACK_POLICY = "fifo"
PATIENCE_S = 10.0
COVERAGE = 0.5
"""Of the lower ends of rates. At 90 % nothing may be beside a model that was never measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a service is to run."""

    state: Path = field(default_factory=default_state_folder)
    database: str | None = None
    """A PostgreSQL URL; None is a SQLite file in the state folder."""
    policy: str = "fifo-backfill"
    placement: str | None = None
    devices: int | None = None
    """So many CPU stand-ins in place of the machine's GPUs."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of this machine, by key."""
    mps: bool = False
    """Whether jobs that share a GPU do so through MPS."""
    seed: int = 0
    round_s: float | None = None
    jobs_per_user: int = JOBS_PER_USER
    keep_days: float = 30.0
    """How long ended jobs, with their logs, are kept."""
    coalesce_s: float = 0.005


class _Closing(Protocol):
    def close(self) -> None: ...


Part = TypeVar("Part", bound=_Closing)


class LocalDeployment:
    """A service that runs in this process, but for its REST API."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = StateFolder(settings.state)
        make_engine = engine_maker(
            settings.policy, settings.placement, settings.seed, settings.round_s, mps=settings.mps
        )
        with ExitStack() as parts:
            self.folder.open()
            parts.callback(self.folder.close)
            self.store = self._closing(parts, open_store(settings.database or self.folder.database))
            self.store.claim()
            self.machine: Machine = self._closing(parts, self._find_machine())
            self.clock = Clock(float(self.store.meta("epoch", repr(time.time()))))
            self.controller = self._controller(make_engine)
            parts.callback(self.controller.stop)
            self.service = self._service(make_engine)
            parts.callback(self.service.close)
            self.token = self._owner_token(self.service.access)
            self.profiler = self._closing(parts, Profiler(self._look, self.controller.observe))
            self.upkeep = self._closing(parts, Upkeep(self.store, self.folder.jobs, settings.keep_days))
            self._parts = parts.pop_all()
        self.controller.start()

    @staticmethod
    def _closing(parts: ExitStack, part: Part) -> Part:
        parts.callback(part.close)
        return part

    def _find_machine(self) -> Machine:
        return this_machine(devices=self.settings.devices, mps=self.folder.mps if self.settings.mps else None)

    def _controller(self, make_engine: MakeEngine) -> Controller:
        settings = self.settings
        secret = bytes.fromhex(self.store.meta("secret", secrets.token_hex(32)))
        self.executor = LocalExecutor(
            self.folder.path, self.machine, self.clock, self._launch_of, secret, coalesce_s=settings.coalesce_s
        )
        return Controller(
            self.store,
            self.executor,
            ClusterSpec(tuple(replace(node, labels=(*node.labels, *settings.labels)) for node in self.machine.nodes)),
            make_engine,
            self.clock,
            fallback=engine_maker(FALLBACK_POLICY, settings.placement, settings.seed, None, mps=settings.mps),
            limits=UserLimits(settings.jobs_per_user),
            layouts=self.machine.layout(),
        )

    def _launch_of(self, uid: str) -> LaunchSpec:
        record = self.controller.live(uid)
        if record is None:
            raise GpuwiseError(f"job {uid} is not in the books; it cannot be launched")
        return launch_spec(record)

    def _service(self, make_engine: MakeEngine) -> Service:
        about = About(
            placement=self.settings.placement or DEFAULT_PLACER,
            store=self.store.place,
            notes=tuple(self.machine.notes),
            started_at=time.time(),
        )
        estimates = Estimates(self.controller, make_engine, self.clock)
        return Service.of(
            self.controller, self.folder.jobs, estimates, self._read_devices, about, self.executor.switching
        )

    def _read_devices(self) -> Mapping[Where, Reading]:
        running = self.controller.ask(lambda intake: self.executor.processes()).result(PATIENCE_S)
        return self.machine.read(running)

    def _look(self) -> tuple[float, Alone, Mapping[Where, Reading]]:
        """Who is alone on which devices, and what these do; a service without jobs is left in peace."""
        if not any(record.status == "running" for record in self.controller.live_records()):
            return self.clock.now_s(), {}, {}
        jobs = self.controller.ask(lambda intake: alone(intake.engine.state)).result(PATIENCE_S)
        return self.clock.now_s(), jobs, self._read_devices() if jobs else {}

    def _owner_token(self, access: Access) -> str:
        """The owner's token: the one in the state folder if it is still good, else a new one."""
        known = self.folder.token()
        if known is not None and any(
            token.digest == digest_of(known) and token.revoked_at is None for token in access.tokens()
        ):
            return known
        _, secret = access.add(owner_name(), Role.ADMIN)
        self.folder.keep_token(secret)
        return secret

    def close(self) -> None:
        """Ends the service; jobs go on, and the next service in this folder takes them over."""
        self._parts.close()


def engine_maker(
    policy: str, placement: str | None, seed: int, round_s: float | None, *, mps: bool = False
) -> MakeEngine:
    """How engines are made: with this policy and placement, checked at once, and rates as predictors see them."""
    make_policy(policy)
    beliefs = partial(PredictedRates, coverage=COVERAGE, shared_by=MPS if mps else TIME_SLICE)

    def make(cluster: ClusterSpec) -> Engine:
        chosen, jobs = make_policy(policy), JobTable()
        own = getattr(chosen, "placer", None) if placement is None else None
        placer = with_roles(own) if own is not None else make_placer(placement or DEFAULT_PLACER, jobs, seed)
        return Engine(cluster, chosen, placer=placer, seed=seed, jobs=jobs, round_s=round_s, beliefs=beliefs)

    make(ClusterSpec(()))
    return make


def launch_spec(record: JobRecord) -> LaunchSpec:
    """What the executor needs to know of a job."""
    index = record.request.array[0] if "-" in record.uid else None
    return LaunchSpec(record.request, record.gpu_memory_bytes, index)


def owner_name() -> str:
    """What the person who runs the service is called."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "owner"
    return re.sub(r"[^\w.@-]", "_", name)[:64] or "owner"
