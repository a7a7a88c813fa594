"""Measured peak memory as the columns of `MemoryNeed`: what the readers of such data have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from gpuwise.predict.fitting.data.architectures import Architecture, architecture, memory_row
from gpuwise.predict.fitting.data.tables import columns, tell_strangers

MIB = 2.0**20


class Peak(NamedTuple):
    """One measurement."""

    model: str
    batch: float
    gpu: str
    mib: float


def memory_table(
    data: str,
    peaks: Iterable[Peak],
    *,
    framework: str,
    measure: str,
    states: int,
    known: Mapping[str, Architecture] | None = None,
) -> dict[str, NDArray[Any]]:
    """A row for each measurement, with ``peak_bytes``; models without a known architecture are left out.

    ``data`` is the data set's name, ``states`` what its optimizer keeps for each parameter, ``known`` what its names of
    models mean; ``framework`` and ``measure`` are those of `MemoryNeed`.
    """
    made, strange = [], set()
    for peak in peaks:
        network = architecture(peak.model, known)
        features = memory_row(network, peak.batch, states)
        if features is None:
            strange.add(peak.model)
            continue
        names = {"data": data, "label": f"{data}_{peak.model}", "architecture": network.network}
        how = {"framework": framework, "measure": measure, "gpu": peak.gpu, "batch_size": peak.batch}
        made.append(names | how | {"peak_bytes": peak.mib * MIB} | features)
    tell_strangers(data, strange)
    return columns(made)
