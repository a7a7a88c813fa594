"""How every event and command changes the state, by type."""

from __future__ import annotations

from gpuwise.core.commands import Command
from gpuwise.core.events import Event
from gpuwise.engine.node_transitions import NODE_HANDLERS
from gpuwise.engine.transitions import JOB_HANDLERS, Handler

HANDLERS: dict[type[Event] | type[Command], Handler] = {**JOB_HANDLERS, **NODE_HANDLERS}
