"""Machines with GPUs, played by the stand-in for NVML."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from standin import HERE, Gpu, Stage, Watched, World, build


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """Where machines with the stand-in are opened."""
    with (
        tempfile.TemporaryDirectory() as folder,  # a socket's path must be short
        Stage(build(Path(folder)), Path(folder, "socket")) as stage,
    ):
        yield stage


@pytest.fixture
def mps_path() -> str:
    """A PATH on which the stand-in for the MPS daemon comes first."""
    return f"{HERE / 'bin'}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def mps_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the MPS daemon, with a short name since sockets lie in it."""
    return tmp_path_factory.mktemp("m")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A machine to describe before it is opened; without GPUs so far."""
    return World(tmp_path / "machine", ())


@pytest.fixture
def watch(stage: Stage, world: World) -> Iterator:
    """Opens the machine that ``world`` describes, with these GPUs if any are given."""
    with ExitStack() as opened:

        def open_machine(*gpus: Gpu, on: Stage = stage, env: dict[str, str] | None = None, **options) -> Watched:
            if gpus:
                world.gpus = list(gpus)
                world.write()
            machine = Watched(on, world, options, env or {})
            opened.callback(machine.end)
            return machine

        yield open_machine
