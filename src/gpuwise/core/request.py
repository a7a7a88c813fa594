"""What a user submits to be run for real: a command, where to run it, and what it needs."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from gpuwise.core.errors import GpuwiseError
from gpuwise.core.spec import ANY_SHARING, JobSpec, Sharing

UNKNOWN_DURATION_S = 3600.0
"""What is believed of a job's run time when its user says nothing and it never ran before."""

MAX_ARGUMENTS, MAX_COMMAND_BYTES, MAX_ENV_BYTES, MAX_ARRAY, MAX_AFTER = 4096, 128 * 1024, 128 * 1024, 10_000, 1000
MAX_INDEX = 999_999_999
_NAME = re.compile(r"[\w.][\w.\-/:@+ ]{0,127}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_ENV = "GPUWISE_"


class Processes(enum.StrEnum):
    """How many processes a job is started as."""

    ONE = "one"
    """One, which sees all its GPUs."""
    PER_GPU = "per-gpu"
    """One a GPU, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job as its user asks for it."""

    command: tuple[str, ...]
    """Program and arguments; no shell in between."""
    workdir: str = ""
    """Folder it runs in, absolute; empty is a folder of its own."""
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    queue: str = "default"
    """Whose quota and share it counts against."""
    gpus: int = 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    gpu_frac: float = 1.0
    gpu_memory_bytes: float = 0.0
    gpu_types: tuple[str, ...] = ()
    sharing: frozenset[Sharing] = ANY_SHARING
    cpus: float = 0.0
    memory_bytes: float = 0.0
    duration_s: float | None = None
    """Declared run time; None is taken from earlier runs of the same job, else ``predicted_s``, else
    `UNKNOWN_DURATION_S`."""
    predicted_s: float | None = None
    """Run time that a predictor gives, where nothing better is known: neither declared nor measured before."""
    steps: float | None = None
    gpu_util_frac: float = math.nan
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Forecast speed on GPU types, relative to the one that ``predicted_s`` is for."""
    priority: int = 0
    deadline_s: float | None = None
    """Unix time by which it should have ended."""
    retries: int = 0
    """How often it is started again after it failed; running out of memory has retries of its own."""
    after: tuple[str, ...] = ()
    """Jobs that must have succeeded before this one may start."""
    array: tuple[int, ...] = ()
    """One job for each index, which it finds in GPUWISE_ARRAY_INDEX; empty is no array."""
    processes: Processes = Processes.ONE
    grace_s: float = 10.0
    """How long it has to leave when asked to, before it is killed."""
    time_limit_s: float | None = None
    """How long it may hold GPUs in all; then it is ended."""

    def __post_init__(self) -> None:
        _require("command", bool(self.command) and bool(self.command[0]), self.command, "a program and its arguments")
        text = [*self.command, self.workdir, *self.env, *self.env.values()]
        _require("command", len(self.command) <= MAX_ARGUMENTS, len(self.command), f"at most {MAX_ARGUMENTS} words")
        _require("command", _size(self.command) <= MAX_COMMAND_BYTES, _size(self.command), "at most 128 KiB")
        _require("command, workdir and env", not any("\0" in each for each in text), "a NUL byte", "without NUL bytes")
        _require("workdir", self.workdir == "" or self.workdir.startswith("/"), self.workdir, "an absolute path")
        _require("env", all(_ENV_NAME.fullmatch(each) for each in self.env), sorted(self.env), "names such as LR")
        reserved = [each for each in self.env if each.startswith(RESERVED_ENV)]
        _require("env", not reserved, reserved, f"names that do not begin with {RESERVED_ENV}")
        _require("env", _size((*self.env, *self.env.values())) <= MAX_ENV_BYTES, "too large", "at most 128 KiB")
        _require("name", self.name == "" or bool(_NAME.fullmatch(self.name)), self.name, "letters, digits and -_./:@+")
        _require("queue", bool(_NAME.fullmatch(self.queue)), self.queue, "letters, digits and -_./:@+")
        _require("retries", 0 <= self.retries <= 100, self.retries, "0 to 100")
        _require("after", len(self.after) <= MAX_AFTER, len(self.after), f"at most {MAX_AFTER} jobs")
        _require("array", len(self.array) <= MAX_ARRAY, len(self.array), f"at most {MAX_ARRAY} indexes")
        _require("array", len(set(self.array)) == len(self.array), "an index twice", "each index once")
        outside = [each for each in self.array if not 0 <= each <= MAX_INDEX]
        _require("array", not outside, outside[:1], f"indexes from 0 to {MAX_INDEX}")
        _require("grace_s", 0 <= self.grace_s <= 3600, self.grace_s, "0 to 3600 s")
        limit = self.time_limit_s
        _require("time_limit_s", limit is None or 0 < limit < math.inf, limit, "above 0 s")
        foreseen = self.predicted_s
        _require("predicted_s", foreseen is None or 0 < foreseen < math.inf, foreseen, "above 0 s")
        _require("priority", abs(self.priority) <= 10**6, self.priority, "between -1000000 and 1000000")
        _require("gpus", self.gpus <= 4096, self.gpus, "at most 4096")
        self.spec("job", submit_s=0.0, duration_s=1.0)

    def spec(self, uid: str, *, submit_s: float, duration_s: float, deadline_s: float = math.inf) -> JobSpec:
        """The job as policies see it; times on the controller's clock."""
        return JobSpec(
            id=uid, submit_s=submit_s, duration_s=duration_s, gpus=self.gpus, min_gpus=self.min_gpus,
            max_gpus=self.max_gpus, gpu_frac=self.gpu_frac, gpu_memory_bytes=self.gpu_memory_bytes,
            gpu_types=self.gpu_types, sharing=self.sharing, cpus=self.cpus, memory_bytes=self.memory_bytes,
            priority=self.priority, deadline_s=deadline_s, tenant=self.queue, steps=self.steps, model=self.name,
            gpu_util_frac=self.gpu_util_frac, speeds=self._speeds(duration_s),
        )  # fmt: skip

    def _speeds(self, duration_s: float) -> tuple[tuple[str, float], ...]:
        """Speeds for a run time; one that was declared or measured is for no GPU type in particular: for the middle."""
        known = [math.log(speed) for speed in self.speeds.values() if speed > 0]
        middle = 1.0 if duration_s == self.predicted_s or not known else math.exp(sum(known) / len(known))
        return tuple((name, speed / middle) for name, speed in self.speeds.items())

    def to_json(self) -> dict[str, object]:
        """As plain values; what is left at its default is left out."""
        plain: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "command" or value != JOB_REQUEST_DEFAULTS[each.name]:
                plain[each.name] = _plain(value)
        if math.isnan(self.gpu_util_frac):
            plain.pop("gpu_util_frac", None)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, object]) -> JobRequest:
        """A request from plain values, as `to_json` makes them."""
        given = dict(plain)
        for name in ("command", "gpu_types", "after", "array"):
            if name in given:
                given[name] = tuple(given[name])  # type: ignore[arg-type]
        if "sharing" in given:
            given["sharing"] = frozenset(Sharing[str(each).upper()] for each in given["sharing"])  # type: ignore[attr-defined]
        if "processes" in given:
            given["processes"] = Processes(str(given["processes"]))
        return cls(**given)  # type: ignore[arg-type]


JOB_REQUEST_DEFAULTS: dict[str, object] = {
    each.name: each.default_factory() if callable(each.default_factory) else each.default for each in fields(JobRequest)
}


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(each.name.lower() for each in value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, enum.StrEnum) else value


def _size(texts: tuple[str, ...]) -> int:
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts)


def _require(name: str, holds: bool, value: object, expected: str) -> None:
    if not holds:
        raise GpuwiseError(f"{name} is {value!r}; it must be {expected}")
