"""A deployment on this machine: state folder, store, devices, executor, controller, use cases."""

from __future__ import annotations

import getpass
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gpuwise.core.cluster.spec import ClusterSpec
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.table import JobTable
from gpuwise.core.records import JobRecord, TokenRecord, UserRole
from gpuwise.devices import this_machine
from gpuwise.devices.machine import Machine, Reading, Where
from gpuwise.engine.engine import Engine
from gpuwise.live.clock import Clock, Repeating
from gpuwise.live.controller import Controller
from gpuwise.live.local.accounts import Accounts
from gpuwise.live.local.attempts.launch import LaunchSpec
from gpuwise.live.local.executor import LocalExecutor
from gpuwise.live.local.supervisor.account import ROOT
from gpuwise.live.profile import Alone, Profiler, alone
from gpuwise.live.recovery import MakeEngine, damaged
from gpuwise.live.space import SpaceReserve
from gpuwise.live.submissions import JOBS_PER_USER, UserLimits
from gpuwise.policies.placing.placers import DEFAULT_PLACER, make_placer
from gpuwise.policies.placing.roles import with_roles
from gpuwise.policies.registry import make_policy
from gpuwise.predict.rates import PredictedRates
from gpuwise.predict.sharing.contention import MPS, TIME_SLICE
from gpuwise.service.live.access import Access
from gpuwise.service.live.errors import UnauthorizedError
from gpuwise.service.live.estimates import Estimates
from gpuwise.service.live.generation import MARK_EVERY_S, Generation, require_database
from gpuwise.service.live.notify.notifier import Notifier
from gpuwise.service.live.notify.settings import NotifySettings
from gpuwise.service.live.overview import ServiceInfo
from gpuwise.service.live.retention import Retention
from gpuwise.service.live.service import Service
from gpuwise.service.live.sessions import digest_of
from gpuwise.service.live.state_folder import StateFolder, default_state_folder
from gpuwise.store.sql import open_store

log = logging.getLogger("gpuwise.up")
FALLBACK_POLICY = "fifo"
TIMEOUT_S = 10.0
JOBS_ARE_ROOT = (
    "jobs of all users run as root, and can read every file of this machine, tokens of administrators among "
    "them; start gpuwise up with --as-user submitter, or --as-user ACCOUNT"
)
COVERAGE = 0.5
"""Of the lower bounds of rates. At 90 % no job could share a GPU with a model that was never measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a deployment."""

    state: Path = field(default_factory=default_state_folder)
    database: str | None = None
    """A PostgreSQL URL; None is a SQLite file in the state folder."""
    policy: str = "fifo-backfill"
    placement: str | None = None
    devices: int | None = None
    """Number of CPU stand-ins, in place of the machine's GPUs."""
    gpus: tuple[str, ...] | None = None
    """Indexes or UUIDs of the GPUs to manage; None is those of CUDA_VISIBLE_DEVICES, else all."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of this machine, by key."""
    mps: bool = False
    """Whether jobs share GPUs through MPS."""
    seed: int = 0
    round_s: float | None = None
    jobs_per_user: int = JOBS_PER_USER
    keep_days: float = 30.0
    """How long ended jobs, with their logs, are kept."""
    notify: NotifySettings = field(default_factory=NotifySettings)
    """Which addresses users may have notified of the ends of jobs."""
    coalesce_s: float = 0.005
    as_user: str | None = None
    """The account that jobs run as; ``submitter``: that of their user; None: that of the service."""

    def accounts(self) -> Accounts | None:
        """The accounts that jobs run as; None is that of the service."""
        if self.as_user is None:
            return None
        if self.mps:
            raise GpuwiseError(
                "--mps cannot be used with --as-user: an MPS daemon serves one account at a time; leave out one of them"
            )
        return Accounts(self.as_user)


class LocalDeployment:
    """A service in this process, without its REST API."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.accounts = settings.accounts()
        self.folder = StateFolder(settings.state, passable=self.accounts is not None)
        make_engine = engine_maker(
            settings.policy, settings.placement, settings.seed, settings.round_s, mps=settings.mps
        )
        with ExitStack() as parts:
            self.folder.open()
            parts.callback(self.folder.close)
            place = settings.database or self.folder.database
            require_database(self.folder.path, place)
            self.store = parts.enter_context(closing(open_store(place)))
            self.store.claim()
            self.generation = Generation(self.folder.path, self.store)
            mps = self.folder.mps if settings.mps else None
            machine = this_machine(devices=settings.devices, mps=mps, gpus=settings.gpus)
            self.machine: Machine = parts.enter_context(closing(machine))
            self.store.meta("epoch", repr(time.time()))
            self.clock = Clock(self.store.number("epoch"))
            self.controller = self._controller(make_engine)
            self.notifier = parts.enter_context(closing(self._notifier()))
            parts.callback(self.generation.mark)
            parts.enter_context(closing(Repeating("generation", MARK_EVERY_S, self.generation.mark)))
            parts.callback(self.controller.stop)
            self.service = parts.enter_context(closing(self._service(make_engine)))
            self.token = self._owner_token(self.service.access)
            self.profiler = parts.enter_context(closing(Profiler(self.measure_sole_jobs, self.controller.observe)))
            retention = Retention(self.store, self.folder.jobs, settings.keep_days)
            self.retention = parts.enter_context(closing(retention))
            self._parts = parts.pop_all()
        self.controller.start()

    def _controller(self, make_engine: MakeEngine) -> Controller:
        settings = self.settings
        try:
            secret = bytes.fromhex(self.store.meta("secret", secrets.token_hex(32)))
        except ValueError:
            raise damaged(self.store, "table meta: secret is not a hexadecimal number") from None
        self.executor = LocalExecutor(
            self.folder.path, self.machine, self.clock, self._launch_of, secret, coalesce_s=settings.coalesce_s,
            accounts=self.accounts,
        )  # fmt: skip
        return Controller(
            self.store,
            self.executor,
            ClusterSpec(tuple(replace(node, labels=(*node.labels, *settings.labels)) for node in self.machine.nodes)),
            make_engine,
            self.clock,
            fallback=engine_maker(FALLBACK_POLICY, settings.placement, settings.seed, None, mps=settings.mps),
            limits=UserLimits(settings.jobs_per_user),
            layouts=self.machine.layout(),
            space=SpaceReserve(self.folder.path),
        )

    def _notifier(self) -> Notifier:
        """Sends what is recorded when jobs end, in threads of its own."""
        has_space = self.controller.has_space
        notifier = Notifier(self.store, self.settings.notify, repr(self.clock.epoch), has_space)
        self.controller.on_notifications(notifier.wake)
        return notifier

    def _launch_of(self, uid: str) -> LaunchSpec:
        record = self.controller.live(uid)
        if record is None:
            raise GpuwiseError(f"job {uid} is not known to the controller; it cannot be launched")
        return launch_spec(record)

    def _service(self, make_engine: MakeEngine) -> Service:
        info = ServiceInfo(
            placement=self.settings.placement or DEFAULT_PLACER,
            store=self.store.place,
            notes=(*self.machine.notes, *filter(None, (self.generation.note, self.warning))),
            started_at=time.time(),
            account=owner_name(),
            jobs_run_as=self.settings.as_user or owner_name(),
        )
        estimates = Estimates(self.controller, make_engine, self.clock)
        return Service(
            self.controller, self.folder.jobs, estimates, self._read_devices, info, self.executor.switching,
            self.notifier, self.accounts,
        )  # fmt: skip

    @property
    def warning(self) -> str:
        """What the owner should know of how jobs run; empty is nothing."""
        return JOBS_ARE_ROOT if self.accounts is None and os.geteuid() == ROOT else ""

    def _read_devices(self) -> Mapping[Where, Reading]:
        running = self.controller.ask(lambda intake: self.executor.processes()).result(TIMEOUT_S)
        return self.machine.read(running)

    def measure_sole_jobs(self) -> tuple[float, Alone, Mapping[Where, Reading]]:
        """The jobs that share none of their devices, and what is measured there; nothing is if no job runs."""
        if not any(record.status == "running" for record in self.controller.live_records()):
            return self.clock.now_s(), {}, {}
        jobs = self.controller.ask(lambda intake: alone(intake.engine.state)).result(TIMEOUT_S)
        return self.clock.now_s(), jobs, self._read_devices() if jobs else {}

    def _owner_token(self, access: Access) -> str:
        """The owner's token: the one in the state folder if it is still valid, else a new one."""
        access.on_rotate = self._renew_token
        known = self.folder.token()
        if known is not None:
            with suppress(UnauthorizedError):
                access.by_secret(known)
                return known
        _, secret = access.add(owner_name(), UserRole.ADMIN)
        self.folder.write_token(secret)
        return secret

    def _renew_token(self, old: TokenRecord, secret: str) -> None:
        """Puts the secret in the state folder if it takes the place of the one there."""
        if digest_of(self.token) == old.digest:
            self.folder.write_token(secret)
            self.token = secret

    def close(self) -> None:
        """Ends the service; jobs keep running, and the next service in this folder takes them over."""
        self._parts.close()


def engine_maker(
    policy: str, placement: str | None, seed: int, round_s: float | None, *, mps: bool = False
) -> MakeEngine:
    """Makes engines with this policy and placement, which are checked at once, and predicted rates."""
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
    """What the executor needs to launch a job."""
    index = record.request.array[0] if "-" in record.uid else None
    return LaunchSpec(record.request, record.gpu_memory_bytes, index, record.user)


def owner_name() -> str:
    """The name of the user who runs the service."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "owner"
    return re.sub(r"[^\w.@-]", "_", name)[:64] or "owner"
