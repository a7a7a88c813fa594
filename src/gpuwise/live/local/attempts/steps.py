"""What a job's last checkpoint keeps, as the job itself counts its steps."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwise.live.local.attempts.folders import finite, read_json, text


def kept_steps(checkpoint: Path) -> tuple[float, float | None]:
    """Steps that are kept, and steps in all if the job says so."""
    latest = read_json(checkpoint / "latest.json")
    named = text(latest, "file")
    if named and ("/" in named or not os.path.exists(checkpoint / named)):  # false where it cannot be looked for
        return 0.0, None
    return finite(latest, "step"), finite(latest, "steps") or None
