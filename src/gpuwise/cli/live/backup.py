"""``backup`` and ``restore``: the database of the service on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateOption = Annotated[
    Path | None, typer.Option(help="Folder of the service; $GPUWISE_STATE, else ~/.local/state/gpuwise.")
]


def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; it must not exist.")],
    state: StateOption = None,
) -> None:
    """Write a backup of the service's database to a file. The service may be running."""
    from gpuwise.core.units import format_bytes
    from gpuwise.service.live.backup import backup
    from gpuwise.service.live.state_folder import default_state_folder

    size = backup(state or default_state_folder(), file)
    print(f"backup written to {file} ({format_bytes(size)}); logs and checkpoints of jobs are not in it")


def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that gpuwise backup has written.")],
    state: StateOption = None,
) -> None:
    """Put a backup in the place of the service's database. The service must be stopped."""
    from gpuwise.service.live.backup import restore
    from gpuwise.service.live.state_folder import default_state_folder

    aside = restore(state or default_state_folder(), file)
    print(f"restored from {file}" + (f"; the database before is kept as {aside}" if aside else ""))
    print("next: gpuwise up   then   gpuwise status, which says what becomes of jobs that ran meanwhile")
