"""Job traces: readers of the formats others publish, gpuwise's own, and generators of synthetic ones."""

from gpuwise.sim.traces.errors import BadRow, TraceError
from gpuwise.sim.traces.files import FORMATS, Format, read_nodes, read_trace, trace_from_frame, write_trace
from gpuwise.sim.traces.generate import GENERATORS, generate
from gpuwise.sim.traces.schema import TRACE_SCHEMA, Column, NodeRow
from gpuwise.sim.traces.synthetic import gavel, milan, philly_like
from gpuwise.sim.traces.trace import Trace, prolong, repeat, scale_load, take

__all__ = [
    "FORMATS",
    "GENERATORS",
    "TRACE_SCHEMA",
    "BadRow",
    "Column",
    "Format",
    "NodeRow",
    "Trace",
    "TraceError",
    "gavel",
    "generate",
    "milan",
    "philly_like",
    "prolong",
    "read_nodes",
    "read_trace",
    "repeat",
    "scale_load",
    "take",
    "trace_from_frame",
    "write_trace",
]
