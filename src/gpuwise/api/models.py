"""What clients send."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from gpuwise.core.errors import GpuwiseError, nearest_names
from gpuwise.core.records import QueueRecord, Role
from gpuwise.core.request import MAX_AFTER, MAX_ARGUMENTS, MAX_ARRAY, JobRequest
from gpuwise.service.access import USER_PATTERN
from gpuwise.service.joblogs import UID_PATTERN
from gpuwise.service.refusals import InvalidError

MOST_BYTES = 2.0**60
MOST_SECONDS = 1e10
MOST_STEPS = 1e15
NAME_PATTERN = r"[\w.][\w.\-/:@+ ]{0,127}"

Word = Annotated[str, StringConstraints(max_length=131_072, pattern=r"^[^\x00]*$")]
ShortWord = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
Uid = Annotated[str, StringConstraints(pattern=f"^{UID_PATTERN}$")]
UserName = Annotated[str, StringConstraints(pattern=f"^{USER_PATTERN}$")]
Bytes = Annotated[float, Field(ge=0, le=MOST_BYTES)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Index = Annotated[int, Field(ge=0, le=10**9)]
Sharing = Literal["exclusive", "time_slice", "shared", "mig"]
ALL_SHARING: tuple[Sharing, ...] = ("exclusive", "time_slice", "shared", "mig")


class Body(BaseModel):
    """A body of a request: no field that is not known, no text for numbers, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _know_fields(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given.keys() - cls.model_fields.keys():
                nearest = ", ".join(nearest_names(str(name), cls.model_fields))
                hint = f"; did you mean {nearest}?" if nearest else ""
                raise PydanticCustomError("unknown_field", "{text}", {"text": f"unknown field {name[:80]!r}{hint}"})
        return given


class JobBody(Body):
    """A job to be run. Only the command is needed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"command": ["python", "train.py"], "workdir": "/home/ada/vision", "gpus": 1, "duration_s": 3600},
                {"command": ["./sweep.sh"], "name": "sweep", "array": [0, 1, 2], "gpu_frac": 0.5, "retries": 1},
            ]
        }
    )

    command: list[Word] = Field(
        min_length=1, max_length=MAX_ARGUMENTS, description="Program and arguments; no shell in between."
    )
    workdir: str = Field("", max_length=4096, description="Folder it runs in, absolute; empty is a folder of its own.")
    env: dict[str, Word] = Field(
        default_factory=dict, description="Variables of its environment; names may not begin with GPUWISE_."
    )
    name: str = Field("", pattern=f"^({NAME_PATTERN})?$", description="What its user calls it.")
    queue: str = Field("default", pattern=f"^{NAME_PATTERN}$", description="Whose quota and share it counts against.")
    gpus: int = Field(1, ge=0, le=4096, description="GPUs it needs, all at once.")
    min_gpus: int | None = Field(None, ge=0, le=4096, description="An elastic job runs on this many or more.")
    max_gpus: int | None = Field(None, ge=0, le=4096, description="An elastic job runs on this many or fewer.")
    gpu_frac: float = Field(1.0, gt=0, le=1, description="Part of a GPU it needs; below 1 only with one GPU.")
    gpu_memory_bytes: Bytes = Field(0.0, description="Memory on each GPU; 0 is unknown.")
    gpu_types: list[ShortWord] = Field(
        default_factory=list, max_length=64, description="GPU types it may run on; none is any."
    )
    sharing: list[Sharing] = Field(
        default_factory=lambda: list(ALL_SHARING),
        min_length=1,
        max_length=4,
        description="How it may hold a GPU.",
    )
    cpus: float = Field(0.0, ge=0, le=1e6, description="CPU cores of the whole job.")
    memory_bytes: Bytes = Field(0.0, description="Memory of the node, of the whole job.")
    duration_s: Seconds | None = Field(None, description="Run time its user expects; null is taken from earlier runs.")
    predicted_s: Seconds | None = Field(
        None, description="Run time that a predictor gives; used if none is declared and it never ran before."
    )
    steps: float | None = Field(None, gt=0, le=MOST_STEPS, description="Training steps in all.")
    gpu_util_frac: float | None = Field(None, ge=0, le=1, description="Expected use of its GPUs when it is alone.")
    speeds: dict[ShortWord, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Expected speed on GPU types, relative to the one that predicted_s is for.",
    )
    priority: int = Field(0, ge=-(10**6), le=10**6, description="Higher comes first, within what the policy allows.")
    deadline_s: float | None = Field(None, ge=0, le=1e11, description="Unix time by which it should have ended.")
    retries: int = Field(0, ge=0, le=100, description="How often it is started again after it failed.")
    after: list[Uid] = Field(
        default_factory=list, max_length=MAX_AFTER, description="Jobs that must have succeeded before it may start."
    )
    array: list[Index] = Field(
        default_factory=list,
        max_length=MAX_ARRAY,
        description="One job for each index, which it finds in GPUWISE_ARRAY_INDEX.",
        json_schema_extra={"uniqueItems": True},
    )
    processes: Literal["one", "per-gpu"] = Field("one", description="Started once, or once for each GPU.")
    grace_s: float = Field(10.0, ge=0, le=3600, description="Time to leave when asked to, before it is killed.")
    time_limit_s: Seconds | None = Field(None, description="How long it may hold GPUs in all.")

    NULL_IS_UNSAID: ClassVar[frozenset[str]] = frozenset(("gpu_util_frac",))

    def request(self) -> JobRequest:
        """The request, checked as a whole."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name in self.NULL_IS_UNSAID & given.keys():
            if given[name] is None:
                del given[name]
        try:
            return JobRequest.from_json(given)
        except GpuwiseError as error:
            raise InvalidError(str(error).removeprefix("job 'job': ")) from error


class ResizeBody(Body):
    """Another number of GPUs."""

    gpus: int = Field(ge=1, le=4096, description="GPUs the job goes on with.", examples=[2])


class QueueBody(Body):
    """What the jobs of a queue may use together."""

    max_gpus: float | None = Field(None, ge=0, le=1e9, description="GPUs held at one time; null is no limit.")
    max_jobs: int | None = Field(None, ge=0, le=10**9, description="Jobs that have not ended; null is no limit.")
    weight: float = Field(1.0, ge=1e-6, le=1e6, description="Its share when other queues wait too.")
    users: list[UserName] = Field(
        default_factory=list, max_length=10_000, description="Who may submit to it; empty is everybody."
    )

    def record(self, name: str) -> QueueRecord:
        """The queue of a name with these limits."""
        return QueueRecord(
            name=name, max_gpus=self.max_gpus, max_jobs=self.max_jobs, weight=self.weight, users=tuple(self.users)
        )


class TokenBody(Body):
    """A token for somebody."""

    user: UserName = Field(description="Whose it is.", examples=["ada"])
    role: Literal["admin", "user", "viewer"] = Field("user", description="What its holder may do.")
    expires_in_s: float | None = Field(
        None, gt=0, le=100 * 365 * 86400.0, description="How long it is good for; null is until it is revoked."
    )

    def wanted_role(self) -> Role:
        """The role as the core knows it."""
        return Role(self.role)


class SessionBody(Body):
    """A token, to be exchanged for a cookie."""

    token: str = Field(max_length=200, description="The secret of a token.")
