"""A job that is about to be submitted: what files and options say of it, and what the server is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuwise.cli.submit.environment import EnvFrom, JobEnvironment, job_environment
from gpuwise.cli.submit.fields import FIELDS, FORECAST_ONLY, KEY_OF
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.request import JobRequest


@dataclass(frozen=True, slots=True)
class Draft:
    """What files and options say of one job."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Values as the server takes them, by the names that files use."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What each value is called in messages: ``train.toml:7: gpus``, ``--gpus``."""
    where: str = ""
    """The file, for what is wrong with no value in particular."""
    after: tuple[str, ...] = ()
    """Names of jobs of the same file that it waits for."""

    @property
    def name(self) -> str:
        """What the job is called; may be empty."""
        return str(self.values.get("name", ""))

    @property
    def training(self) -> dict[str, Any]:
        """The model that the job trains and how, for the forecast; empty if no model is given."""
        asked = [key for key in FORECAST_ONLY if key in self.values]
        if "model" not in self.values:
            if asked:
                label = self.labels.get(asked[0], asked[0])
                raise GpuwiseError(f"{label} is for a forecast; give the model, too")
            return {}
        return {key: self.values[key] for key in ("model", "batch", *asked) if key in self.values}

    @property
    def environment(self) -> JobEnvironment:
        """Its variables, with what it takes along of the submitter's."""
        return job_environment(self.values.get("env", {}), EnvFrom(self.values.get("env_from", EnvFrom.ALL)))

    def with_options(self, options: Mapping[str, object]) -> Draft:
        """The same job with options, which count more than the file."""
        labels = {key: "--" + key.replace("_", "-") for key in options}
        read = {key: FIELDS[key].read(labels[key], value) for key, value in options.items()}
        if "env" in read:
            read["env"] = {**self.values.get("env", {}), **read["env"]}
        return replace(self, values={**self.values, **read}, labels={**self.labels, **labels})

    def body(self) -> dict[str, Any]:
        """What the server is sent; refuses what the server would refuse."""
        if "command" not in self.values:
            raise GpuwiseError(self._located('no command; give it as in: command = ["python", "train.py"]'))
        fields = {FIELDS[key].target: value for key, value in self.values.items() if FIELDS[key].target}
        if isinstance(fields.get("gpus"), tuple):
            fields["min_gpus"], fields["max_gpus"] = fields["gpus"]
            fields["gpus"] = fields["min_gpus"]
        if isinstance(fields.get("array"), tuple):
            fields["array"], fields["array_limit"] = fields["array"]
        fields["env"] = self.environment.variables
        fields["workdir"] = _absolute(fields.get("workdir", os.curdir))
        try:
            return JobRequest.from_json(fields).to_json()
        except PropertyError as error:
            raise GpuwiseError(self._in_users_words(error)) from None

    def _in_users_words(self, error: PropertyError) -> str:
        """A complaint about a property, with the name that the user wrote."""
        key = KEY_OF.get(error.name)
        if key is None or error.of:
            return self._located(str(error))
        return f"{self.labels.get(key, self._located(key))} {error.complaint}"

    def _located(self, text: str) -> str:
        return f"{self.where}: {text}" if self.where else text


def _absolute(folder: str) -> str:
    """A folder seen from here; empty stays empty, which is a folder of the job's own."""
    try:
        return str(Path(os.path.abspath(os.path.expanduser(folder)))) if folder else ""
    except FileNotFoundError:
        raise GpuwiseError("the folder you are in was removed; change to another, or give --workdir DIR") from None
