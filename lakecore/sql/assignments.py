"""Converts `SET column = expression` to the new value of each column, as an SQL expression.

`SET row.field = expression` sets one field of a ROW. The new value is the whole ROW, built from the
expression and the old values of the other fields. As in Spark, a null ROW becomes a ROW whose other
fields are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.data_types import Row
from lakecore.scalar.names import check_fields
from lakecore.sql.tokens import quoted, quoted_text
from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    import pyarrow as pa

    from lakecore.model.data_types import DataType
    from lakecore.model.schema import TableSchema
    from lakecore.sql.statements import Chain

__all__ = ["assigned", "check_nested", "column_of"]


def assigned(
    values: Mapping[Chain, str], schema: TableSchema, qualifier: str = ""
) -> dict[str, str]:
    """The new value of each assigned column, as SQL. Its column names start with `qualifier`."""
    types = {field.name: field.type for field in schema.fields}
    parts: dict[str, dict[Chain, str]] = {}
    for path, text in values.items():
        parts.setdefault(column_of(path[0], list(types)), {})[path[1:]] = text
    return {
        name: _value(types[name], f"{qualifier}{quoted(name)}", inner, (name,))
        for name, inner in parts.items()
    }


def _value(kind: DataType, old: str, parts: Mapping[Chain, str], path: Chain) -> str:
    """The SQL of a value.

    `parts` maps the paths of its parts to their new values; the path `()` is the whole value.
    """
    if () in parts:
        if len(parts) > 1:
            raise InvalidRequest("set the whole column or fields of it", column=".".join(path))
        return parts[()]
    if not isinstance(kind, Row):
        raise InvalidRequest(
            "only a field of a ROW can be set alone", column=".".join(path), type=str(kind)
        )
    names = [field.name for field in kind.fields]
    inner: dict[str, dict[Chain, str]] = {}
    for rest, text in parts.items():
        inner.setdefault(column_of(rest[0], names), {})[rest[1:]] = text
    fields = (
        f"{quoted_text(field.name)}: "
        + _value(
            field.type,
            f"{old}.{quoted(field.name)}",
            inner.get(field.name, {(): f"{old}.{quoted(field.name)}"}),
            (*path, field.name),
        )
        for field in kind.fields
    )
    return "{" + ", ".join(fields) + "}"


def column_of(name: str, columns: Sequence[str]) -> str:
    """The column that a name refers to: an exact match, else a case-insensitive one."""
    if name in columns:
        return name
    found = [each for each in columns if each.lower() == name.lower()]
    if len(found) != 1:
        raise InvalidRequest(
            "unknown column", column=name, **did_you_mean(name, columns), columns=list(columns)
        )
    return found[0]


def check_nested(relation: duckdb.DuckDBPyRelation, target: pa.Schema) -> None:
    """Raise InvalidRequest if the rows of a query have a nested field that its column lacks.

    `target` holds a column for each column of the query, in their order, and maybe more.
    """
    if not any("STRUCT" in str(kind) for kind in relation.types):
        return
    given = relation.limit(0).to_arrow_table().schema
    for kind, wanted in zip(given.types, target, strict=False):
        check_fields(wanted.name, kind, wanted.type)
