"""What is believed of a job's memory after it ran out."""

from __future__ import annotations

import math

GROWTH = 1.5
"""An estimate that was too low grows by this at least; three times is 3.4 times the first."""
HEADROOM = 1.1
"""What was measured, and a little more."""


def corrected_bytes(had: float, measured: float, most: float) -> float:
    """The next estimate for a job that ran out with ``had`` a GPU, in whole bytes, at most what a GPU has."""
    return min(float(math.ceil(max(had * GROWTH, measured * HEADROOM))), most)
