"""Conditions to draw on the columns of a table, said in Polars and in SQL, and how files are laid.

A condition is a tree: ("and" | "or", left, right), ("not", inner), or a leaf whose column is a
field. Sets hold no null, for Polars and SQL differ on those: which of the two a filter follows is
the matter of `test_predicate.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from lakecore.model.files import CommitMessage
from lakecore.model.types import Atomic, Field, Root, arrow_type, with_nullable
from property_tests.table_draws import values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.handle import Table

Tree: TypeAlias = "tuple[Any, ...]"

OPS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@st.composite
def leaves(draw: st.DrawFn, fields: Sequence[Field]) -> Tree:
    """A condition on one column, by values that it may hold."""
    field = draw(st.sampled_from(fields))
    if not isinstance(field.type, Atomic):
        return (draw(st.sampled_from(["null", "not null"])), field)
    literal = values(with_nullable(field.type, nullable=False))
    is_text = field.type.root is Root.VARCHAR
    kinds = ["compare", "compare", "compare", "in", "null", "not null", "between"]
    match draw(st.sampled_from(kinds + ["starts"] * 2 * is_text)):
        case "compare":
            return ("compare", field, draw(st.sampled_from([*OPS])), draw(literal))
        case "in":
            return ("in", field, draw(st.lists(literal, min_size=1, max_size=3)))
        case "between":
            return ("between", field, draw(literal), draw(literal))
        case "starts":
            return ("starts", field, draw(literal)[: draw(st.integers(0, 3))])
        case kind:
            return (kind, field)


def conditions(schema: TableSchema) -> st.SearchStrategy[Tree]:
    """Conditions on columns of any role; half of the leaves are on keys and partitions."""
    keyed = {*schema.primary_keys, *schema.partition_keys}
    held = [field for field in schema.fields if field.name in keyed]
    leaf = leaves(schema.fields)
    return st.recursive(
        st.one_of(leaf, leaves(held)) if held else leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=4,
    )


def as_polars(tree: Tree) -> pl.Expr:
    """The condition as a user of Polars writes it."""
    match tree:
        case ("and", left, right):
            return as_polars(left) & as_polars(right)
        case ("or", left, right):
            return as_polars(left) | as_polars(right)
        case ("not", inner):
            return ~as_polars(inner)
        case ("compare", field, op, value):
            compared: pl.Expr = OPS[op](pl.col(field.name), _literal(field, value))
            return compared
        case ("between", field, low, high):
            return pl.col(field.name).is_between(_literal(field, low), _literal(field, high))
        case ("in", field, some):
            held = pl.Series(pa.array(some, arrow_type(field.type)))
            return pl.col(field.name).is_in(held.implode())
        case ("starts", field, prefix):
            return pl.col(field.name).str.starts_with(pl.lit(prefix))
        case ("null", field):
            return pl.col(field.name).is_null()
        case ("not null", field):
            return pl.col(field.name).is_not_null()
    raise AssertionError(tree)


def as_sql(tree: Tree) -> str:
    """The condition in SQL, as DuckDB reads it."""
    match tree:
        case ("and" | "or" as word, left, right):
            return f"({as_sql(left)} {word} {as_sql(right)})"
        case ("not", inner):
            return f"(not {as_sql(inner)})"
        case ("compare", field, op, value):
            return f"{field.name} {op} {_sql(value)}"
        case ("between", field, low, high):
            return f"{field.name} between {_sql(low)} and {_sql(high)}"
        case ("in", field, some):
            return f"{field.name} in ({', '.join(map(_sql, some))})"
        case ("starts", field, prefix):
            return f"starts_with({field.name}, {_sql(prefix)})"
        case ("null", field):
            return f"{field.name} is null"
        case ("not null", field):
            return f"{field.name} is not null"
    raise AssertionError(tree)


def _literal(field: Field, value: Any) -> pl.Expr:
    """The value as Polars holds it: milliseconds of a day are a time of nanoseconds there."""
    return pl.lit(pl.Series(pa.array([value], arrow_type(field.type))).item())


def _sql(value: Any) -> str:
    match value:
        case bool():
            return str(value)
        case float():
            return f"{value!r}::double" if math.isfinite(value) else f"'{value}'::double"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
        case datetime() if value.tzinfo is not None:
            return f"timestamptz '{value:%Y-%m-%d %H:%M:%S.%f}+00'"
        case datetime():
            return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"date '{value}'"
        case time():
            return f"time '{value:%H:%M:%S.%f}'"
        case str():
            return f"'{value}'"
        case int() | Decimal():
            return f"{value}"
    raise AssertionError(value)


# --- how files are laid -------------------------------------------------------------------------


def cut_row_groups(store: Store, directory: str, rows: int, *, integers: bool = True) -> int:
    """Write each Parquet file anew in row groups of so many rows; how many groups there are.

    What a writer with other habits would have written: the rows, their order and the file's name
    stay; decimals are integers, or bytes.
    """
    groups = 0
    for status in store.list(directory):
        if status.is_directory:
            groups += cut_row_groups(store, status.path, rows, integers=integers)
        elif status.path.endswith(".parquet"):
            with store.open_input(status.path) as source:
                whole = pq.read_table(source)
            out = pa.BufferOutputStream()
            pq.write_table(
                whole,
                out,
                row_group_size=rows,
                store_decimal_as_integer=integers,
                store_schema=False,
            )
            store.put(status.path, out.getvalue().to_pybytes())
            groups += max(1, -(-whole.num_rows // rows))
    return groups


def settle(table: Table) -> int:
    """Move the only file of each bucket to the last level, as a compaction does; how many moved."""
    context = table.context
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        return 0
    entries = context.history.live_entries(snapshot)
    files = Counter((entry.partition, entry.bucket) for entry in entries)
    messages = [
        CommitMessage(
            partition=entry.partition,
            bucket=entry.bucket,
            total_buckets=entry.total_buckets,
            compact_before=(entry.file,),
            compact_after=(replace(entry.file, level=5),),
            base_snapshot_id=snapshot.id,
        )
        for entry in entries
        if files[entry.partition, entry.bucket] == 1
        and entry.file.level == 0
        and entry.file.delete_row_count == 0
    ]
    if messages:
        table.commit(messages)
    return len(messages)
