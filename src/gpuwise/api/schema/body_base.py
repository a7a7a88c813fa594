"""What all bodies of requests have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from gpuwise.core.errors import nearest_names


class Body(BaseModel):
    """A body of a request: no field that is not known, no text for numbers, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _know_fields(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in given.keys() - cls.model_fields.keys():
                nearest = ", ".join(nearest_names(str(name), cls.model_fields))
                hint = f"; did you mean {nearest}?" if nearest else ""
                raise PydanticCustomError("unknown_field", "{text}", {"text": f"unknown field {name[:80]!r}{hint}"})
        return given
