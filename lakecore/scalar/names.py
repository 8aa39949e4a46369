"""Finds columns by names in SQL text: exact match first, then case-insensitive."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.rows.fit import check_names
from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Find: TypeAlias = "Callable[[list[str]], tuple[str, list[str]]]"
"""Gives the column that a dotted name means, and the parts of the name that are fields in it."""


def finder(types: Mapping[str, object], table: str) -> Find:
    """A function that finds columns of one table, also if qualified with the table's name."""
    own = [part.lower() for part in table.rstrip("/").replace("/", ".").split(".") if part]

    def find(parts: list[str]) -> tuple[str, list[str]]:
        found = find_name(parts[0], types)
        if found is not None:
            return found, parts[1:]
        # `orders.id` or `shop.orders.id`: the column is qualified with the end of the table's name.
        for length in range(1, len(parts)):
            words = [part.lower() for part in parts[:length]]
            found = find_name(parts[length], types)
            if found is not None and own[-length:] == words:
                return found, parts[length + 1 :]
        raise unknown_column(".".join(parts), types)

    return find


def find_name(name: str, types: Mapping[str, object]) -> str | None:
    """The column of that name, in any case; None if there is none.

    Raises InvalidRequest if several columns match.
    """
    if name in types:
        return name
    found = [other for other in types if other.lower() == name.lower()]
    if len(found) > 1:
        raise InvalidRequest("ambiguous column", column=name, columns=found)
    return found[0] if found else None


def unknown_column(name: str, types: Mapping[str, object]) -> InvalidRequest:
    """The error for a name that is not a column; it suggests the most similar column."""
    return InvalidRequest(
        "unknown column", column=name, **did_you_mean(name, types), columns=list(types)
    )


# --- struct fields -------------------------------------------------------------------------------
# Checks that values for a ROW column have only its fields: DuckDB's cast would drop others.


def check_fields(column: str, given: pa.DataType, wanted: pa.DataType) -> None:
    """Raise InvalidRequest if values of type `given` have a field that the column's type lacks.

    Names are compared in any case, as DuckDB does. Fields that are missing become null. The fields
    of `ROW(1, 2)`, which has no names, are taken by position.
    """
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in given]
        if names == [f"element{number}" for number in range(1, len(names) + 1)]:
            pairs = list(zip(given, wanted, strict=False))
        else:
            known = {field.name.lower(): field for field in wanted}
            strange = [name for name in names if name.lower() not in known]
            check_names(strange, [field.name for field in wanted], inside=f"{column}.")
            pairs = [(field, known[field.name.lower()]) for field in given]
        for field, other in pairs:
            check_fields(f"{column}.{other.name}", field.type, other.type)
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        check_fields(f"{column}.key", given.key_type, wanted.key_type)
        check_fields(f"{column}.value", given.item_type, wanted.item_type)
    elif _is_list(given) and _is_list(wanted):
        check_fields(f"{column}.element", given.value_type, wanted.value_type)


def _is_list(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))
