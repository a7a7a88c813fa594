"""What goes wrong when something is taken that is not free."""

from __future__ import annotations

from gpuwise.core.errors import GpuwiseError


class OverAllocationError(GpuwiseError):
    """A placement that takes what is not free."""
