"""filter(read) = read(filter), however files are cut: what is pruned shows in no face of a read.

Tables are drawn with files of many row groups, with buckets whose files lie in the last level, and
with partitions that were overwritten; beside them stand by name the cases where a careless filter
would bring an older row back.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.model.validation import create_schema
from lakecore.plan.predicate import from_polars
from lakecore.table.handle import load_table
from lakecore.table.publication import write_schema
from lakecore.table.reads.source import TableSource
from lakecore.table.splits import read_planner
from lakecore.testing.condition_draws import Condition, conditions
from lakecore.testing.table_draws import (
    WRITES,
    Shape,
    append_shapes,
    batch_of,
    keyed_shapes,
    rows_by_id,
    schema_changes,
    with_options,
)
from lakecore.testing.values import counted_arrow
from property_tests.filter_draws import cut_row_groups, settle
from tests.tables import PATH, held, new_table, put, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.stores.store import Store
    from lakecore.model.files import CommitMessage
    from lakecore.model.schema_change import Change
    from lakecore.table.handle import Table

ROWS = 400_000
LIMIT = 2
# An example reads its table some twenty times.
FEWER = settings(max_examples=settings().max_examples // 2)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="module", autouse=True)
def polars_reads() -> Iterator[None]:
    """Of local files, however small, Polars reads the rows that come out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_planner, "_ROWS_MIN", 0)
        yield


# --- drawn tables and conditions ----------------------------------------------------------------


@FEWER
@given(shape=keyed_shapes(), data=st.data())
def test_filter_of_a_read_is_the_read_of_a_filter_with_keys(
    duck: duckdb.DuckDBPyConnection, shape: Shape, data: st.DataObject
) -> None:
    if data.draw(st.booleans(), "on local files"):
        with TemporaryDirectory() as directory:
            table = drawn_table(LocalStore(), f"{directory}/shop.db/orders", shape, data)

            assert_faces_agree(table, duck, data)
        return
    store = MemoryStore()
    table = drawn_table(store, PATH, shape, data)
    if data.draw(st.booleans(), "cut row groups"):
        cut_row_groups(store, PATH, 2, integers=data.draw(st.booleans(), "decimals as integers"))

    assert_faces_agree(table, duck, data)


@FEWER
@given(shape=append_shapes(), data=st.data())
def test_filter_of_a_read_is_the_read_of_a_filter_without_keys(
    duck: duckdb.DuckDBPyConnection, shape: Shape, data: st.DataObject
) -> None:
    if data.draw(st.booleans(), "on local files"):
        with TemporaryDirectory() as directory:
            table = drawn_table(LocalStore(), f"{directory}/shop.db/orders", shape, data)

            assert_faces_agree(table, duck, data)
    else:
        store = MemoryStore()
        table = drawn_table(store, PATH, shape, data)
        cut_row_groups(store, PATH, 2, integers=data.draw(st.booleans(), "decimals as integers"))

        assert_faces_agree(table, duck, data)


def drawn_table(store: Store, path: str, shape: Shape, data: st.DataObject) -> Table:
    """A table after some commits and changes of its schema."""
    ambient, layout, budget = seeded(7), Layout(root=path), Budget(1 << 30)
    schema = create_schema(
        shape.columns,
        primary_keys=shape.primary_keys,
        partition_keys=shape.partition_keys,
        options=shape.options,
        now_ms=0,
    )
    assert write_schema(store, layout, schema)
    keyed = bool(schema.primary_keys)
    for step in range(data.draw(st.integers(1, 3), "commits")):
        table = load_table(store, path, ambient=ambient, budget=budget)
        writer = with_options(table, data.draw(WRITES))
        verbs = ["write", "write", "overwrite", "settle", "side by side"]
        verb = data.draw(
            st.sampled_from(verbs[: -1 if keyed and table.options.bucket == -1 else 5])
        )
        batches = [
            batch_of(schema, data.draw(rows_by_id(schema, kinds=keyed, max_size=12)))
            for _ in range(1 + (verb == "side by side"))
        ]
        if verb == "overwrite":
            writer.overwrite(batches, dynamic=True)
        elif verb == "side by side":
            # Rows of both commits have the same sequence numbers.
            for messages in data.draw(st.permutations([*map(partial(prepared, writer), batches)])):
                table.commit(messages)
        else:
            writer.write(batches)
        if verb == "settle" and keyed:
            settle(table)
        if data.draw(st.integers(0, 2), "alter") == 0:
            change = data.draw(schema_changes(schema, f"n{step}"))
            schema = evolve(schema, [change], now_ms=step, has_snapshots=True)
            assert write_schema(store, layout, schema)
    return load_table(store, path, ambient=ambient, budget=budget)


def prepared(table: Table, batch: pa.RecordBatch) -> list[CommitMessage]:
    with table.new_write() as writer:
        writer.write(batch)
        return writer.prepare_commit()


def assert_faces_agree(table: Table, duck: duckdb.DuckDBPyConnection, data: st.DataObject) -> None:
    names = st.lists(st.sampled_from(table.schema.names), min_size=1, unique=True)
    condition = data.draw(conditions(table.schema), "condition")
    assert_filtered(table, duck, condition, data.draw(names, "columns"))


def assert_filtered(
    table: Table, duck: duckdb.DuckDBPyConnection, condition: Condition, columns: list[str]
) -> None:
    """Each face gives these columns of the matching rows, as many as there are, or the limit."""
    where, sql, quoted = condition.as_polars(), condition.as_sql(), ", ".join(columns)
    # Text that is an infinite number or none is DuckDB's alone.
    said = where if "'::double" in sql else sql
    everything = table.to_arrow()
    mask = pl.DataFrame(everything).select(pl.all_horizontal(where).alias("it"))["it"]
    kept = everything.filter(mask.to_arrow())
    relation, lazy = table.to_duckdb(duck).filter(sql), table.scan().filter(where)

    def ask(selected: str, rest: str = "") -> pa.Table:
        duck.register("it", table.to_arrow_dataset())
        return duck.sql(f"select {selected} from it where {sql} {rest}").to_arrow_table()

    found = {
        "scan, expression": lazy.select(columns).collect().to_arrow(),
        "scan, sql": table.scan(columns, said).collect().to_arrow(),
        "arrow, expression": table.to_arrow(columns, where),
        "arrow, sql": table.to_arrow(columns, said),
        "relation": relation.select(quoted).to_arrow_table(),
        "dataset": ask(quoted),
    }
    wanted = counted_arrow(kept.select(columns))
    for face, read in found.items():
        assert counted_arrow(read) == wanted, (face, sql)
    scanner = partial(
        table.to_arrow_dataset().scanner, columns=columns, filter=condition.as_arrow()
    )
    kept_by_arrow = counted_arrow(everything.filter(condition.as_arrow()).select(columns))
    assert counted_arrow(scanner().to_table()) == kept_by_arrow, sql

    counts = {
        "scan": lazy.select(pl.len()).collect().item(),
        "arrow": table.to_arrow([], where).num_rows,
        "relation": relation.aggregate("count(*)").fetchall()[0][0],
        "dataset": ask("count(*) n")["n"][0].as_py(),
    }
    assert counts == dict.fromkeys(counts, kept.num_rows), sql
    assert table.scan().select(pl.len()).collect().item() == everything.num_rows

    limited = {
        "scan": table.scan(columns, where, LIMIT).collect().height,
        "arrow": table.to_arrow(columns, said, LIMIT).num_rows,
        "relation": relation.limit(LIMIT).to_arrow_table().num_rows,
        "dataset": ask("1", f"limit {LIMIT}").num_rows,
    }
    assert limited == dict.fromkeys(limited, min(kept.num_rows, LIMIT)), sql
    assert scanner().head(LIMIT).num_rows == min(kept_by_arrow.total(), LIMIT), sql


# --- no condition on values brings an older row back --------------------------------------------


def found(table: Table, condition: str) -> str:
    """The matching rows, on which all faces agree."""
    with closing(duckdb.connect()) as connection:
        connection.register("it", table.to_arrow_dataset())
        lines = {
            "arrow": held(table, where=condition),
            "polars": shown(table.scan(where=condition).collect().to_arrow()),
            "dataset": shown(
                connection.sql(f"select * from it where {condition}").to_arrow_table()
            ),
            "duckdb": shown(table.to_duckdb(connection).filter(condition).to_arrow_table()),
        }
    assert len(set(lines.values())) == 1, lines
    return lines["arrow"]


def written(table: Table, *lines: str) -> Table:
    """The table after a commit of each line, all files cut to row groups of one row."""
    for line in lines:
        put(table, line)
    cut_row_groups(table.context.store, table.path, 1)
    return table


def altered(table: Table, *changes: Change) -> Table:
    """The table under its next schema."""
    schema = evolve(table.schema, [*changes], now_ms=1, has_snapshots=True)
    assert write_schema(table.context.store, Layout(root=table.path), schema)
    return table.refresh()


@pytest.mark.parametrize("settled", [False, True])
def test_older_row_does_not_come_back_for_a_condition_that_the_newest_fails(
    *, settled: bool
) -> None:
    table = new_table()
    put(table, "1 old | 2 old | 3 old")
    if settled:
        assert settle(table) == 1
    written(table, "1 new")

    assert found(table, "v = 'old'") == "2 old | 3 old"
    assert found(table, "v = 'old' and id = 1") == ""
    assert found(table, "v = 'old' and id <= 2") == "2 old"
    assert found(table, "v = 'old' or id = 1") == "1 new | 2 old | 3 old"
    assert found(table, "not (v <> 'old' and id < 3)") == "2 old | 3 old"
    assert found(table, "v is null") == ""


def test_newest_row_in_a_file_that_cannot_match_still_hides_the_older() -> None:
    table = written(new_table(), "1 a | 2 b", "2 z", "1 z | 2 y")

    assert found(table, "v < 'c'") == ""
    assert found(table, "v in ('a', 'b', 'z')") == "1 z"


@pytest.mark.parametrize("settled", [False, True])
def test_deleted_row_does_not_come_back(*, settled: bool) -> None:
    table = new_table()
    put(table, "1 a | 2 a | 3 a")
    if settled:
        assert settle(table) == 1
    written(table, "-D 2 _")

    assert found(table, "v = 'a'") == "1 a | 3 a"
    assert found(table, "id = 2") == ""
    assert found(table, "v is not null and id >= 2") == "3 a"


def test_null_hides_the_value_before_it() -> None:
    table = written(new_table(), "1 a | 2 b", "1 _")

    assert found(table, "v is not null") == "2 b"
    assert found(table, "v is null") == "1 _"
    assert found(table, "v = 'a'") == ""


def test_row_that_came_late_by_its_sequence_field_does_not_show() -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "changed": "INT"}
    table = new_table(columns, sequence__field="changed")
    written(table, "1 new 9 | 2 new 9", "1 late 5", "2 last 10")

    assert found(table, "v = 'late'") == ""
    assert found(table, "changed < 9") == ""
    assert found(table, "v = 'new'") == "1 new 9"
    assert found(table, "changed = 9 and id = 2") == ""


def test_row_of_an_overwritten_partition_does_not_come_back() -> None:
    columns = {"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
    table = new_table(columns, keys=["p", "id"], partitions=["p"])
    put(table, "1 1 a | 1 2 a | 2 1 a")
    table.overwrite(pa.table({"p": [1], "id": [1], "v": ["b"]}), partition={"p": 1})
    written(table)

    assert found(table, "v = 'a'") == "2 1 a"
    assert found(table, "p = 1") == "1 1 b"
    assert found(table, "p = 1 and id = 2") == ""
    assert found(table, "v = 'a' and p < 2") == ""


@pytest.mark.parametrize("keys", [("id",), ()])
def test_column_dropped_and_added_again_has_forgotten_its_values(keys: tuple[str, ...]) -> None:
    table = new_table(keys=keys)
    put(table, "1 a | 2 b")
    table = altered(table, SchemaChange.drop_column("v"))
    table = altered(table, SchemaChange.add_column("v", "STRING"))
    written(table, "3 a | 4 _")

    assert found(table, "v = 'a'") == "3 a"
    assert found(table, "v is null") == "1 _ | 2 _ | 4 _"
    assert found(table, "v is null and id < 3") == "1 _ | 2 _"
    assert found(table, "v <> 'b' or id = 2") == "2 _ | 3 a"


@pytest.mark.parametrize("keys", [("id",), ()])
def test_columns_that_swapped_names_are_pruned_by_their_own_values(keys: tuple[str, ...]) -> None:
    table = new_table({"id": "INT NOT NULL", "a": "INT", "b": "INT"}, keys=keys)
    put(table, "1 10 100 | 2 20 200")
    table = altered(
        table,
        SchemaChange.rename_column("a", "x"),
        SchemaChange.rename_column("b", "a"),
        SchemaChange.rename_column("x", "b"),
    )
    written(table, "3 100 10 | 4 200 20")

    assert table.schema.names == ("id", "b", "a")
    assert found(table, "a = 10") == "3 100 10"
    assert found(table, "b = 10") == "1 10 100"
    assert found(table, "a >= 100") == "1 10 100 | 2 20 200"
    assert found(table, "a < 100 and id < 3") == ""


@pytest.mark.parametrize("keys", [("id",), ()])
def test_column_that_was_widened_is_compared_in_its_new_type(keys: tuple[str, ...]) -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"}, keys=keys)
    put(table, "1 9 | 2 10 | 3 _")
    table = altered(table, SchemaChange.update_column_type("v", "STRING"))
    written(table, "4 95 | 5 1")

    assert found(table, "v > '2'") == "1 9 | 4 95"
    assert found(table, "v < '2'") == "2 10 | 5 1"
    assert found(table, "starts_with(v, '1')") == "2 10 | 5 1"
    assert found(table, "v is null") == "3 _"


@pytest.mark.parametrize("keys", [("id",), ()])
def test_column_that_was_narrowed_is_not_pruned_by_what_it_was(keys: tuple[str, ...]) -> None:
    table = new_table(keys=keys)
    put(table, "1 abc | 2 abd | 3 b")
    table = altered(table, SchemaChange.update_column_type("v", "VARCHAR(2)"))
    written(table, "4 c")

    assert found(table, "v = 'ab'") == "1 ab | 2 ab"
    assert found(table, "v <= 'ab'") == "1 ab | 2 ab"
    assert found(table, "v > 'ab'") == "3 b | 4 c"


def test_key_that_was_renamed_prunes_by_its_own_values() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"}, bucket="3")
    put(table, "1 7 | 2 8 | 7 1")
    table = altered(
        table, SchemaChange.rename_column("id", "key"), SchemaChange.rename_column("v", "id")
    )
    written(table, "7 2 | 8 3")

    assert found(table, "id = 7") == "1 7"
    assert found(table, "key = 7") == "7 2"
    assert found(table, "key = 7 and id = 1") == ""


# --- row groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("id",), ()])
def test_row_groups_that_cannot_match_are_not_read(
    duck: duckdb.DuckDBPyConnection, keys: tuple[str, ...]
) -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"}, keys=keys)
    ids = np.arange(ROWS, dtype=np.int32)
    table.write(pa.table({"id": ids, "v": ids // 1000}))
    newer = ids[1000::1000]
    table.write(pa.table({"id": newer, "v": np.full(len(newer), -1, np.int32)}))
    id_, v = table.schema.fields
    one_key = Condition(("compare", id_, "=", 250_000))
    one_value = Condition(("compare", v, "=", 399))
    others = [
        ("in", id_, [5, 131_072, 399_999]),
        ("and", ("compare", v, "=", 3), ("compare", id_, "<", 100_000)),
        ("not", ("compare", id_, ">=", 1000)),
        ("compare", id_, "<", 0),
    ]
    for condition in (one_key, one_value, *map(Condition, others)):
        assert_filtered(table, duck, condition, ["v"])

    one_group = 131_072 + len(newer)
    assert rows_read(table, one_key) <= one_group
    if keys:
        assert rows_read(table, one_value) == ROWS
    else:
        assert rows_read(table, one_value) <= one_group


def rows_read(table: Table, condition: Condition) -> int:
    """How many rows the source gives out before a face filters them."""
    source = TableSource(
        context=table.context,
        snapshot=table.context.history.latest_snapshot(),
        table_schema=table.schema,
    )
    predicate = from_polars(condition.as_polars(), source.schema)
    return sum(batch.num_rows for batch in source.batches(["v"], predicate))
