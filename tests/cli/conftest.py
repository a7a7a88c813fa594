"""What tests of the command line share."""

from __future__ import annotations

import pytest

from gpuwise.cli.main import app


@pytest.fixture(autouse=True)
def no_groups_yet() -> None:
    """Commands with commands of their own are added by main(), once a process; tests call it often."""
    app.registered_groups.clear()
