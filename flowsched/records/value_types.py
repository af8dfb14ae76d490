"""Kinds of values in records: what type checkers see, what pydantic checks, and what is said of a wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from flowsched.support.arrays import BoolArray, FloatArray, IntArray

WRONG = "wrong"
"""Type of the errors whose messages say what a value must be."""


@dataclass(frozen=True)
class Must:
    """What is said of a wrong value, instead of pydantic's own words."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called by pydantic."""
        return core_schema.custom_error_schema(handler(source), WRONG, custom_error_message=self.text)


@dataclass(frozen=True)
class Column:
    """Many values at once: a numpy array of some kinds, which is looked at as a whole, or a list."""

    kinds: str
    item: Any
    dimensions: int = 1

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Called by pydantic."""
        # A list of a million wrong values is one mistake.
        listed = core_schema.list_schema(handler.generate_schema(self.item), fail_fast=True)
        return core_schema.no_info_wrap_validator_function(self._checked, listed)

    def _checked(self, value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        listed = value
        if isinstance(value, np.ndarray):
            if value.ndim != self.dimensions or value.dtype.kind not in self.kinds:
                raise PydanticCustomError(WRONG, f"must be a list in which each value {self.must}")
            if value.dtype.kind != "f" or np.isfinite(value).all():
                return value
            listed = value.tolist()
        if -math.inf in handler(listed):
            raise PydanticCustomError(WRONG, f"must be a list in which each value {self.must}")
        return value

    @property
    def must(self) -> str:
        """What each of the values must be."""
        last = get_args(self.item)[-1]
        found: str = last.text if isinstance(last, Must) else last.must
        return found


_LEAST, _MOST = -(2**63), 2**63 - 1
_OPEN = Annotated[float | None, Must("must be a number or null")]

Text = Annotated[str, Must("must be text")]
Flag = Annotated[bool, Must("must be true or false")]
Number = Annotated[float, Field(allow_inf_nan=False), Must("must be a finite number")]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0), Must("must be a finite number more than 0")]
Whole = Annotated[int, Field(ge=_LEAST, le=_MOST), Must("must be a whole number")]
Count = Annotated[int, Field(ge=0, le=_MOST), Must("must be a whole number that is not negative")]
Threads = Annotated[int, Field(ge=0, le=1 << 16), Must(f"must be a whole number from 0 to {1 << 16}")]
"""They have an array: no more than any real record has."""
Rounds = Annotated[int, Field(ge=0, le=1000), Must("must be a whole number from 0 to 1000")]
"""They are worked through one by one."""
Quantity = Annotated[str | int | float, Must("must be a quantity")]
"""Such as ``2`` or ``"500m"``; its reader checks the rest."""
Setting = Annotated[str | bool | Number, Must("must be text, true, false or a finite number")]

Texts = Annotated[Sequence[str] | NDArray[np.str_], Column("U", Text)]
Wholes = Annotated[Sequence[int] | IntArray, Column("i", Whole)]
Numbers = Annotated[Sequence[float] | FloatArray, Column("fi", Number)]
OpenNumbers = Annotated[Sequence[float | None] | FloatArray, Column("fi", _OPEN)]
"""Where null, or infinity in an array, says that there is no limit, or no end."""
Flags = Annotated[Sequence[bool] | BoolArray, Column("b", Flag)]
WholeRows = Annotated[Sequence[Sequence[int]] | IntArray, Column("i", Wholes, 2)]
OpenRows = Annotated[Sequence[Sequence[float | None]] | FloatArray, Column("fi", OpenNumbers, 2)]
