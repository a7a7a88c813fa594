"""The trace formats gpuwise reads, and how a file is recognized by its content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwise.sim.traces import gavel, native, openb, philly, pollux, sacct, tiresias
from gpuwise.sim.traces.errors import TraceError, shown
from gpuwise.sim.traces.rows import Reading
from gpuwise.sim.traces.source import Source


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format: how to tell it from the start of a file, and how to read it."""

    name: str
    description: str
    sniff: Callable[[str], bool]
    read: Callable[[Source], Reading]


def _has(*columns: str) -> Callable[[str], bool]:
    """Recognize a CSV whose header has all these columns."""

    def sniff(head: str) -> bool:
        return set(columns) <= _header(head)

    return sniff


def _header(head: str) -> set[str]:
    return {field.strip().strip('"') for field in head.lstrip().split("\n", 1)[0].split(",")}


def _is_native(head: str) -> bool:
    return bool({"submit_s", "duration_s"} & _header(head))


def _is_parquet(head: str) -> bool:
    return head.startswith("PAR1")


def _is_philly_json(head: str) -> bool:
    return head.lstrip().startswith("[") and '"attempts"' in head


# In the order they are tried: Muri's and Chronus' headers hold Tiresias' columns too.
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format("gpuwise", "gpuwise's own CSV: submit_s, duration_s, gpus and more", _is_native, native.read_native_csv),
        Format("gpuwise-parquet", "the same columns in Parquet", _is_parquet, native.read_native_parquet),
        Format("philly-json", "Microsoft Philly, the original JSON log", _is_philly_json, philly.read_philly_json),
        Format("philly-csv", "Microsoft Philly as Pollux' CSV", _has(*philly.CSV_COLUMNS), philly.read_philly_csv),
        Format("pollux-workload", "Pollux' workloads", _has(*pollux.COLUMNS), pollux.read_pollux),
        Format("muri", "Muri's CSV, in milliseconds", _has(*tiresias.MURI_COLUMNS), tiresias.read_muri),
        Format("chronus", "Chronus' CSV, with deadlines", _has(*tiresias.CHRONUS_COLUMNS), tiresias.read_chronus),
        Format("tiresias", "Tiresias' CSV, in seconds", _has(*tiresias.TIRESIAS_COLUMNS), tiresias.read_tiresias),
        Format("openb", "Alibaba's openb pods, with shared GPUs", _has(*openb.COLUMNS), openb.read_openb),
        Format("sacct", "Slurm accounting, printed by sacct -P", sacct.sniff_sacct, sacct.read_sacct),
        Format("gavel", "Gavel's and Shockwave's .trace files", gavel.sniff_gavel, gavel.read_gavel),
    )
}


def detect(source: Source) -> Format:
    """The format of a file, from its content; its name does not matter."""
    head = source.head()
    for entry in FORMATS.values():
        if entry.sniff(head):
            return entry
    if "\0" in head or head.count("\ufffd") > 8:
        raise TraceError(f"{source.name}: binary data, not a trace")
    first = head.lstrip().split("\n", 1)[0].rstrip("\r")
    raise TraceError(
        f"{source.name}: not a trace that gpuwise knows; its first line is {shown(first)}\n"
        f"formats: {', '.join(FORMATS)}; a CSV of your own needs the columns submit_s, duration_s and gpus"
    )
