"""All use cases of the running service, put together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuwise.live.controller import Controller
from gpuwise.live.local.accounts import Accounts
from gpuwise.live.local.time_slices import Switching
from gpuwise.service.live.access import Access
from gpuwise.service.live.admin import Admin
from gpuwise.service.live.audit import Audit
from gpuwise.service.live.estimates import Estimates
from gpuwise.service.live.events import EventFeed
from gpuwise.service.live.job_logs import JobLogs
from gpuwise.service.live.job_tables import JobTables
from gpuwise.service.live.jobs import Jobs
from gpuwise.service.live.notify.notifier import Notifier
from gpuwise.service.live.overview import Overview, Readings, ServiceInfo
from gpuwise.service.live.terminals import Terminals
from gpuwise.service.live.threads import WorkerPool
from gpuwise.service.live.usage import Usage


class Service:
    """What the REST API calls; logs are under ``jobs_folder``, in a folder per job."""

    def __init__(
        self,
        controller: Controller,
        jobs_folder: Path,
        estimates: Estimates,
        readings: Readings,
        info: ServiceInfo,
        switching: Callable[[], Switching],
        notifier: Notifier,
        accounts: Accounts | None = None,
    ) -> None:
        self.workers, estimators = WorkerPool("worker", 4), WorkerPool("estimator", 2)
        self.access = Access(controller.store)
        self.audit = Audit(controller)
        self.jobs = Jobs(controller, self.workers, estimators, self.audit, estimates, notifier, accounts)
        self.logs = JobLogs(jobs_folder)
        self.terminals = Terminals(self.jobs, jobs_folder)
        self.overview = Overview(controller, self.workers, estimators, estimates, readings, info, switching)
        self.tables = JobTables(controller, self.overview, self.workers, estimators, estimates)
        self.admin = Admin(controller, self.access, self.workers, self.audit)
        self.usage = Usage(controller, self.workers)
        self.feed = EventFeed(controller, self.access, self.workers)
        self._pools = (self.workers, estimators)

    def close(self) -> None:
        """Ends all streams and threads."""
        self.feed.close()
        for pool in self._pools:
            pool.close()
