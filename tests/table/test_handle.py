"""The object that a user holds: each method is one call to the verb of its name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget, process_budget
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from tests.tables import PATH, held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", None]})


def test_table_says_what_it_is() -> None:
    table = new_table()

    assert (table.identifier, table.path) == (PATH, PATH)
    assert table.schema.names == ("id", "v")
    assert table.options.bucket == 1
    assert repr(table) == f"Table({PATH!r}, schema=0, path={PATH!r})"


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        ROWS.to_reader(),
        pl.from_arrow(ROWS),
        pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
        ROWS.to_pylist(),
        iter(ROWS.to_batches()),
    ],
    ids=["table", "batch", "reader", "frame", "lazy frame", "dicts", "iterator"],
)
def test_rows_are_taken_from_anything_that_holds_them(data: object) -> None:
    table = new_table()
    table.write(data)

    assert held(table) == "1 a | 2 _"


def test_rows_of_a_query_are_taken() -> None:
    table = new_table()
    with duckdb.connect() as connection:
        table.write(connection.sql("SELECT 3::INTEGER AS id, 'c' AS v"))

    assert held(table) == "3 c"


def test_rows_are_given_out_in_every_form() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")
    wanted = [{"id": 2, "v": "b"}]

    assert table.to_arrow(where="id = 2").to_pylist() == wanted
    assert table.to_polars(where=pl.col("id") == 2).to_dicts() == wanted
    assert table.scan().filter(pl.col("v") == "b").collect().to_dicts() == wanted
    assert table.to_pandas(where="v = 'b'").to_dict("records") == wanted
    assert table.to_batches(where="id = 2").read_all().to_pylist() == wanted
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection).filter("id = 2")
        assert relation.fetchall() == [(2, "b")]
    dataset = table.to_arrow_dataset()
    assert dataset.to_table(filter=pa.compute.field("id") == 2).to_pylist() == wanted


def test_columns_and_limit_are_as_asked() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")

    assert table.to_arrow(["v"], "id > 1", 1).schema.names == ["v"]
    assert table.to_arrow(["v"], "id > 1", 1).num_rows == 1
    assert table.to_polars(["v", "id"]).columns == ["v", "id"]
    assert table.scan(limit=2).collect().height == 2
    for read in (table.to_arrow, table.to_polars, table.explain):
        with pytest.raises(InvalidRequest, match=r"unknown column\. column=nope"):
            read(["nope"])


def test_rows_come_in_the_types_of_the_schema() -> None:
    columns = {"id": "INT NOT NULL", "t": "TIME(3)", "b": "BINARY(2)", "m": "MAP<STRING, INT>"}
    table = new_table(columns)
    data = pa.table(
        [
            pa.array([1], pa.int32()),
            pa.array([5000], pa.time32("ms")),
            pa.array([b"ab"], pa.binary()),
            pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int32())),
        ],
        names=list(columns),
    )
    table.write(data)

    assert table.to_arrow().schema == table.schema.arrow
    assert table.to_arrow().to_pylist() == data.to_pylist()


def test_copy_has_its_own_options_and_changes_nothing() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "1 b")
    copied = table.copy({"scan.snapshot-id": "1"})

    assert (held(copied), held(table)) == ("1 a", "1 b")
    assert held(copied.copy({"write-buffer-size": "1 mb"})) == "1 a"
    assert held(reopened(table)) == "1 b"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket": "x"}, "option=bucket"),
        ({"bucket": "3"}, "alter the table"),
        ({"merge-engine": "aggregation"}, "merge-engine"),
        ({"primary-key": "v"}, "primary-key"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "x"}, "scan"),
    ],
)
def test_copy_refuses_what_may_not_change(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        new_table().copy(options)


def altered(table: Table) -> None:
    """Add the column `note` to the newest schema."""
    change = SchemaChange.add_column("note", "STRING")
    schema = evolve(table.schema, [change], now_ms=0, has_snapshots=True)
    assert write_schema(table.context.store, table.context.layout, schema)


def test_refreshed_table_has_the_newest_schema_and_its_own_options() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "1 b")
    pinned = table.copy({"scan.snapshot-id": "1"})
    altered(table)

    assert table.refresh().schema.names == ("id", "v", "note")
    assert (held(pinned.refresh()), held(table.refresh())) == ("1 a", "1 b _")
    assert pinned.refresh().options.texts == pinned.options.texts
    assert table.refresh().context.budget is table.context.budget


def test_refreshed_table_stays_on_its_branch() -> None:
    table = new_table()
    put(table, "1 a")
    layout = Layout(root=PATH, branch="b1")
    assert write_schema(table.context.store, layout, table.schema)
    branch = load_table(table.context.store, PATH, branch="b1", ambient=seeded(5))
    put(branch, "2 b")
    altered(branch)

    assert held(branch.refresh()) == "2 b _"
    assert held(table) == "1 a"


def test_there_must_be_a_table() -> None:
    with pytest.raises(NotFound, match=r"no table here.* path=memory://w/t branch=main"):
        load_table(MemoryStore(), "memory://w/t/")
    table = new_table()
    with pytest.raises(NotFound, match="branch=b1"):
        load_table(table.context.store, PATH, dynamic_options={"branch": "b1"})


def test_table_is_named_by_who_opens_it() -> None:
    store = new_table().context.store
    table = load_table(store, PATH + "/", identifier="shop.orders")

    assert (table.identifier, table.path) == ("shop.orders", PATH)
    assert table.context.budget is process_budget()


def test_schema_is_written_where_there_is_none() -> None:
    table = new_table()

    assert not write_schema(table.context.store, table.context.layout, table.schema)


def test_write_in_two_phases_is_one_commit() -> None:
    table = new_table(bucket="3")
    with table.new_write() as writer:
        for line in ("1 a | 2 b", "1 c | 3 d"):
            writer.write(rows(table.schema, line))
        result = table.commit(writer.prepare_commit(), identifier=4, commit_user="job")

    assert (result.snapshot_ids, result.identifier, result.commit_user) == ((1,), 4, "job")
    assert held(table) == "1 c | 2 b | 3 d"
    assert (table.last_identifier("job"), table.last_identifier("x")) == (4, None)


def test_commit_without_a_user_draws_one() -> None:
    table = new_table(commit__user_prefix="nightly")
    users = [table.write(rows(table.schema, "1 a")).commit_user for _ in range(2)]

    assert users[0] != users[1]
    assert all(user.startswith("nightly_") for user in users)
    assert put(new_table(), "1 a", commit_user="me") == 1


def test_row_that_does_not_fit_leaves_nothing() -> None:
    table = new_table()
    with pytest.raises(InvalidRequest, match="column=id"):
        table.write([{"id": 1, "v": "a"}, {"id": None, "v": "b"}])

    assert table.context.history.snapshot_ids() == ()
    assert table.context.store.list(f"{table.path}/bucket-0") == ()
    assert table.context.budget.used_bytes == 0


def test_memory_budget_of_a_table_is_that_of_its_process() -> None:
    budget = Budget(1 << 30)
    table = load_table(
        new_table().context.store,
        PATH,
        dynamic_options={"lakecore.memory-budget": "64 mb"},
        budget=budget,
    )

    assert budget.size_bytes == 64 << 20
    smaller = table.copy({"lakecore.memory-budget": "32 mb"})
    assert budget.size_bytes == 32 << 20
    for made in (table.refresh, lambda: table.copy({}), lambda: Table(table.context)):
        assert made().context.budget.size_bytes == 32 << 20
    assert smaller.refresh().context.budget.size_bytes == 32 << 20


def test_memory_budget_that_a_table_stores_counts_where_nobody_said_another() -> None:
    store = new_table(lakecore__memory_budget="64 mb").context.store
    first, stated = Budget(1 << 30), Budget(1 << 30)
    stated.set_size(1 << 28)
    for budget in (first, stated):
        load_table(store, PATH, budget=budget)

    assert (first.size_bytes, stated.size_bytes) == (64 << 20, 1 << 28)


@pytest.mark.parametrize("limit", [-1, 1.5, "2", True])
def test_limit_that_is_no_whole_number_is_refused(limit: object) -> None:
    table = new_table()
    put(table, "1 a | 2 b")

    for read in (table.scan, table.to_batches, table.to_arrow, table.to_polars):
        with pytest.raises(InvalidRequest, match="a limit must be a whole number"):
            read(limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id", "true or false"),
        (pl.col("id") + 1, "true or false"),
        (pl.col("id") > "a", "cannot be computed"),
        (pl.col("^zz.*$") > 0, "selects no column"),
        (pl.col("id") != pl.lit(None), r"with null.* is_null\(\)"),
        (~((pl.col("id") > 1) | (pl.lit(None, pl.Int8) < pl.col("id"))), "with null"),
    ],
    ids=str,
)
def test_condition_that_is_none_is_refused_before_anything_is_read(
    where: str | pl.Expr, message: str
) -> None:
    table = new_table()

    with pytest.raises(InvalidRequest, match=message):
        table.scan(where=where)
    with pytest.raises(InvalidRequest, match=message):
        table.to_arrow(where=where)
    with pytest.raises(InvalidRequest, match=message):
        table.explain(where=where)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (pl.lit(None), []),
        ((pl.col("id") > 0) & pl.lit(None), []),
        ((pl.col("id") > 0) & (pl.lit(None) & (pl.col("n") > 0)), []),
        ((pl.col("id") > 1) | pl.lit(None), [2, 3]),
        (pl.col("id", "n") > 1, [3]),
        (pl.all().is_not_null(), [1, 3]),
    ],
    ids=str,
)
def test_condition_of_several_columns_asks_for_all_of_them(where: pl.Expr, ids: list[int]) -> None:
    table = new_table({"id": "INT NOT NULL", "n": "INT"})
    put(table, "1 2 | 2 _ | 3 4")

    assert table.to_arrow(where=where)["id"].to_pylist() == ids
    assert table.scan(where=where).collect()["id"].to_list() == ids
    assert table.to_polars(where=where)["id"].to_list() == ids
    assert str(table.explain(where=where))


def test_condition_that_some_row_has_no_value_of_says_so() -> None:
    table = new_table()
    put(table, "1 a")

    for read in (table.to_arrow, table.to_polars):
        with pytest.raises(InvalidRequest, match=r"cannot be computed for each row.*strict_cast"):
            read(where=pl.col("v").cast(pl.Int32) > 0)


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_condition_may_be_a_function_in_python() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    where = pl.col("v").map_elements(lambda text: text == "b", return_dtype=pl.Boolean)

    assert table.to_arrow(where=where)["id"].to_pylist() == [2]
    assert table.to_polars(where=where)["id"].to_list() == [2]
    assert table.scan().filter(where).collect()["id"].to_list() == [2]


def test_a_text_is_one_column_and_not_several() -> None:
    table = new_table({"a": "INT", "b": "INT"}, keys=())

    with pytest.raises(InvalidRequest, match=r"unknown column\. column=ab"):
        table.to_arrow("ab")


@pytest.mark.parametrize("timestamp", [1.5, True, b"x"])
def test_timestamp_of_another_type_is_refused(timestamp: object) -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest, match="a timestamp is a datetime, a date"):
        table.to_arrow(timestamp=timestamp)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"write-only": [True]}, {5: "x"}, ["write-only"]])
def test_dynamic_options_that_are_no_texts_are_refused(options: object) -> None:
    with pytest.raises(InvalidRequest, match="text"):
        new_table().copy(options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "text", "rule"),
    [
        ("sequence.field", "nope", "sequence.field is not a column"),
        ("fields.nope.aggregate-function", "sum", "nope"),
    ],
)
def test_dynamic_options_keep_the_rules_of_a_new_table(key: str, text: str, rule: str) -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest, match=rule):
        table.copy({key: text})

    assert held(table) == "1 a"


VERBS: list[Callable[[Table], object]] = [
    Table.to_arrow,
    lambda table: table.to_arrow(snapshot_id=1),
    Table.changes,
    lambda table: table.changes(0, 1),
    lambda table: table.stream(1, "latest"),
    lambda table: table.stream(until="latest"),
    lambda table: table.last_identifier("job"),
    lambda table: table.inspect.snapshots(),
    lambda table: table.inspect.schemas(),
    lambda table: table.inspect.options(),
    lambda table: table.inspect.tags(),
    lambda table: table.inspect.files(),
    Table.truncate,
    lambda table: table.write([{"id": 2, "a": 3}]),
    lambda table: table.delete("id = 7"),
    lambda table: table.update({"a": 1}, "id = 7"),
    lambda table: table.merge([{"id": 7, "a": 1}], ["id"]).when_matched_update_all().execute(),
    Table.compact,
    lambda table: table.compact(dry_run=True),
]


def test_handle_of_a_table_that_was_dropped_is_refused() -> None:
    table = new_table({"id": "INT", "a": "INT"})
    put(table, "1 1")
    unguarded(table.context.store).delete_directory(table.path)

    for verb in VERBS:
        if verb == VERBS[1]:  # that snapshot is looked for first
            continue
        with pytest.raises(NotFound, match="it was dropped or renamed"):
            verb(table)


def test_stream_ends_where_another_table_takes_the_place() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "2 b")
    found = table.stream(1, "latest")
    next(found)
    unguarded(table.context.store).delete_directory(table.path)
    write_schema(
        table.context.store, table.context.layout, new_table({"id": "INT NOT NULL"}).schema
    )
    other = load_table(table.context.store, table.path)
    for number in (1, 2):
        other.write([{"id": number}])

    with pytest.raises(NotFound, match="another was made in its place"):
        next(found)


def test_handle_of_a_table_that_another_replaced_is_refused() -> None:
    table = new_table({"id": "INT", "a": "INT"})
    put(table, "1 1")
    store = table.context.store
    unguarded(store).delete_directory(table.path)
    write_schema(
        store,
        table.context.layout,
        new_table({"id": "INT", "b": "STRING", "a": "INT"}).context.schema,
    )
    other = load_table(store, table.path)
    other.write([{"id": 1, "b": "x", "a": 2}])

    for verb in VERBS:
        with pytest.raises(NotFound, match="another was made in its place"):
            verb(table)
    assert other.to_arrow().to_pylist() == [{"id": 1, "b": "x", "a": 2}]


def test_handle_of_a_table_that_was_made_again_as_it_was_goes_on() -> None:
    table = new_table({"id": "INT", "a": "INT"})
    put(table, "1 1")
    schema = table.context.schema
    unguarded(table.context.store).delete_directory(table.path)
    write_schema(table.context.store, table.context.layout, replace(schema, time_ms=77))
    put(table, "2 2")

    assert held(table) == "2 2"


NOT_WHAT_IS_TAKEN: dict[str, Callable[[Any], object]] = {
    "columns 7": lambda table: table.to_polars(7),
    "columns [None]": lambda table: table.to_arrow([None]),
    "columns twice in a frame": lambda table: table.scan(["id", "id"]),
    "where 7": lambda table: table.to_polars(where=7),
    "where of batches": lambda table: table.to_batches(where=["id = 1"]),
    "where of explain": lambda table: table.explain(where=7),
    "where of changes": lambda table: table.changes(where=7),
    "where that is not Unicode": lambda table: table.scan(where="v = '\ud800'"),
    "where of compact": lambda table: table.compact(where=7),
    "snapshot_id of text": lambda table: table.scan(snapshot_id="1"),
    "snapshot_id True": lambda table: table.scan(snapshot_id=True),
    "tag 1": lambda table: table.scan(tag=1),
    "tag of a list": lambda table: table.to_duckdb(tag=["a"]),
    "timestamp of a frame": lambda table: table.scan(timestamp=pl.DataFrame()),
    "connection": lambda table: table.to_duckdb("shop.duckdb"),
    "partition 0": lambda table: table.overwrite(ROWS, 0),
    "partition of text": lambda table: table.overwrite(ROWS, "id=1"),
    "partition to drop": lambda table: table.drop_partition("id=1"),
    "values": lambda table: table.update("v"),
    "value of 100 bits": lambda table: table.update({"id": 1 << 100}),
    "value that is not Unicode": lambda table: table.update({"v": "\ud800"}),
    "on 7": lambda table: table.merge(ROWS, 7).when_matched_delete().execute(),
    "condition 7": lambda table: table.merge(ROWS, ["id"]).when_matched_delete(7).execute(),
    "values of a merge": lambda table: table.merge(ROWS, ["id"]).when_matched_update(["v"]),
    "no values to update": lambda table: table.merge(ROWS, ["id"]).when_matched_update(None),
    "no values to insert": lambda table: table.merge(ROWS, ["id"]).when_not_matched_insert(None),
    "no values by source": lambda table: table.merge(
        ROWS, ["id"]
    ).when_not_matched_by_source_update(None),
    "value that is a Python object": lambda table: table.update(
        {"v": pl.col("v").map_elements(lambda _: object(), return_dtype=pl.Object)}
    ),
    "full 'no'": lambda table: table.compact(full="no"),
    "dry_run 1": lambda table: table.compact(dry_run=1),
    "dynamic 'false'": lambda table: table.overwrite(ROWS, dynamic="false"),
    "max_bytes of text": lambda table: table.compact(max_bytes="1 mb"),
    "max_bytes 1.5": lambda table: table.compact(max_bytes=1.5),
    "buckets of text": lambda table: table.compact(buckets="0"),
    "bucket of text": lambda table: table.compact(buckets=["0"]),
    "partitions 7": lambda table: table.compact(partitions=7),
    "watermark of 65 bits": lambda table: table.commit([], watermark=1 << 64),
    "identifier without a user": lambda table: table.write(ROWS, identifier=1),
    "identifier of messages without a user": lambda table: table.commit([], identifier=1),
    "commit_user of a list": lambda table: table.last_identifier(["a"]),
    "system table 7": lambda table: table.inspect.system_table(["files"]),
}


@pytest.mark.parametrize("what", NOT_WHAT_IS_TAKEN)
def test_argument_that_is_not_what_is_taken_is_refused(what: str) -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest):
        NOT_WHAT_IS_TAKEN[what](table)
    assert table.context.history.latest_snapshot_id() == 1


def test_limit_above_all_rows_is_none() -> None:
    table = new_table()
    put(table, "1 a | 2 b")

    assert table.to_polars(limit=1 << 40).height == 2
    assert table.to_arrow(limit=1 << 100).num_rows == 2


@pytest.mark.parametrize(
    "held_by",
    [
        lambda table: table,
        lambda table: table.inspect,
        lambda table: table.new_write(),
        lambda table: table.to_arrow_dataset(),
        lambda table: table.inspect.system_table("files"),
        lambda table: table.to_arrow,
    ],
)
def test_table_is_not_pickled(held_by: Callable[[Table], object]) -> None:
    with pytest.raises(Unsupported, match=r"open it in the other process.*open_table\(path"):
        pickle.dumps(held_by(new_table()))


def test_condition_on_several_rows_is_for_a_scan() -> None:
    table = new_table({"a": "BIGINT"}, keys=())
    for first in (0, 10, 20):
        table.write(pl.DataFrame({"a": range(first, first + 5)}))
    above = pl.col("a") > pl.col("a").mean()

    assert table.scan(where=above).collect().height == 7
    assert table.to_arrow(where=pl.all() > 12).num_rows == 7
    with pytest.raises(InvalidRequest, match="one row at a time"):
        table.to_arrow(where=above)
    with pytest.raises(InvalidRequest, match=r"with null.* is_null\(\)"):
        table.to_arrow(where=pl.col("a") == pl.lit(None))


def test_a_read_without_a_merge_loads_little(tmp_path: Path) -> None:
    lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"}).write([{"id": 1}])
    code = f"""
import sys, lakecore
assert lakecore.open_table({str(tmp_path / "t")!r}).to_polars(limit=5).height == 1
heavy = ("pandas", "duckdb", "lakecore.table.verbs", "lakecore.table.commits")
print([name for name in sys.modules if name.startswith(heavy)])
"""

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
