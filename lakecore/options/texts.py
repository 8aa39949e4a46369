"""Options as a caller states them, converted to the strings that Paimon stores.

A number or a boolean may be passed as it is: `{"bucket": 4}`. A duration or a size must be a string
with its unit: `"1 d"`, `"128 mb"`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TypeAlias

from lakecore.errors import InvalidRequest

OptionValue: TypeAlias = "str | bool | int | float | os.PathLike[str]"
"""The types in which a caller may state the value of an option."""


def option_texts(options: object, *, table: str = "") -> dict[str, str]:
    """The options as strings. Raises InvalidRequest, with the key, for a value of another type."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidRequest(
            "options are a mapping of texts to texts", options=type(options).__name__, table=table
        )
    return {_key(key, table): option_text(key, value, table) for key, value in options.items()}


def option_text(key: object, value: object, table: str = "") -> str:
    """The value as the string that is stored."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return str(value)
        case int():
            return str(int(value))
        case float() if math.isfinite(value):
            return repr(float(value))
        case os.PathLike():
            return option_text(key, os.fspath(value), table)
        case _:
            # The value may be a secret: its type is enough to find the mistake.
            raise InvalidRequest(
                "an option's value is a text, a number, True or False",
                option=key,
                given=type(value).__name__,
                table=table,
            )


def _key(key: object, table: str) -> str:
    if not isinstance(key, str):
        raise InvalidRequest("an option's key is a text", option=key, table=table)
    return str(key)
