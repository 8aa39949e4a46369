"""A filter given to a read keeps the rows that it keeps of the whole, whatever was left unread.

Files, buckets, partitions and row groups are skipped by what is known of them; the law is that no
face shows it. Most tables overlap: a row that is hidden by a newer one must not come back because
the newer one does not match. Some commits were prepared side by side from one snapshot, so that
their rows share sequence numbers.
"""

from __future__ import annotations

import math
import operator
import tempfile
from contextlib import closing, contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.model.evolution import evolve
from lakecore.model.types import Array, arrow_field
from lakecore.model.validation import create_schema
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from lakecore.testing.table_draws import (
    Shape,
    append_shapes,
    batch_of,
    keyed_shapes,
    rows_by_id,
    schema_changes,
    values,
)
from lakecore.testing.values import counted_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field

COMPARES = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@contextmanager
def somewhere(*, local: bool) -> Iterator[tuple[Store, str]]:
    """A store, and a path of a table in it. Local files may be read by engines themselves."""
    if local:
        with tempfile.TemporaryDirectory() as directory:
            yield LocalStore(), f"{directory}/orders"
    else:
        yield MemoryStore(), "memory://warehouse/orders"


def build(store: Store, path: str, shape: Shape, data: st.DataObject) -> Table:
    """A table of some commits, a few of them prepared before others were made."""
    schema = create_schema(
        shape.columns,
        primary_keys=shape.primary_keys,
        partition_keys=shape.partition_keys,
        options=shape.options,
        now_ms=0,
    )
    keyed = bool(schema.primary_keys)
    layout = Layout(root=path)
    write_schema(store, layout, schema)
    ambient = seeded(1)
    for step in range(data.draw(st.integers(1, 3), "rounds")):
        table = load_table(store, path, ambient=ambient)
        dynamic = keyed and table.options.bucket == -1
        prepared = []
        for _ in range(1 if dynamic else data.draw(st.integers(1, 2), "writers")):
            with table.new_write() as writer:
                drawn = data.draw(rows_by_id(schema, kinds=keyed, max_size=4))
                writer.write(batch_of(schema, drawn))
                prepared.append(writer.prepare_commit())
        for messages in data.draw(st.permutations(prepared), "order of commits"):
            table.commit(messages)
        change = data.draw(st.one_of(st.none(), st.none(), schema_changes(schema, f"n{step}")))
        if change is not None:
            schema = evolve(schema, [change], now_ms=0, has_snapshots=True)
            write_schema(store, layout, schema)
    return load_table(store, path, ambient=ambient)


# A condition: ("and" | "or", left, right), ("not", inner), ("null", column),
# ("in", column, values) or (comparison, column, value).
Tree = tuple[Any, ...]


def conditions(schema: TableSchema, *, in_sql: bool) -> st.SearchStrategy[Tree]:
    """Conditions on the columns of a schema, with values that its rows may hold."""
    comparable = [f for f in schema.fields if _is_comparable(f, in_sql=in_sql)]
    leaves: list[st.SearchStrategy[Tree]] = [
        st.tuples(st.just("null"), st.sampled_from(schema.names))
    ]
    for column in comparable:
        value = values(column.type).filter(_is_finite if in_sql else _is_number)
        name = st.just(column.name)
        leaves += [
            st.tuples(st.sampled_from([*COMPARES]), name, value),
            st.tuples(st.just("in"), name, st.lists(value, min_size=1, max_size=3)),
        ]
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=4,
    )


def _is_comparable(column: Field, *, in_sql: bool) -> bool:
    kind = arrow_field(column).type
    if isinstance(column.type, Array):
        return False
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return not (in_sql and (zoned or pa.types.is_time(kind) or pa.types.is_binary(kind)))


def _is_number(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _is_finite(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def as_polars(tree: Tree, schema: TableSchema) -> pl.Expr:
    match tree:
        case ("and", left, right):
            return as_polars(left, schema) & as_polars(right, schema)
        case ("or", left, right):
            return as_polars(left, schema) | as_polars(right, schema)
        case ("not", inner):
            return ~as_polars(inner, schema)
        case ("null", name):
            return pl.col(name).is_null()
        case ("in", name, several):
            return pl.col(name).is_in(_series(several, schema.field(name)))
        case (compare, name, value):
            result: pl.Expr = COMPARES[compare](
                pl.col(name), pl.lit(_series([value], schema.field(name)).item())
            )
            return result
    raise AssertionError(tree)


def _series(several: list[Any], column: Field) -> pl.Series:
    series = pl.from_arrow(pa.array(several, arrow_field(column).type))
    assert isinstance(series, pl.Series)
    return series


def as_arrow(tree: Tree, schema: TableSchema) -> pc.Expression:
    match tree:
        case ("and", left, right):
            return as_arrow(left, schema) & as_arrow(right, schema)
        case ("or", left, right):
            return as_arrow(left, schema) | as_arrow(right, schema)
        case ("not", inner):
            return ~as_arrow(inner, schema)
        case ("null", name):
            return pc.field(name).is_null()
        case ("in", name, several):
            return pc.field(name).isin(pa.array(several, arrow_field(schema.field(name)).type))
        case (compare, name, value):
            literal = pa.scalar(value, arrow_field(schema.field(name)).type)
            return COMPARES[compare](pc.field(name), literal)
    raise AssertionError(tree)


def as_sql(tree: Tree) -> str:
    match tree:
        case ("and" | "or" as both, left, right):
            return f"({as_sql(left)} {both} {as_sql(right)})"
        case ("not", inner):
            return f"(not {as_sql(inner)})"
        case ("null", name):
            return f"{name} is null"
        case ("in", name, several):
            return f"{name} in ({', '.join(_literal(value) for value in several)})"
        case (compare, name, value):
            return f"{name} {compare} {_literal(value)}"
    raise AssertionError(tree)


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return f"timestamp '{value}'"
        case date():
            return f"date '{value}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


class Whole:
    """A table that was read without a filter, and how each language filters it then and there."""

    def __init__(self, table: Table, connection: duckdb.DuckDBPyConnection) -> None:
        self.table = table
        self.rows = table.to_arrow()
        self.frame = table.to_polars()
        self.relation = table.to_duckdb(connection)
        self.connection = connection.register("whole", self.rows)

    def check(self, form: str, tree: Tree, columns: list[str], limit: int) -> None:
        """That a read with the condition, in each face that takes it, gives what is wanted."""
        found = getattr(self, f"in_{form}")(tree, columns, limit)
        wanted, *others = [counted_arrow(each) for each in found]
        *all_rows, some = others
        for each in all_rows:
            assert each == wanted
        assert some <= wanted
        assert some.total() == min(limit, wanted.total())

    def in_polars(self, tree: Tree, columns: list[str], limit: int) -> list[pa.Table]:
        where = as_polars(tree, self.table.schema)
        return [
            self.frame.filter(where).select(columns).to_arrow(),
            self.table.scan(columns, where).collect().to_arrow(),
            self.table.scan().filter(where).select(columns).collect().to_arrow(),
            self.table.to_arrow(columns, where),
            self.table.to_arrow(columns, where, limit),
        ]

    def in_arrow(self, tree: Tree, columns: list[str], limit: int) -> list[pa.Table]:
        where = as_arrow(tree, self.table.schema)
        dataset = self.table.to_arrow_dataset()
        return [
            self.rows.filter(where).select(columns),
            dataset.scanner(columns=columns, filter=where).to_table(),
            dataset.scanner(columns=columns, filter=where).head(limit),
        ]

    def in_sql(self, tree: Tree, columns: list[str], limit: int) -> list[pa.Table]:
        where, names = as_sql(tree), ", ".join(columns)
        read = self.relation.filter(where).project(names)
        whole = self.connection.sql(f"select {names} from whole where {where}")
        return [
            whole.to_arrow_table(),
            read.to_arrow_table(),
            self.table.to_arrow(columns, where),
            read.limit(limit).to_arrow_table(),
        ]


@settings(max_examples=settings().max_examples // 3)  # each builds a table of many commits
@given(
    shape=st.one_of(keyed_shapes(), keyed_shapes(), append_shapes()),
    data=st.data(),
    local=st.booleans(),
)
def test_read_of_a_filter_is_the_filter_of_a_read_in_every_language(
    shape: Shape, data: st.DataObject, *, local: bool
) -> None:
    with somewhere(local=local) as (store, path), closing(duckdb.connect()) as connection:
        table = build(store, path, shape, data)
        whole = Whole(table, connection)
        for form in ("polars", "arrow", "sql"):
            tree = data.draw(conditions(table.schema, in_sql=form == "sql"), form)
            names = st.lists(st.sampled_from(table.schema.names), min_size=1, unique=True)
            whole.check(form, tree, data.draw(names, "columns"), data.draw(st.integers(0, 5)))
