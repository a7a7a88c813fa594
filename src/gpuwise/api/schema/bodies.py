"""The bodies of requests, but for jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from gpuwise.api.schema.parameters import pattern
from gpuwise.core.errors import nearest_names
from gpuwise.core.job.needs import MOST_GPUS, MOST_SECONDS
from gpuwise.core.records import QueueRecord
from gpuwise.service.live.access import LONGEST_GRACE_S, USER_PATTERN
from gpuwise.service.live.errors import InvalidError

UserName = Annotated[str, StringConstraints(pattern=pattern(USER_PATTERN, "a name of letters, digits and _.@-"))]


class Body(BaseModel):
    """The body of a request: no unknown fields, no text for numbers, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given.keys() - cls.model_fields.keys():
                nearest = ", ".join(nearest_names(str(name), cls.model_fields))
                hint = f"; did you mean {nearest}?" if nearest else ""
                raise PydanticCustomError("unknown_field", "{text}", {"text": f"unknown field {name[:80]!r}{hint}"})
        return given


class ResizeBody(Body):
    """A new number of GPUs."""

    gpus: int = Field(ge=1, le=MOST_GPUS, description="GPUs the job continues with.", examples=[2])


class UpdateBody(Body):
    """What is to change of a job; a field that is not given stays as it is."""

    priority: int | None = Field(None, ge=-(10**15), le=10**15, description="Higher ranks first.", examples=[10])
    time_limit_s: float | None = Field(None, gt=0, le=MOST_SECONDS, description="GPU time in all; null is no limit.")
    deadline_s: float | None = Field(None, ge=0, le=1e11, description="Unix time; null is no deadline.")

    def wanted(self) -> dict[str, Any]:
        """What was given, by the names of a job's properties."""
        given = self.model_dump(exclude_unset=True)
        if given.get("priority", 0) is None:
            raise InvalidError("priority is null; it must be a whole number, and 0 is the default")
        return given


class QueueBody(Body):
    """What the jobs of a queue may use together."""

    max_gpus: float | None = Field(None, ge=0, le=1e9, description="GPUs allocated at one time; null is no limit.")
    max_jobs: int | None = Field(None, ge=0, le=10**9, description="Jobs that have not ended; null is no limit.")
    weight: float = Field(1.0, ge=1e-6, le=1e6, description="Its share when other queues wait too.")
    users: list[UserName] = Field(
        default_factory=list, max_length=10_000, description="Who may submit to it; empty is all users."
    )

    def record(self, name: str) -> QueueRecord:
        """The queue of a name with these limits."""
        return QueueRecord(
            name=name, max_gpus=self.max_gpus, max_jobs=self.max_jobs, weight=self.weight, users=tuple(self.users)
        )


class TokenBody(Body):
    """A token for a user."""

    user: UserName = Field(description="Whose it is.", examples=["ada"])
    role: Literal["admin", "user", "viewer"] = Field("user", description="What its user may do.")
    expires_in_s: float | None = Field(
        None, gt=0, le=100 * 365 * 86400.0, description="How long it is valid; null is until it is revoked."
    )


class RotateBody(Body):
    """How a token is rotated."""

    expires_in_s: float | None = Field(
        None, gt=0, le=100 * 365 * 86400.0, description="How long the new one is valid; null is as long as the old one."
    )
    grace_s: float = Field(0.0, ge=0, le=LONGEST_GRACE_S, description="How long the old one stays valid.")
