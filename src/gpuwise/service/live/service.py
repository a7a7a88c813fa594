"""All use cases of the running service, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuwise.live.controller import Controller
from gpuwise.live.local.time_slices import Switching
from gpuwise.service.live.access import Access
from gpuwise.service.live.admin import Admin
from gpuwise.service.live.feed import Feed
from gpuwise.service.live.job_logs import JobLogs
from gpuwise.service.live.jobs import Audit, Foresight, Jobs
from gpuwise.service.live.overview import About, Lookahead, Overview, Readings
from gpuwise.service.live.threads import Readers


class Forecasts(Foresight, Lookahead, Protocol):
    """Looks ahead: for one job that may be submitted, and for all that were."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the REST API calls."""

    access: Access
    audit: Audit
    jobs: Jobs
    logs: JobLogs
    overview: Overview
    admin: Admin
    feed: Feed
    readers: Readers
    thinkers: Readers

    @classmethod
    def of(
        cls,
        controller: Controller,
        jobs_folder: Path,
        forecasts: Forecasts,
        readings: Readings = dict,
        about: About | None = None,
        switching: Callable[[], Switching] = Switching,
    ) -> Service:
        """The use cases around a controller; logs are under ``jobs_folder``, a folder for each job."""
        access, audit = Access(controller.store), Audit(controller)
        readers, thinkers = Readers("read", 4), Readers("think", 2)
        return cls(
            access=access,
            audit=audit,
            jobs=Jobs(controller, readers, thinkers, audit, forecasts),
            logs=JobLogs(jobs_folder),
            overview=Overview(controller, readers, thinkers, forecasts, readings, about, switching),
            admin=Admin(controller, access, readers, audit),
            feed=Feed(controller, access, readers),
            readers=readers,
            thinkers=thinkers,
        )

    def close(self) -> None:
        """Ends all streams and threads."""
        self.feed.close()
        self.readers.close()
        self.thinkers.close()
