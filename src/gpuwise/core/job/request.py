"""What a user submits to be run for real: a command, where to run it, and what it needs."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from gpuwise.core.job.needs import MOST_SECONDS, Forecast, JobNeeds, Source
from gpuwise.core.job.notify import ADDRESS, is_address, masked
from gpuwise.core.job.property import Property, PropertyError
from gpuwise.core.job.schema import check, entries, plain, revive
from gpuwise.core.job.spec import JobSpec, check_together

UNKNOWN_DURATION_S = 3600.0
"""What is assumed of a job's run time when its user says nothing and it never ran before."""

MAX_ARGUMENTS, MAX_COMMAND_BYTES, MAX_ENV_BYTES, MAX_ARRAY, MAX_AFTER = 4096, 128 * 1024, 128 * 1024, 10_000, 1000
MAX_INDEX = 999_999_999
NAME_PATTERN = r"[\w.][\w.\-/:@+ ]{0,127}"
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_ENV = "GPUWISE_"


class Processes(enum.StrEnum):
    """How many processes a job is started as."""

    ONE = "one"
    """One, which sees all its GPUs."""
    PER_GPU = "per-gpu"
    """One per GPU, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set."""


GRACE_S = 10.0
"""How long a job has between SIGTERM and SIGKILL, unless it says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(JobNeeds):
    """A job as its user asks for it."""

    # fmt: off
    command: Annotated[tuple[str, ...], Property(
        help="Program and arguments; no shell in between.", noun="words", most=MAX_ARGUMENTS, option="command",
        written='a list of words such as ["python", "train.py"], or one line',
    )]
    workdir: Annotated[str, Property(
        help="Folder it runs in, absolute; empty is a folder of its own.", noun="an absolute path", most=4096,
        pattern=r"/[^\x00]*", option="workdir", metavar="DIR",
        option_help="Where it runs; the folder you are in. Empty is one of its own.", written="a folder",
    )] = ""
    env: Annotated[Mapping[str, str], Property(
        help="Variables of its environment; names may not begin with GPUWISE_.", option="env", metavar="KEY[=VALUE]",
        option_help="A variable for the job; KEY alone copies yours.",
        written='names with values, such as LR = "0.1"', secret=True,
    )] = field(default_factory=dict, repr=False)
    name: Annotated[str, Property(
        help="What its user calls it.", noun="letters, digits and -_./:@+", pattern=NAME_PATTERN, option="name",
        option_help="What the job is called.", written="letters, digits and -_./:@+",
    )] = ""
    queue: Annotated[str, Property(
        help="Whose quota and share it counts against.", noun="letters, digits and -_./:@+", pattern=NAME_PATTERN,
        option="queue", option_help="The queue it counts against.", written="the name of a queue",
    )] = "default"
    duration_s: Annotated[float | None, Property(
        help="Run time its user expects; none is taken from earlier runs of the same command.", unit="s", low=0,
        above=True, high=MOST_SECONDS, option="duration", metavar="TIME",
        option_help="How long it will run, such as 2h; else from earlier runs.",
        written="a time such as 90, 30m, 2h or 1d",
    )] = None
    predicted_s: Annotated[float | None, Property(
        help="Run time that a predictor gives; used if none is declared and it never ran before.", unit="s", low=0,
        above=True, high=MOST_SECONDS,
    )] = None
    predicted_low_s: Annotated[float | None, Property(
        help="Lower end of the forecast of predicted_s.", unit="s", low=0, high=MOST_SECONDS
    )] = None
    predicted_high_s: Annotated[float | None, Property(
        help="Upper end of the forecast of predicted_s.", unit="s", low=0, high=MOST_SECONDS
    )] = None
    deadline_s: Annotated[float | None, Property(
        help="Unix time by which it should have ended.", unit="s", low=0, high=1e11, option="deadline", metavar="WHEN",
        option_help="When it should have ended: 2030-01-31T18:00, or +6h.",
        written="a moment such as 2030-01-31T18:00, or a time from now such as +6h",
    )] = None
    after: Annotated[tuple[str, ...], Property(
        help="Jobs that must have succeeded before it may start; afterany:ID waits for an end, afternotok:ID for a "
        "failure.", noun="jobs", most=MAX_AFTER, option="after", metavar="ID,ID",
        option_help="Jobs that must have succeeded before; or afterany:ID, afternotok:ID.",
        written="ids of jobs, such as 17,18 or afterany:17",
    )] = ()
    array: Annotated[tuple[int, ...], Property(
        help="One job for each index, which it finds in GPUWISE_ARRAY_INDEX.", noun="indexes", low=0, high=MAX_INDEX,
        most=MAX_ARRAY, option="array", metavar="INDEXES",
        option_help="A task for each of 0-9, 0,3,7, or 10 of them; 0-99%4 runs 4 at one time.",
        written="a number of tasks such as 10, or indexes such as 0-9 or 0,3,7, with at most 4 at one time as in 0-9%4",
    )] = ()
    array_limit: Annotated[int, Property(
        help="Tasks of the array that may run at one time; 0 is no limit.", low=0, high=MAX_ARRAY
    )] = 0
    begin_s: Annotated[float | None, Property(
        help="Unix time before which it is not started.", unit="s", low=0, high=1e11, option="begin", metavar="WHEN",
        option_help="Not to start before: 2030-01-31T18:00, or +6h.",
        written="a moment such as 2030-01-31T18:00, or a time from now such as +6h",
    )] = None
    processes: Annotated[Processes, Property(
        help="Started once, or once for each GPU.", option="processes", metavar="one|per-gpu",
        option_help="One process, or one per GPU.", written="one or per-gpu",
    )] = Processes.ONE
    time_limit_s: Annotated[float | None, Property(
        help="How long it may have GPUs in all; then it is ended.", unit="s", low=0, above=True, high=MOST_SECONDS,
        option="time_limit", metavar="TIME", option_help="How long it may have GPUs in all.",
        written="a time such as 12h",
    )] = None
    grace_s: Annotated[float, Property(
        help="Time to leave when asked to, before it is killed.", unit="s", low=0, high=3600, option="grace",
        metavar="TIME", option_help="How long it has to leave before it is killed.", written="a time such as 30s",
    )] = GRACE_S
    terminal: Annotated[str, Property(
        help="How a client uses it while it runs: pty:ROWSxCOLUMNS or pipe, as gpuwise run does; empty is not at all.",
        noun="pty:24x80 or pipe", pattern=r"pipe|pty:[1-9][0-9]{0,3}x[1-9][0-9]{0,3}",
    )] = ""
    notify: Annotated[tuple[str, ...], Property(
        help="Addresses that are notified when it has ended, once for all tasks of an array: webhooks, "
        "or mailto:name@host.", noun="addresses", most=4, option="notify", metavar="URL",
        option_help="A webhook, or mailto:you@host, to notify when it has ended; may be repeated.",
        written=ADDRESS, secret=True,
    )] = ()
    # fmt: on

    def __post_init__(self) -> None:
        check(self)
        check_together(self)
        _require("command", bool(self.command) and bool(self.command[0]), self.command, "a program and its arguments")
        text = [*self.command, self.workdir, *self.env, *self.env.values()]
        _require("command", _size(self.command) <= MAX_COMMAND_BYTES, _size(self.command), "at most 128 KiB")
        _require("command, workdir and env", not any("\0" in each for each in text), "a NUL byte", "without NUL bytes")
        misnamed = sorted(each for each in self.env if not ENV_NAME.fullmatch(each))
        _require("env", not misnamed, misnamed, "names such as LR")
        reserved = [each for each in self.env if each.startswith(RESERVED_ENV)]
        _require("env", not reserved, reserved, f"names that do not begin with {RESERVED_ENV}")
        _require("env", _size((*self.env, *self.env.values())) <= MAX_ENV_BYTES, "too large", "at most 128 KiB")
        _require("queue", bool(self.queue), self.queue, "the name of a queue")
        alone = not (self.array or self.roles or self.retries) and self.processes is Processes.ONE
        wrong = next((each for each in self.notify if not is_address(each)), None)
        _require("notify", wrong is None, masked(wrong or ""), ADDRESS)
        _require("terminal", alone or not self.terminal, self.terminal, "for one process without retries")

    @property
    def predicted(self) -> Forecast | None:
        """What a predictor says of its run time."""
        if self.predicted_s is None:
            return None
        low, high = (math.nan if end is None else end for end in (self.predicted_low_s, self.predicted_high_s))
        return Forecast(self.predicted_s, low, high, Source.PREDICTED)

    def spec(self, uid: str, *, submit_s: float, duration_s: float | Forecast, deadline_s: float = math.inf) -> JobSpec:
        """The job as policies see it; times on the controller's clock."""
        duration = duration_s if isinstance(duration_s, Forecast) else Forecast(duration_s)
        needs = {name: getattr(self, name) for name in entries(JobNeeds)}
        needs["speeds"] = self._speeds(duration.value)
        return JobSpec(
            id=uid, submit_s=submit_s, duration_s=duration.value, duration_low_s=duration.low,
            duration_high_s=duration.high, duration_source=duration.source, deadline_s=deadline_s, tenant=self.queue,
            **needs,
        )  # fmt: skip

    def _speeds(self, duration_s: float) -> tuple[tuple[str, float], ...]:
        """Speeds for a run time; one that was declared or measured is for no GPU type in particular: for the middle."""
        known = [math.log(speed) for _, speed in self.speeds if speed > 0]
        middle = 1.0 if duration_s == self.predicted_s or not known else math.exp(sum(known) / len(known))
        return tuple((name, speed / middle) for name, speed in self.speeds)

    def to_json(self) -> dict[str, Any]:
        """As plain values; what is left at its default is left out."""
        return plain(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> JobRequest:
        """A request from plain values, as `to_json` makes them; GPUs may be left to the roles."""
        values = dict(given)
        if values.get("roles") and "gpus" not in values:
            roles = entries(cls)["roles"].revive(values["roles"])
            values["gpus"] = sum(role.count * role.gpus for role in roles)
            for name, end in (("min_gpus", 0), ("max_gpus", 1)):
                total = sum(role.count_range[end] * role.gpus for role in roles)
                if total != values["gpus"]:
                    values.setdefault(name, total)
        return revive(cls, values)


def _size(texts: tuple[str, ...]) -> int:
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts)


def _require(name: str, met: bool, value: object, expected: str) -> None:
    if not met:
        raise PropertyError(name, value, expected)
