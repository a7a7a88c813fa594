"""Sharing as a decision: ITU's small, medium and large jobs on slices, and MISO's trace on eight A100s."""

from pathlib import Path

from gpuwise.experiments.rows import Row
from gpuwise.experiments.sharing import itu, miso


def rows(data: Path) -> list[Row]:
    """Every figure."""
    return [*itu.rows(), *miso.rows(data)]
