"""What clients send."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gpuwise.api.schema.body_base import Body
from gpuwise.api.schema.job_body import JobBody
from gpuwise.api.schema.patterns import pattern
from gpuwise.core.job.needs import MOST_GPUS
from gpuwise.core.records import QueueRecord, UserRole
from gpuwise.service.live.access import USER_PATTERN

__all__ = ["JobBody", "QueueBody", "ResizeBody", "SessionBody", "TokenBody"]

UserName = Annotated[str, StringConstraints(pattern=pattern(USER_PATTERN, "a name of letters, digits and _.@-"))]


class ResizeBody(Body):
    """Another number of GPUs."""

    gpus: int = Field(ge=1, le=MOST_GPUS, description="GPUs the job goes on with.", examples=[2])


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

    def wanted_role(self) -> UserRole:
        """The role as the core knows it."""
        return UserRole(self.role)


class SessionBody(Body):
    """A token, to be exchanged for a cookie."""

    token: str = Field(max_length=200, description="The secret of a token.")
