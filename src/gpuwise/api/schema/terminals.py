"""The answers of the routes to terminals."""

from __future__ import annotations

from pydantic import BaseModel, Field


class TerminalHost(BaseModel):
    """Where clients can use the terminals of interactive jobs."""

    machine: str = Field(description="The boot id of the machine: a client must be on it.")
    folder: str = Field(description="The folder of the jobs there.")
    account: str = Field(description="The account that may use the terminals of your jobs; empty: the service's.")
    uid: int | None = Field(description="Its number on that machine; null: that of the service.")


class Terminal(BaseModel):
    """The terminal of an interactive job."""

    path: str = Field(description="The socket of its newest attempt, on the machine of the service.")
