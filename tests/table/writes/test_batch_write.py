"""Commits of messages that other processes wrote, and writes to real buckets."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CorruptTable, InvalidRequest
from lakecore.model.files import CommitMessage
from lakecore.table.publication import write_schema
from lakecore.table.writes import batch_write
from lakecore.table.writes.batch_write import (
    Author,
    author,
    batch_writer,
    commit_append,
    committed_before,
    in_one_snapshot,
)
from tests.retention import data_files
from tests.tables import files, held, new_table, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.handle import Table


def written(table: Table, text: str) -> list[CommitMessage]:
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def test_messages_of_others_are_committed_once() -> None:
    table = new_table()
    context, by = table.context, Author(user="job", identifier=7)
    assert committed_before(context, by) is None

    done = commit_append(context, written(table, "1 a"), by)
    assert (done.snapshot_ids, held(reopened(table))) == ((1,), "1 a")
    snapshot = context.history.snapshot(1)
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("job", 7)
    before = committed_before(context, by)
    assert before is not None
    assert (before.snapshot_ids, before.facts) == ((1,), {"already_committed": 1})
    # Batch jobs have no identifier by which a commit could be found again.
    assert committed_before(context, author(context, "job")) is None


@pytest.mark.parametrize("skip_empty", [False, True])
def test_commit_without_messages_records_its_identifier_if_asked(*, skip_empty: bool) -> None:
    context = new_table().context

    def made(by: Author) -> tuple[int, ...]:
        return commit_append(context, (), by, skip_empty=skip_empty).snapshot_ids

    assert made(author(context, "job")) == ()
    assert made(Author(user="job", identifier=7)) == (() if skip_empty else (1,))


def test_files_of_a_write_to_real_buckets_that_fails_go(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(bucket="-2")

    def fails(*_: object) -> object:
        raise CorruptTable("a file of the write is damaged")

    with batch_writer(table.context) as writer:
        assert writer.write(rows(table.schema, "1 a | 2 b")) == 2
        assert writer.row_count == 2
        monkeypatch.setattr(batch_write, "postponed_rows", fails)
        with pytest.raises(CorruptTable):
            writer.prepare_commit()
    assert data_files(table) == set()


def test_results_of_compactions_become_new_files_where_level_0_is_hidden() -> None:
    new, other, made = files("L0 a-m | L0 n-z | L5 a-m")
    message = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        new_files=(new, other),
        compact_before=(new,),
        compact_after=(made,),
    )
    of_others = replace(message, new_files=(other,))
    hiding = new_table(deletion_vectors__enabled="true").context

    (one, same) = in_one_snapshot(hiding, [message, of_others])
    assert (one.new_files, one.compact_before, one.compact_after) == ((other, made), (), ())
    assert same == of_others
    assert in_one_snapshot(new_table().context, [message]) == [message]


COLUMNS = {"id": "INT NOT NULL", "v": "INT"}


def columns(table: Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema.fields}


@pytest.mark.parametrize("keys", [["id"], []], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("verb", ["write", "overwrite"])
def test_columns_that_the_table_lacks_are_added(keys: list[str], verb: str) -> None:
    table = new_table(COLUMNS, keys=keys)
    table.write([{"id": 1, "v": 1}])
    frame = pl.DataFrame({"id": [2], "note": ["x"], "at": [dt.date(2026, 1, 1)]}).cast(
        {"id": pl.Int32}
    )

    getattr(table, verb)(frame, evolve_schema=True)

    wanted = {**COLUMNS, "note": "STRING", "at": "DATE"}
    assert columns(table) == columns(reopened(table)) == wanted
    old = [] if verb == "overwrite" else [(1, 1, None, None)]
    assert sorted(table.to_polars().rows()) == [*old, (2, None, "x", dt.date(2026, 1, 1))]


def test_rows_of_old_and_new_schema_are_compacted_within_the_write() -> None:
    table = new_table(COLUMNS, num_sorted_run__compaction_trigger="2")
    table.write([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    for number in (2, 3):
        table.write([{"id": number, f"c{number}": "x"}], evolve_schema=True)

    assert sorted(table.to_polars().rows()) == [
        (1, 1, None, None),
        (2, None, "x", None),
        (3, None, None, "x"),
    ]


def test_parts_of_rows_are_added_at_any_depth() -> None:
    table = new_table({"id": "INT", "r": "ROW<a INT>", "l": "ARRAY<ROW<a INT>>"}, keys=[])
    row = {"a": 1, "b": {"c": "x"}}

    table.write(pa.table({"id": [1], "r": [row], "l": [[row]]}), evolve_schema=True)

    assert table.to_arrow().to_pylist() == [{"id": 1, "r": row, "l": [row]}]


WIDENED = [
    ("TINYINT", 5, pa.array([70_000], pa.int32()), "INT"),
    ("INT", 5, pa.array([1 << 40]), "BIGINT"),
    ("INT", 5, pa.array([1.5]), "DOUBLE"),
    ("FLOAT", 1.5, pa.array([0.1]), "DOUBLE"),
    ("INT", 5, pa.array([Decimal("1.5")], pa.decimal128(12, 1)), "DECIMAL(12, 1)"),
    ("DECIMAL(5, 2)", Decimal("1.25"), pa.array([Decimal("9.125")], pa.decimal128(6, 3)), ""),
    ("TIMESTAMP(3)", dt.datetime(2026, 1, 1), pa.array([1], pa.timestamp("us")), "TIMESTAMP(6)"),
]
KEPT = [
    ("BIGINT", 5, pa.array([7], pa.int8())),
    ("BIGINT", 5, pa.array([7.0])),
    ("INT", 5, pa.nulls(1)),
    ("VARCHAR(3)", "a", pa.array(["abc"])),
    ("DECIMAL(9, 2)", Decimal("1.25"), pa.array([Decimal("1.100")], pa.decimal128(6, 3))),
    ("TIMESTAMP(6)", dt.datetime(2026, 1, 1), pa.array([1], pa.timestamp("ms"))),
    ("ARRAY<INT>", [5], pa.array([[7]], pa.list_(pa.int64()))),
]
REFUSED = [
    ("INT", 5, pa.array(["x"])),
    ("BIGINT", 5, pa.array([1.5])),
    ("STRING", "a", pa.array([1])),
    ("VARCHAR(3)", "a", pa.array(["abcd"])),
    ("ARRAY<INT>", [5], pa.array([[1 << 40]])),
    ("DATE", dt.date(2026, 1, 1), pa.array([1], pa.timestamp("us"))),
    ("INT", 5, pa.array([dt.timedelta(1)])),
]


@pytest.mark.parametrize(("old", "value", "data", "new"), WIDENED)
def test_type_that_the_given_one_holds_is_widened(
    old: str, value: object, data: pa.Array, new: str
) -> None:
    table = new_table({"v": old}, keys=[])
    table.write([{"v": value}])

    table.write(pa.table({"v": data}), evolve_schema=True)

    assert columns(table) == {"v": new or "DECIMAL(6, 3)"}
    assert [*table.to_arrow()["v"].to_pylist()] == [value, *data.to_pylist()]


@pytest.mark.parametrize(("old", "value", "data"), KEPT)
def test_type_that_holds_the_given_one_stays(old: str, value: object, data: pa.Array) -> None:
    table = new_table({"v": old}, keys=[])
    table.write([{"v": value}])

    table.write(pa.table({"v": data}), evolve_schema=True)

    assert columns(table) == {"v": old}
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize(("old", "value", "data"), REFUSED)
def test_type_that_would_lose_values_is_refused(old: str, value: object, data: pa.Array) -> None:
    table = new_table({"v": old}, keys=[])
    table.write([{"v": value}])

    with pytest.raises(InvalidRequest, match="column=v"):
        table.write(pa.table({"v": data, "new": [1]}), evolve_schema=True)

    assert columns(reopened(table)) == {"v": old}


def test_python_values_that_fit_keep_the_type_of_their_column() -> None:
    table = new_table({"v": "INT"}, keys=[])
    frame = pd.DataFrame({"v": pd.Series([3], dtype=object)})

    for data in ([{"v": 1}], {"v": [2]}, frame):
        table.write(data, evolve_schema=True)
    assert columns(table) == {"v": "INT"}
    table.write([{"v": 1 << 40}], evolve_schema=True)

    assert columns(table) == {"v": "BIGINT"}


def test_keys_keep_their_types() -> None:
    table = new_table(
        {"id": "INT NOT NULL", "p": "INT NOT NULL"}, keys=["id", "p"], partitions=["p"]
    )

    table.write(pa.table({"id": [1], "p": [2]}), evolve_schema=True)

    assert columns(table) == {"id": "INT NOT NULL", "p": "INT NOT NULL"}
    with pytest.raises(InvalidRequest, match="column=id"):
        table.write(pa.table({"id": [1 << 40], "p": [2]}), evolve_schema=True)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pa.table({"id": [1], "V": [1]}), "lower case. column=V did_you_mean=\\[v\\]"),
        (pa.table({"id": [1], "_ROW_KIND": ["-D"]}), "lower case. column=_ROW_KIND"),
        (pa.table({"id": [1], "n": pa.nulls(1)}), "only nulls.* column=n"),
        (pa.table({"id": [1, None], "n": [1, 2]}), "NOT NULL. column=id value=null row=1"),
        (pa.table([[1], [2], [3]], ["id", "n", "n"]), "the same name. column=n"),
        (pa.table({"id": [1], "_VALUE_KIND": [1]}), "reserved. column=_VALUE_KIND"),
    ],
    ids=str,
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(data: pa.Table, why: str) -> None:
    table = new_table(COLUMNS)

    with pytest.raises(InvalidRequest, match=why):
        table.write(data, evolve_schema=True)

    assert columns(table) == columns(reopened(table)) == COLUMNS
    assert table.context.history.schema_ids() == (0,)


def test_row_kinds_are_no_new_column() -> None:
    table = new_table(COLUMNS)
    table.write([{"id": 1, "v": 1}, {"id": 2, "v": 2}])

    rows = {"id": [1], "v": [1], "note": ["x"], "_row_kind": ["-D"]}
    table.write(pl.DataFrame(rows, schema_overrides={"v": pl.Int32}), evolve_schema=True)

    assert columns(table) == {**COLUMNS, "note": "STRING"}
    assert table.to_polars().rows() == [(2, 2, None)]


def test_options_say_what_a_write_may_change() -> None:
    frame = pl.DataFrame({"id": [1], "v": [1 << 40], "note": ["x"]})
    small = frame.with_columns(v=pl.lit(7))

    table = new_table(COLUMNS, write__merge_schema="true")
    with pytest.raises(InvalidRequest, match="range of the column's type"):
        table.write(frame)
    table.write(small)
    assert columns(table) == {**COLUMNS, "note": "STRING"}

    table = new_table(
        COLUMNS, write__merge_schema="true", write__merge_schema__type_widening="true"
    )
    with pytest.raises(InvalidRequest, match="unknown column"):
        table.write(frame, evolve_schema=False)
    table.write(frame)
    assert columns(table) == {**COLUMNS, "v": "BIGINT", "note": "STRING"}


def test_explicit_casts_may_lose_values() -> None:
    types = {
        "id": "INT NOT NULL",
        "n": "BIGINT NOT NULL",
        "s": "STRING",
        "t": "TIMESTAMP(9)",
        "d": "DECIMAL(10, 2)",
        "c": "VARCHAR(5)",
    }

    def made(casts: str, strict: str = "false") -> Table:
        return new_table(
            types,
            write__merge_schema="true",
            write__merge_schema__type_widening="true",
            write__merge_schema__explicit_cast=casts,
            disable_explicit_type_casting=strict,
        )

    table = made("true")
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123_456)
    first = {"id": [1], "n": [7], "s": ["2024-02-29"], "t": [moment], "d": ["1.25"], "c": ["abc"]}
    table.write(pl.DataFrame(first).with_columns(pl.col("d").cast(pl.Decimal(10, 2))))

    table.write(
        pa.table(
            {
                "id": pa.array([2], pa.int64()),
                "n": pa.array([8], pa.int32()),
                "s": pa.array([dt.date(2024, 3, 1)]),
                "t": pa.array([moment], pa.timestamp("ms")),
                "d": pa.array([Decimal("2.5")], pa.decimal128(5, 1)),
                "c": pa.array(["xyz"]),
            }
        )
    )

    changed = {"n": "INT NOT NULL", "s": "DATE", "t": "TIMESTAMP(3)"}
    assert columns(reopened(table)) == {**types, **changed}
    rows = table.to_polars().sort("id").select("n", "s", "d", "c").rows()
    assert rows == [
        (7, dt.date(2024, 2, 29), Decimal("1.25"), "abc"),
        (8, dt.date(2024, 3, 1), Decimal("2.50"), "xyz"),
    ]
    assert table.to_polars()["t"].to_list() == [moment.replace(microsecond=123_000)] * 2

    strict = made("true", strict="true")
    with pytest.raises(InvalidRequest, match="explicit_casts=False"):
        strict.write(pa.table({"id": [1], "s": pa.array([dt.date(2024, 3, 1)])}))
    widening = made("false")
    widening.write(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    assert columns(widening) == types


def test_schema_that_somebody_else_changed_meanwhile_is_a_conflict() -> None:
    table = new_table(COLUMNS)

    def rows() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"id": [1], "a": [1]})
        reopened(table).write(pl.DataFrame({"id": [2], "b": [1]}), evolve_schema=True)

    with pytest.raises(CommitConflict, match="another process changed the schema"):
        table.write(rows(), evolve_schema=True)

    assert columns(reopened(table)) == {**COLUMNS, "b": "BIGINT"}
    table.write(pl.DataFrame({"id": [1], "a": [1]}), evolve_schema=True)
    assert sorted(table.to_polars().rows()) == [(1, None, None, 1), (2, None, 1, None)]


def test_handle_of_an_older_schema_writes_by_the_newest() -> None:
    table = new_table(COLUMNS)
    older = reopened(table)
    table.write(pl.DataFrame({"id": [1], "a": ["x"]}), evolve_schema=True)

    older.write(pl.DataFrame({"id": [2], "b": ["y"]}), evolve_schema=True)

    assert columns(older) == {**COLUMNS, "a": "STRING", "b": "STRING"}
    assert not write_schema(table.context.store, table.context.layout, older.schema)


def test_flag_is_a_flag() -> None:
    with pytest.raises(InvalidRequest, match="evolve_schema is True or False"):
        new_table(COLUMNS).write([{"id": 1}], evolve_schema="yes")  # type: ignore[arg-type]


def test_no_row_adds_no_column() -> None:
    table = new_table(COLUMNS)

    for nothing in (list[object](), iter(())):
        assert table.write(nothing, evolve_schema=True).snapshot_ids == ()
    assert columns(reopened(table)) == COLUMNS
