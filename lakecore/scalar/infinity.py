"""SQL that raises an error for an infinite DATE or TIMESTAMP, which only DuckDB has.

DuckDB stores infinity as the largest number of days or time units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

_NESTED = frozenset({"list", "array", "struct", "tuple", "map"})


def finite_rows(relation: DuckDBPyRelation) -> DuckDBPyRelation:
    """The rows of a relation; reading them fails at an infinite value."""
    own = [f"#{place}" for place in range(1, len(relation.types) + 1)]
    checked = [finite(each, kind) for each, kind in zip(own, relation.types, strict=True)]
    if checked == own:
        return relation
    names = [name.replace('"', '""') for name in relation.columns]
    named = zip(checked, names, strict=True)
    return relation.project(", ".join(f'{each} AS "{name}"' for each, name in named))


def finite(value: str, kind: DuckDBPyType) -> str:
    """The SQL of a value of this type; infinity is an error, also within a nested value."""
    found = _is_infinite(value, kind)
    if found is None:
        return value
    what = f"{'a value within' if kind.id in _NESTED else 'a'} {kind} cannot be infinite"
    text = what.replace("'", "''")
    return f"CASE WHEN {found} THEN error('{text}') ELSE {value} END"


def _is_infinite(value: str, kind: DuckDBPyType, each: str = "each") -> str | None:
    """The SQL condition that a DATE or TIMESTAMP in a value is infinite; None if it has none."""
    name: str = kind.id
    if name == "timestamptz_ns":  # DuckDB lacks the function for this type
        return f"isinf(CAST({value} AS TIMESTAMPTZ))"
    if name == "date" or name.startswith("timestamp"):
        return f"isinf({value})"
    if name in {"list", "array"}:
        return _has_infinite(value, _parts(kind)[0], each)
    if name == "map":
        parts = zip(("map_keys", "map_values"), _parts(kind), strict=True)
        found = [_has_infinite(f"{part}({value})", inner, each) for part, inner in parts]
    elif name in {"struct", "tuple"}:
        found = [
            _is_infinite(f"struct_extract_at({value}, {number})", inner, each)
            for number, inner in enumerate(_parts(kind), 1)
        ]
    else:
        return None
    tests = [test for test in found if test is not None]
    return f"({' OR '.join(tests)})" if tests else None


def _has_infinite(values: str, kind: DuckDBPyType, each: str) -> str | None:
    """The SQL condition that an element of a list is infinite; None if its type cannot be.

    The element is called `each`; those of lists within it get longer names.
    """
    inner = _is_infinite(each, kind, f"{each}_")
    found = f"list_transform({values}, lambda {each}: {inner})"
    return None if inner is None else f"list_bool_or({found})"


def _parts(kind: DuckDBPyType) -> list[DuckDBPyType]:
    """The types of the parts of a nested type; for an ARRAY, its size comes after them."""
    return [cast("DuckDBPyType", inner) for _, inner in kind.children]
