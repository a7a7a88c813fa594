"""What a job's model is predicted to need, worked out on the user's side: tracing a model runs its code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuwise.core.errors import UnknownNameError

if TYPE_CHECKING:
    from gpuwise.cli.client.http import Client
    from gpuwise.service.offline.forecast import Quantity, Row


def foreseen(body: Mapping[str, Any], training: Mapping[str, Any], client: Client) -> dict[str, Any]:
    """What is added to a job's body: run time, memory and utilization as predicted, where nothing was declared.

    Of several GPU types that it may get, the one on which it takes longest counts, and the others have their speeds.
    """
    if not training:
        return {}
    rows = _rows(body, training, client)
    if not rows:
        return {}
    row = max(rows, key=lambda row: row.step_time_s.value)
    made: dict[str, Any] = {}
    if len(rows) > 1:
        made["speeds"] = {each.gpu: row.step_time_s.value / each.step_time_s.value for each in rows}
    if "steps" in body:
        whole = row.step_time_s.times(body["steps"])
        made |= {"predicted_s": whole.value, "predicted_low_s": whole.low, "predicted_high_s": whole.high}
    if "gpu_memory_bytes" not in body:  # what is foreseen is no reason to refuse a job: it may have the whole GPU
        made |= _forecast("gpu_memory_bytes", row.memory_bytes, row.capacity_bytes)
    if "gpu_util_frac" not in body:
        made |= _forecast("gpu_util_frac", row.gpu_util_pct.times(0.01), 1.0)
    _tell(row)
    return made


def _forecast(name: str, quantity: Quantity, most: float) -> dict[str, Any]:
    """A forecast as the fields of a body: value, low, high and source; the value is at most ``most``."""
    stem, unit = name.rsplit("_", 1)
    value = min(quantity.value, most)
    low, high = min(quantity.low, value), max(min(quantity.high, 1.0) if unit == "frac" else quantity.high, value)
    return {name: value, f"{stem}_low_{unit}": low, f"{stem}_high_{unit}": high, f"{stem}_source": "predicted"}


def _rows(body: Mapping[str, Any], training: Mapping[str, Any], client: Client) -> list[Row]:
    from gpuwise.service.offline.predict import predict

    types = _types(body, client)
    if not types:
        return []
    told = {"batch": 32} | {key: value for key, value in training.items() if key != "model"}
    forecast = predict(training["model"], gpus=types, count=max(1, int(body.get("gpus", 1))), **told)
    return list(forecast)


def _types(body: Mapping[str, Any], client: Client) -> list[str]:
    """The GPU types on which the job may run and of which the speed is known."""
    from gpuwise.devices.catalogue import gpu_type
    from gpuwise.predict.time.gpu_rates import is_known

    there = dict.fromkeys(node["gpu_type"] for node in client.get("nodes")["nodes"])
    wanted = [name for name in there if not body.get("gpu_types") or name in body["gpu_types"]]
    known = []
    for name in wanted:
        try:
            found = is_known(name)
        except UnknownNameError:
            found = False
        if found:
            known.append(gpu_type(name).name)
        else:
            print(f"gpuwise: no forecast for {name}: its speed is not known", file=sys.stderr)
    return known


def _tell(row: Row) -> None:
    shown = row.shown()
    parts = ", ".join(f"{name} {shown[name]}" for name in ("step ms", "utilization %", "memory GiB"))
    print(f"gpuwise: predicted on {row.gpu}: {parts} ({shown['source']})", file=sys.stderr)
