"""Log-in to the page: the body and the answers."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from gpuwise.api.schema.bodies import Body
from gpuwise.service.live.access import Access, Principal


class SessionBody(Body):
    """A token or a log-in code, to be exchanged for a session."""

    token: str | None = Field(None, max_length=200, description="The secret of a token.")
    code: str | None = Field(None, max_length=200, description="A log-in code, which works once.")

    @model_validator(mode="after")
    def _one(self) -> SessionBody:
        if (self.token is None) == (self.code is None):
            raise ValueError("it must have a token or a code")
        return self

    def principal(self, access: Access) -> Principal:
        """Who logs in."""
        return access.by_token(self.token) if self.token is not None else access.by_code(self.code or "")


class Session(BaseModel):
    """A session of the page."""

    user: str
    role: str
    secret: str = Field(description="Shown once, and not stored. Valid until log-out or expires_at.")
    expires_at: float


class LogInCode(BaseModel):
    """A code that logs in once."""

    code: str
    expires_at: float
