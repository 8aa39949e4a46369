"""SQL strings in verbs and reads: parses them, prunes by them, and evaluates them on rows.

INVARIANT: a condition keeps exactly the rows for which DuckDB's WHERE is true, and drops those for
which it is null. A value is cast to the type of its column as in an UPDATE of DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.io.ambient import SYSTEM
from lakecore.model.data_types import TIMESTAMPS, Atomic, DataType, Root
from lakecore.model.schema import TableSchema
from lakecore.plan.predicate import Predicate, is_exact
from lakecore.scalar import engine
from lakecore.scalar.engine import quoted
from lakecore.scalar.infinity import finite
from lakecore.scalar.pruning import predicate_of
from lakecore.scalar.syntax import ROWS, Find, Setting, Sql, bound, explained, parse_sql, placed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = [
    "LOCAL",
    "Setting",
    "Sql",
    "SqlExpression",
    "cut_to_precision",
    "cut_value",
    "sql_expr",
    "storable_times",
]

_OTHER_ROWS = "_lakecore_other_rows"
_PLACE, _OTHER_PLACE = "_lakecore_place", "_lakecore_other_place"
LOCAL = Setting(now_ms=SYSTEM.now_ms)
"""The clock and the zone of this machine."""


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """An SQL expression used as a value; created by `sql_expr`.

    lakecore.sql_expr("price * 2")  # SqlExpression(text='price * 2')
    """

    text: str

    def __post_init__(self) -> None:
        given: object = self.text
        if not isinstance(given, str):
            raise InvalidRequest("an SQL expression is a text", given=type(given).__name__)


def sql_expr(text: str) -> SqlExpression:
    """A value that SQL computes from the row, for `Table.update` and `Table.merge`.

    The text is an expression of DuckDB's SQL over the columns of the table, and in a merge over
    `source.x` and `target.y`. DuckDB evaluates it for each row and casts the value to the type of
    the column, as its own UPDATE does: a DECIMAL or an INT is rounded, a null stays null.

    The call itself checks nothing. `update` or `merge` raises InvalidRequest for bad SQL, unknown
    columns, and a value that its column cannot hold; and Unsupported for queries, aggregates,
    window functions, random functions and other tables.

        dearer = lakecore.sql_expr("round(price * 1.1, 2)")
        table.update({"price": dearer}, where="item = 'tea'")
    """
    return SqlExpression(text)


def parse_where(
    text: str, schema: TableSchema | pa.Schema, setting: Setting = LOCAL, find: Find | None = None
) -> tuple[Sql, Predicate]:
    """Parse a condition on rows of a schema. Returns the condition and its pruning predicate."""
    types = types_of(schema)
    sql = parse_sql(text, types, setting, find, "condition")
    predicate = predicate_of(sql, types)
    if is_exact(predicate):
        return sql, predicate  # its form shows that it is a boolean
    sql = bound(sql, types, "condition")
    if not (pa.types.is_boolean(sql.type) or pa.types.is_null(sql.type)):
        raise InvalidRequest("a condition is true or false", text=text, type=sql.type)
    return sql, predicate


def types_of(schema: TableSchema | pa.Schema) -> dict[str, pa.DataType]:
    """The columns of a schema and their types."""
    arrow = schema.arrow if isinstance(schema, TableSchema) else schema
    return {field.name: field.type for field in arrow}


def matches(sql: Sql, rows: pa.Table) -> pa.BooleanArray:
    """For each row, whether the condition is true; null counts as false.

    Raises InvalidRequest if the condition cannot be computed for a row, for example if a cast
    fails.
    """
    mask = np.zeros(rows.num_rows, bool)
    mask[_places(sql, rows)] = True
    return pa.array(mask)


def pairs(sql: Sql, left: pa.Table, right: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of rows of two tables for which a condition is true, as positions in each table.

    Each column of the condition is in one of the tables.
    """
    own = [name for name in sql.columns if name in left.column_names]
    other = [name for name in sql.columns if name not in left.column_names]
    tables = {
        ROWS: _numbered(_named(sql, left, own), _PLACE),
        _OTHER_ROWS: _numbered(_named(sql, right, other), _OTHER_PLACE),
    }
    found = _evaluated(
        sql,
        f"SELECT {_PLACE}, {_OTHER_PLACE} FROM {ROWS} JOIN {_OTHER_ROWS} ON ({sql.sql}\n)",
        tables,
    )
    return found.column(0).to_numpy(), found.column(1).to_numpy()


def value_of(sql: Sql, rows: pa.Table, column: pa.Field) -> pa.ChunkedArray:
    """The value of an expression for each row, cast to the type of a column.

    Raises InvalidRequest, naming the column, for a value that the type does not hold.
    """
    target = column.type
    empty = placed(pa.table({column.name: pa.array([], target)}), (column.name,))
    described = engine.evaluate(
        f"SELECT column_type FROM (DESCRIBE SELECT * FROM {ROWS})", {ROWS: empty}, sql.zone
    )
    kind = str(described.column(0)[0])
    cast = f"SELECT CAST(({sql.sql}\n) AS {kind}) AS value FROM {ROWS}"
    query = f"SELECT {finite('value', duckdb.sqltype(kind))} AS value FROM ({cast})"
    try:
        return engine.evaluate(query, {ROWS: placed(rows, sql.columns)}, sql.zone).column(0)
    except duckdb.Error as error:
        message = "the value cannot be computed, or does not fit the column, for each row"
        raise explained(error, sql, message, column=column.name) from error


def _places(sql: Sql, rows: pa.Table) -> np.ndarray:
    query = f"SELECT {_PLACE} FROM {ROWS} WHERE ({sql.sql}\n)"
    tables = {ROWS: _numbered(placed(rows, sql.columns), _PLACE)}
    places: np.ndarray = _evaluated(sql, query, tables).column(0).to_numpy()
    return places


def _evaluated(sql: Sql, query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    try:
        return engine.evaluate(query, tables, sql.zone)
    except duckdb.Error as error:
        raise explained(error, sql, "the condition cannot be computed for each row") from error


def _named(sql: Sql, rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """These columns of one table, renamed to their numbers (`Sql.sql`)."""
    shown = placed(rows, tuple(names))
    if not names:
        return shown.rename_columns(["_lakecore_nothing"])
    numbers = [sql.columns.index(name) for name in names]
    return shown.rename_columns([f"_lakecore_column_{number}" for number in numbers])


def _numbered(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows, dtype=np.int64)))


# --- fractions -----------------------------------------------------------------------------------
# Cuts times to the fraction digits of a column, as Flink and Spark do when they store a value.
#
# A cast of DuckDB would round, and DuckDB has no type for every number of digits.

_MICROS, _NANOS = 6, 9
_TIME_MS = Atomic(root=Root.TIME, nullable=True, precision=3)
_OF_DAY = frozenset({"TIME", "TIME WITH TIME ZONE"})
_WITH_FRACTION = frozenset(
    {
        *_OF_DAY,
        *("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_MS", "TIMESTAMP_NS", "VARCHAR"),
    }
)
_IN_DUCKDB = {
    Root.TIME: "TIME",
    Root.TIMESTAMP: "TIMESTAMP",
    Root.TIMESTAMP_LTZ: "TIMESTAMP WITH TIME ZONE",
}


def cut_to_precision(value: str, given: str, kind: DataType) -> str:
    """SQL of a value of DuckDB's type `given`, without digits that a column of `kind` lacks."""
    if not isinstance(kind, Atomic) or kind.root not in _IN_DUCKDB or kind.precision is None:
        return value
    digits = kind.precision
    if given == "TIMESTAMP_NS" and kind.root in TIMESTAMPS and digits < _NANOS:
        cut = (
            f"make_timestamp_ns(epoch_ns({value}) - {_rest(f'epoch_ns({value})', _NANOS - digits)})"
        )
        return f"CASE WHEN isfinite({value}) THEN {cut} ELSE {value} END"
    is_coarse = given == "TIMESTAMP_MS" and digits >= 3
    if given not in _WITH_FRACTION or digits >= _MICROS or is_coarse:
        return value
    if given == "TIMESTAMP WITH TIME ZONE" and kind.root is Root.TIME:
        value = f"CAST({value} AS TIMESTAMP)"  # DuckDB casts only this one to TIME
    value = f"CAST({value} AS {_IN_DUCKDB[kind.root]})"
    # The epoch of an infinite time is null; the write refuses this time later.
    rest = f"coalesce({_rest(f'epoch_us({value})', _MICROS - digits)}, 0)"
    return f"{value} - to_microseconds({rest})"


def cut_value(sql: Sql, kind: DataType) -> Sql:
    """The bound expression, without digits that a column of `kind` lacks."""
    return replace(sql, sql=cut_to_precision(f"({sql.sql}\n)", _in_duckdb(sql.type), kind))


def storable_times(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows with times of day in milliseconds, the finest that Paimon stores."""
    kinds = list(map(str, relation.types))
    if not _OF_DAY & set(kinds):
        return relation
    parts = (
        cut_to_precision(f"#{place}", kind, _TIME_MS) if kind in _OF_DAY else f"#{place}"
        for place, kind in enumerate(kinds, 1)
    )
    named = zip(parts, relation.columns, strict=True)
    return relation.project(", ".join(f"{part} AS {quoted(name)}" for part, name in named))


def _in_duckdb(kind: pa.DataType) -> str:
    """DuckDB's name of a type of times or texts; "" for another type."""
    if not pa.types.is_timestamp(kind):
        return "TIME" if pa.types.is_time(kind) else "VARCHAR" if pa.types.is_string(kind) else ""
    if kind.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    return {"us": "TIMESTAMP", "ms": "TIMESTAMP_MS", "ns": "TIMESTAMP_NS"}.get(kind.unit, "")


def _rest(number: str, digits: int) -> str:
    """SQL of the last digits of a whole number: the number modulo 10**`digits`, never negative."""
    unit = 10**digits
    return f"(({number} % {unit} + {unit}) % {unit})"
