"""Rows for people: types that only DuckDB has become texts, and batches become Python values."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

_FOREIGN = frozenset(
    {"interval", "union", "bit", "bignum", "uhugeint", "variant", "geometry", "time with time zone"}
)
_NESTED = frozenset({"list", "array", "struct", "tuple", "map"})


def printable(relation: DuckDBPyRelation) -> DuckDBPyRelation:
    """The rows with a name of its own for each column, and as texts what Polars cannot hold."""
    names: list[str] = []
    for name in relation.columns:
        free = (f"{name}_{number}" if number else name for number in count())
        names.append(next(each for each in free if each not in names))
    parts = [
        f"CAST(#{place} AS VARCHAR)" if _is_foreign(kind) else f"#{place}"
        for place, kind in enumerate(relation.types, 1)
    ]
    if names == relation.columns and not any(map(_is_foreign, relation.types)):
        return relation
    named = zip(parts, names, strict=True)
    return relation.project(", ".join(f"{part} AS {quoted(name)}" for part, name in named))


def python_rows(batches: Sequence[pa.RecordBatch]) -> list[list[object]]:
    """The rows as Python values, in which a date may have any year. Times have the zone UTC."""
    if not batches:
        return []
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        relation = connection.from_arrow(pa.Table.from_batches(batches))
        return [list(row) for row in relation.fetchall()]


def _is_foreign(kind: DuckDBPyType) -> bool:
    """Whether Polars has no type for the values of this type of DuckDB, or of a part of it."""
    if kind.id in _FOREIGN:
        return True
    nested = kind.id in _NESTED
    return nested and any(_is_foreign(cast("DuckDBPyType", part)) for _, part in _parts(kind))


def _parts(kind: DuckDBPyType) -> list[tuple[str, object]]:
    return [each for each in kind.children if not isinstance(each[1], int)]
