"""The submitter's environment, as far as a job takes it along."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwise.core.job.request import ENV_NAME, MAX_ENV_BYTES, RESERVED_ENV
from gpuwise.core.units import format_bytes


class EnvFrom(enum.StrEnum):
    """How much of the submitter's environment a job takes along."""

    NONE = "none"
    PATH = "path"
    """What programs and libraries are found by: PATH, an active venv or conda environment."""
    ALL = "all"


PATHS = frozenset((
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_HOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "CONDA_EXE", "CONDA_PYTHON_EXE", "CONDA_SHLVL",
))  # fmt: skip
OF_THE_SHELL = frozenset(("_", "PWD", "OLDPWD", "SHLVL"))
OF_THE_ACCOUNT = frozenset(("HOME", "USER", "LOGNAME", "MAIL"))
"""The job has those of the account that it runs as."""
OF_THE_SERVICE = frozenset((
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT",
))  # fmt: skip
"""A job without GPUs, or with one process, must not see those of the job that submits it."""
NEVER = OF_THE_SHELL | OF_THE_ACCOUNT | OF_THE_SERVICE


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """The variables that a job is submitted with, and what there was no room for."""

    variables: Mapping[str, str]
    left_out: Mapping[str, str]
    """Names, each with the reason."""

    @property
    def note(self) -> str:
        """What was left out, for people; empty if nothing was."""
        if not self.left_out:
            return ""
        named = ", ".join(f"{name} ({why})" for name, why in self.left_out.items())
        return f"left out of the job's environment: {named}; an environment may have {format_bytes(MAX_ENV_BYTES)}"


def job_environment(own: Mapping[str, str], take: EnvFrom, mine: Mapping[str, str] | None = None) -> JobEnvironment:
    """A job's own variables, and beneath them those of its submitter that it takes along, while there is room."""
    taken, left_out = dict[str, str](), dict[str, str]()
    room = MAX_ENV_BYTES - sum(map(_size, own.items()))
    wanted = {name: value for name, value in (os.environ if mine is None else mine).items() if _takes(take, name)}
    for name in sorted(wanted.keys() - own.keys(), key=lambda name: (name not in PATHS, _size((name, wanted[name])))):
        size = _size((name, wanted[name]))
        if not _is_text(wanted[name]):
            left_out[name] = "not UTF-8"
        elif size > room:
            left_out[name] = format_bytes(size)
        else:
            taken[name] = wanted[name]
            room -= size
    return JobEnvironment({**taken, **own}, left_out)


def _takes(take: EnvFrom, name: str) -> bool:
    """Whether a variable is taken along; names such as those of exported shell functions are none for a job."""
    if take is not EnvFrom.ALL:
        return take is EnvFrom.PATH and name in PATHS
    return bool(ENV_NAME.fullmatch(name)) and name not in NEVER and not name.startswith(RESERVED_ENV)


def _size(variable: tuple[str, str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in variable)


def _is_text(value: str) -> bool:
    """Whether bytes of a variable were UTF-8; Python keeps others as surrogates, which JSON cannot carry."""
    return not any("\ud800" <= each <= "\udfff" for each in value)
