"""The changes of a table between two points of its history."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, NotFound, Unsupported
from lakecore.format import metadata
from lakecore.frames.source import engine_files
from lakecore.io.ambient import Clock, seeded
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.model.snapshot import Tag
from lakecore.model.validation import create_schema
from lakecore.table.changes.between import changes_between
from lakecore.table.changes.wanted import column_to_count
from lakecore.table.publication import write_schema
from tests.reading import ReadingStore
from tests.tables import changed, held, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table

START_MS = 1_700_000_000_000


def tag(table: Table, name: str, snapshot_id: int) -> None:
    context = table.context
    kept = Tag(name=name, snapshot=context.history.snapshot(snapshot_id))
    context.store.put(context.layout.tag(name), metadata.encode_tag(kept))


def expire(table: Table, *snapshot_ids: int) -> None:
    for snapshot_id in snapshot_ids:
        table.context.store.delete(table.context.layout.snapshot(snapshot_id))


def history(*lines: str, **options: Any) -> Table:
    """A table with a snapshot for each line, ten seconds one after the other."""
    ambient = seeded(1, Clock(START_MS))
    table = new_table(ambient=ambient, **options)
    for line in lines:
        put(table, line)
        ambient.sleep(10)
    return table


# --- what is taken of a snapshot -----------------------------------------------------------------


def test_table_without_changelog_gives_the_rows_that_were_added_as_stored() -> None:
    table = history("1 a | 2 b", "1 c | -D 2 b | -D 9 x")

    assert changed(table.changes()) == "+I 1 a | +I 2 b | +I 1 c | -D 2 b | -D 9 x"


def test_changelog_of_input_gives_every_row_that_was_written() -> None:
    table = history("1 a | 1 b | -D 1 b", "-U 1 b | +U 1 c", changelog_producer="input")

    assert changed(table.changes()) == "+I 1 a | +I 1 b | -D 1 b | -U 1 b | +U 1 c"


def test_table_without_key_gives_its_new_rows() -> None:
    table = history("1 a | 2 b", "3 c", keys=())
    table.delete("id = 2")

    assert changed(table.changes()) == "+I 1 a | +I 2 b | +I 3 c"


def test_compactions_and_overwrites_are_passed_over() -> None:
    table = history("1 a", "2 b")
    assert table.compact(full=True).snapshot_id == 3
    table.overwrite(rows(table.schema, "3 c"))
    put(table, "4 d")

    assert changed(table.changes()) == "+I 1 a | +I 2 b | +I 4 d"
    assert changed(table.changes(2, 4)) == ""


def test_rows_of_a_key_come_in_the_order_of_its_snapshots() -> None:
    lines = [f"1 v{number} | 2 w{number}" for number in range(30)]
    table = history(*lines, bucket="2")
    found = table.changes(where="id = 1").collect()

    assert found["v"].to_list() == [f"v{number}" for number in range(30)]


def test_mode_says_what_is_taken_whatever_the_producer() -> None:
    table = history("1 a | 1 b", "1 c | -D 2 x", changelog_producer="input")
    mode = "incremental-between-scan-mode"

    assert changed(table.copy({mode: "delta"}).changes()) == "+I 1 b | +I 1 c | -D 2 x"
    assert changed(table.copy({mode: "diff"}).changes(1)) == "+U 1 c"
    assert changed(history("1 a").copy({mode: "changelog"}).changes()) == ""


def test_rows_are_read_with_the_newest_schema() -> None:
    table = history("1 a")
    change = [SchemaChange.add_column("n", "INT"), SchemaChange.rename_column("v", "w")]
    context = table.context
    schema = evolve(table.schema, change, now_ms=0, has_snapshots=True)
    assert write_schema(context.store, context.layout, schema)
    table = table.refresh()
    put(table, "2 b 7")

    assert table.changes().collect().columns == ["_row_kind", "id", "w", "n"]
    assert changed(table.changes()) == "+I 1 a _ | +I 2 b 7"


# --- between which points ------------------------------------------------------------------------


def test_start_does_not_count_and_the_end_does() -> None:
    table = history("1 a", "2 b", "3 c")

    assert changed(table.changes(1, 2)) == "+I 2 b"
    assert changed(table.changes(0, 1)) == changed(table.changes(end=1)) == "+I 1 a"
    assert changed(table.changes(2)) == "+I 3 c"
    assert changed(table.changes(2, 2)) == ""
    assert changed(table.changes("1", "2")) == "+I 2 b"


def test_times_stand_for_the_newest_snapshot_of_then() -> None:
    table = history("1 a", "2 b", "3 c")

    def second(number: int) -> datetime:
        return datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=number)

    assert changed(table.changes(second(0), second(10))) == "+I 2 b"
    assert changed(table.changes(second(9), second(19))) == "+I 2 b"
    assert changed(table.changes(second(-5), second(5))) == "+I 1 a"
    assert changed(table.changes(second(-9), second(-5))) == ""
    assert changed(table.changes(second(50))) == ""


def test_nothing_has_changed_in_an_empty_table() -> None:
    assert changed(new_table().changes()) == ""
    assert new_table().changes().collect_schema() == {
        "_row_kind": pl.String,
        "id": pl.Int32,
        "v": pl.String,
    }


@pytest.mark.parametrize(("start", "end"), [(1, None), (None, 2), ("3", None), (0, 0)])
def test_empty_table_has_no_snapshot_to_name(start: int | str | None, end: int | None) -> None:
    with pytest.raises(NotFound, match="no snapshot yet"):
        new_table().changes(start, end)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (date(2023, 1, 1), "+I 1 a | +I 1 b"),
        (pd.Timestamp(START_MS + 5_000, unit="ms", tz="UTC"), "+I 1 b"),
        (np.datetime64("2023-01-01T00:00:00.000000001"), "+I 1 a | +I 1 b"),
        (datetime.fromtimestamp(START_MS / 1000 + 5, UTC).isoformat(), "+I 1 b"),
        ("2023-01-01", "+I 1 a | +I 1 b"),
        (np.int64(1), "+I 1 b"),
        ("2100-01-01", ""),
    ],
    ids=repr,
)
def test_a_time_may_come_in_any_form(start: Any, wanted: str) -> None:
    assert changed(history("1 a", "1 b").changes(start)) == wanted


@pytest.mark.parametrize("name", ["2023-01-01", "2023-01-01 10", "1"])
def test_a_tag_goes_before_the_time_or_number_that_its_name_is(name: str) -> None:
    table = history("1 a", "1 b", "1 c")
    tag(table, name, 2)

    assert changed(table.changes(name)) == "+I 1 c"
    assert changed(table.changes(end=name)) == "+I 1 a | +I 1 b"


@pytest.mark.parametrize("start", [None, 0, "0", "00", datetime(2030, 1, 1, tzinfo=UTC)])
def test_empty_table_has_no_changes_since_the_beginning(start: int | str | datetime | None) -> None:
    assert changed(new_table().changes(start)) == ""


@pytest.mark.parametrize("point", [True, False, 1.5, b"x"])
def test_what_is_no_point_is_refused_of_an_empty_table_too(point: Any) -> None:
    with pytest.raises(InvalidRequest, match="a snapshot id, a tag or a time"):
        new_table().changes(point)


def test_tag_and_snapshot_may_be_mixed() -> None:
    table = history("1 a", "1 b", "1 c")
    tag(table, "one", 1)

    assert changed(table.changes("one", 3)) == "+I 1 b | +I 1 c"
    assert changed(table.changes("one")) == "+I 1 b | +I 1 c"


@pytest.mark.parametrize(
    ("start", "end", "error", "message"),
    [
        (2, 1, InvalidRequest, "the start is after the end"),
        (True, None, InvalidRequest, "a point must be a snapshot id, a tag or a time"),
        (1.5, None, InvalidRequest, "a point must be a snapshot id, a tag or a time"),
        ("nosuch", None, NotFound, "no such tag, and neither a snapshot id nor a time"),
        (None, 9, NotFound, "no such snapshot yet.* snapshot_id=9 earliest=1 latest=2"),
        (7, None, NotFound, "no such snapshot yet.* snapshot_id=7"),
        (-1, None, NotFound, "the first snapshot of a table is 1"),
    ],
)
def test_points_that_cannot_be_are_refused(
    start: Any, end: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        history("1 a", "1 b").changes(start, end)


def test_changes_that_have_expired_are_not_found() -> None:
    table = history("1 a", "1 b", "1 c")
    expire(table, 1)

    for start in (None, 0, datetime.fromtimestamp(0, UTC)):
        with pytest.raises(NotFound, match=r"expired.* earliest=2"):
            table.changes(start)
    assert changed(table.changes(1)) == "+I 1 b | +I 1 c"


def test_table_with_a_column_named_row_kind_is_unsupported() -> None:
    table = history("1 a")
    context = table.context
    schema = metadata.encode_schema(table.schema).replace(b'"v"', b'"_row_kind"')
    context.store.put(context.layout.schema(1), schema.replace(b'"id" : 0,', b'"id" : 1,', 1))

    with pytest.raises(Unsupported, match="column=_row_kind"):
        reopened(table).changes()


# --- the difference of two states ----------------------------------------------------------------


def between_tags(table: Table, first: int, last: int) -> str:
    tag(table, "first", first)
    tag(table, "last", last)
    return changed(table.changes("first", "last"))


def test_tags_give_the_difference_of_their_states() -> None:
    table = history("1 a | 2 b | 3 c", "1 x | -D 3 c | 4 d", "1 a", "5 e")
    tag(table, "first", 1)
    tag(table, "last", 4)
    expire(table, 1, 2)

    assert changed(table.changes("first", "last")) == "-D 3 c | +I 4 d | +I 5 e"


def test_tags_may_stand_for_their_snapshots() -> None:
    table = history("1 a", "1 b", "1 c").copy({"incremental-between-tag-to-snapshot": "true"})

    assert between_tags(table, 1, 3) == "+I 1 b | +I 1 c"


def test_difference_is_of_merged_rows() -> None:
    table = history(
        "1 5 | 2 7",
        "1 3",
        columns={"id": "INT NOT NULL", "n": "INT"},
        merge_engine="aggregation",
        fields__n__aggregate_function="sum",
    )
    table.compact(full=True)
    put(table, "1 2 | 2 0 | 3 1")

    assert between_tags(table, 1, 4) == "+U 1 10 | +I 3 1"
    assert between_tags(table, 2, 3) == ""


def test_difference_with_nothing_is_the_state() -> None:
    table = history("1 a | 2 b", "-D 2 b").copy({"incremental-between-scan-mode": "diff"})

    assert changed(table.changes()) == "+I 1 a"
    expire(table, 1)
    assert changed(table.changes()) == "+I 1 a"


def test_difference_compares_every_column_whatever_is_asked_for() -> None:
    columns = {"id": "INT NOT NULL", "d": "DOUBLE", "l": "ARRAY<INT>", "p": "STRING"}
    table = new_table(columns)
    first = {"id": [1, 2, 3, 4], "d": [float("nan"), 1.0, 2.0, None], "l": [[1], None, [None], []]}
    later = {"id": [1, 2, 3, 4], "d": [float("nan"), 1.0, 2.0, None], "l": [[1], [], [3], []]}
    table.write(pl.DataFrame(first))
    table.write(pl.DataFrame(later))
    tag(table, "first", 1)
    tag(table, "last", 2)

    found = table.changes("first", "last", columns=["id"]).collect()

    assert found["id"].to_list() == [2, 3]


def test_part_that_did_not_change_is_not_read() -> None:
    table = history("1 a | 2 b", "5 c | 6 d", "5 x")
    tag(table, "first", 2)
    tag(table, "last", 3)
    store = ReadingStore(table.context.store)
    watched = reopened(table, store=store)
    whole = sum(
        file.file.size_bytes
        for file in table.context.history.live_entries(table.context.history.snapshot(2))
    )

    assert changed(watched.changes("first", "last")) == "+U 5 x"
    assert store.bytes_read < 3 * whole


def test_difference_of_a_table_without_key_is_its_new_files() -> None:
    table = history("1 a", "2 b", keys=())

    assert between_tags(table, 1, 2) == "+I 2 b"
    table.delete("id = 1")
    with pytest.raises(Unsupported, match="were rewritten"):
        changed(table.copy({"incremental-between-scan-mode": "diff"}).changes(2, 3))


# --- which rows and columns ----------------------------------------------------------------------


def test_columns_and_conditions_are_those_of_each_row() -> None:
    table = history("1 a", "-U 1 a | +U 1 b", changelog_producer="input")

    assert changed(table.changes(columns=["v", "_row_kind"])) == "a +I | a -U | b +U"
    assert changed(table.changes(where="v = 'a'")) == "+I 1 a | -U 1 a"
    assert changed(table.changes(where=pl.col("_row_kind") == "+U")) == "+U 1 b"
    assert changed(table.changes(where="_row_kind <> '+I' AND v <> 'a'")) == "+U 1 b"
    assert changed(table.changes(columns=["_row_kind"], where="id = 1").head(2)) == "+I | -U"
    with pytest.raises(InvalidRequest, match="unknown column"):
        table.changes(where=pl.col("nosuch") == 1)


def test_condition_leaves_out_files_by_any_column() -> None:
    table = history("1 a", "2 b", "3 c", keys=("id",))
    source = changes_between(table.context, None, None)
    table.context.store.delete(_data_file(table, 1))

    assert changed(table.changes(where="v >= 'b'")) == "+I 2 b | +I 3 c"
    assert engine_files(source, ["id"]) is None
    with pytest.raises(CorruptTable, match="a file of the snapshot is missing"):
        list(source.batches())


def _data_file(table: Table, snapshot_id: int) -> str:
    history = table.context.history
    (entry,) = history.live_entries(history.snapshot(snapshot_id))
    return table.context.layout.data_file("", entry.bucket, entry.file)


def test_reading_stops_at_a_limit_and_gives_its_memory_back() -> None:
    table = history(*(f"{number} v" for number in range(20)))
    source = changes_between(table.context, None, None)

    batches = list(source.batches(["_row_kind"], limit=3))

    assert sum(batch.num_rows for batch in batches) == 3
    assert table.context.budget.used_bytes == 0


# --- the options of a read -----------------------------------------------------------------------


def test_options_make_a_read_of_the_rows_that_were_added() -> None:
    table = history("1 a | 2 b", "1 c | -D 2 b", "3 d")
    recent = table.copy({"incremental-between": "1,3"})

    assert held(recent) == "1 c | 3 d"
    assert held(recent, where="id = 1") == "1 c"
    assert recent.scan(columns=["v"], limit=1).collect().rows() == [("c",)]
    assert recent.to_arrow_dataset().to_table(columns=["id"]).column("id").to_pylist() == [1, 3]
    with duckdb.connect() as connection:
        assert recent.to_duckdb(connection).aggregate("sum(id)").fetchall() == [(4,)]
    # A state, and points, that are named go before the options.
    assert held(recent, snapshot_id=1) == "1 a | 2 b"
    assert changed(recent.changes(2, 3)) == "+I 3 d"
    assert changed(recent.changes()) == changed(table.changes(1, 3))
    assert recent.explain(snapshot_id=1).files_kept == 1
    with pytest.raises(Unsupported, match="a read between two points is not explained"):
        recent.explain()


def test_options_may_name_times_and_tags() -> None:
    table = history("1 a", "2 b", "3 c")
    times = f"{START_MS},{START_MS + 10_000}"
    texts = "2023-11-14T22:13:25Z, 2023-11-14T22:13:35Z"

    assert held(table.copy({"incremental-between-timestamp": times})) == "2 b"
    assert held(table.copy({"incremental-between-timestamp": texts})) == "2 b"
    tag(table, "x", 1)
    tag(table, "y", 3)
    assert held(table.copy({"incremental-between": "x,y"})) == "2 b | 3 c"
    assert held(table.copy({"scan.mode": "incremental", "incremental-between": "1,2"})) == "2 b"


@pytest.mark.parametrize("text", ["1", "1,", ",2", "1,2,3"])
def test_option_that_does_not_name_two_points_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="the option must name two points"):
        held(history("1 a").copy({"incremental-between": text}))


def test_table_read_between_two_points_is_not_changed_by_rows_read() -> None:
    table = history("1 a", "1 b").copy({"incremental-between": "1,2"})

    with pytest.raises(InvalidRequest, match="take away its scan options"):
        table.delete("id = 1")


def test_kinds_are_arrow_text() -> None:
    table = history("1 a")
    (batch,) = changes_between(table.context, None, None).batches()

    assert batch.schema == pa.schema(
        [
            pa.field("_row_kind", pa.string(), nullable=False),
            *table.schema.arrow,
        ]
    )


def test_option_names_tags_and_ids_and_no_times() -> None:
    table = history("1 a", "1 b")
    tag(table, "2023-01-01", 1)

    assert held(table.copy({"incremental-between": "2023-01-01,2"})) == "1 b"
    with pytest.raises(NotFound, match=r"no such tag\. tag=2023-01-02"):
        held(table.copy({"incremental-between": "2023-01-02,2"}))


def test_mode_of_changes_without_their_points_is_refused() -> None:
    table = history("1 a")
    with_options(table, scan__mode="incremental")  # as another engine may store it
    again = reopened(table)

    for read in (again.to_polars, again.inspect.system_table("audit_log").to_polars):
        with pytest.raises(InvalidRequest, match="the scan mode needs one more option"):
            read()


EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "bucket": "-1"}


def test_rows_are_counted_by_a_small_column_that_may_be_null() -> None:
    def counted(**types: str) -> tuple[str, ...]:
        return column_to_count(create_schema(types, now_ms=0, options=EVOLVING))

    assert counted(a="INT NOT NULL", b="STRING", c="INT") == ("b",)
    assert counted(a="INT NOT NULL", b="STRING NOT NULL") == ("a",)
    assert counted(b="BLOB", c="INT NOT NULL") == ("c",)
    assert counted(b="BLOB", c="INT NOT NULL", d="INT") == ("d",)
