"""Record-level expiry: which rows a compaction into the last level drops, and which it keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.layout import Layout
from lakecore.io.ambient import Clock, seeded
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from tests.tables import held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.io.ambient import Ambient
    from lakecore.table.handle import Table

SEEDS = count(1)
NOW_S = 1_700_000_000
COLUMNS = {"id": "INT NOT NULL", "t": "INT", "v": "STRING"}
OPTIONS: dict[str, Any] = {"record_level__expire_time": "100 s", "record_level__time_field": "t"}


def at(seconds: int) -> Ambient:
    """The environment of another process, this many seconds after the tables were created."""
    return seeded(next(SEEDS), Clock((NOW_S + seconds) * 1000))


def made(columns: dict[str, str] | None = None, **options: Any) -> Table:
    return new_table(
        columns or COLUMNS, ambient=at(0), **{**OPTIONS, "write_only": "true", **options}
    )


def compacted(table: Table, seconds: int, *, full: bool = True) -> Table:
    later = reopened(table, ambient=at(seconds)).copy({"write-only": "false"})
    later.compact(full=full)
    return reopened(table)


def test_row_expires_once_more_seconds_than_the_age_have_passed() -> None:
    table = made()
    put(table, f"1 {NOW_S} a | 2 {NOW_S + 1} b | 3 _ c")

    assert held(compacted(table, 100)) == f"1 {NOW_S} a | 2 {NOW_S + 1} b | 3 _ c"
    assert held(compacted(table, 101)) == f"2 {NOW_S + 1} b | 3 _ c"
    assert held(compacted(table, 102)) == "3 _ c"
    assert held(compacted(table, 10_000)) == "3 _ c"


def test_plain_read_returns_rows_that_have_expired() -> None:
    table = made()
    put(table, f"1 {NOW_S - 500} a")

    assert held(reopened(table, ambient=at(0))) == f"1 {NOW_S - 500} a"


@pytest.mark.parametrize(
    ("kind", "old", "young"),
    [
        ("INT", NOW_S - 101, NOW_S - 100),
        ("BIGINT", NOW_S - 101, NOW_S - 100),
        ("BIGINT", (NOW_S - 100) * 1000 - 1, (NOW_S - 100) * 1000),
        ("TIMESTAMP(0)", timedelta(seconds=-101), timedelta(seconds=-100)),
        ("TIMESTAMP(3)", timedelta(seconds=-100, milliseconds=-1), timedelta(seconds=-100)),
        ("TIMESTAMP(6)", timedelta(seconds=-100, microseconds=-1), timedelta(seconds=-100)),
        ("TIMESTAMP(9)", timedelta(seconds=-100, microseconds=-1), timedelta(seconds=-100)),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", timedelta(seconds=-101), timedelta(seconds=-100)),
    ],
)
def test_unit_of_a_time_follows_from_its_type(kind: str, old: Any, young: Any) -> None:
    table = made({**COLUMNS, "t": kind})
    now = datetime.fromtimestamp(NOW_S, UTC)
    if isinstance(old, timedelta):
        naive = "ZONE" not in kind
        old, young = (
            (now + age).replace(tzinfo=None) if naive else now + age for age in (old, young)
        )
    schema = table.schema.arrow
    rows = pa.table({"id": [1, 2, 3], "t": [old, young, None], "v": ["a", "b", "c"]}, schema=schema)
    # Two files that overlap are merged; a file alone is rewritten for its statistics only, and
    # those of TIMESTAMP(9) are not stored.
    table.write(rows)
    table.write(rows)

    compacted(table, 0)

    assert reopened(table).to_arrow().column("id").to_pylist() == [2, 3]


def test_time_before_1970_loses_its_fraction_toward_zero() -> None:
    table = made({**COLUMNS, "t": "TIMESTAMP(6)"}, record_level__expire_time=f"{NOW_S} s")
    times = [datetime(1969, 12, 31, 23, 59, 59, micros) for micros in (999_000, 500)]
    row = {"id": [1, 2], "t": times, "v": ["a", "b"]}
    table.write(pa.table(row, schema=table.schema.arrow))

    compacted(table, 0)

    # -1 ms is second 0; -999.5 ms lies in millisecond -1000, which is second -1.
    assert reopened(table).to_arrow().column("id").to_pylist() == [1]


def test_partial_compaction_never_uncovers_an_older_row() -> None:
    """The newest row of a key is dropped only together with all older rows of the key."""
    table = made(num_sorted_run__compaction_trigger="2", compaction__size_ratio="0")
    put(table, f"1 {NOW_S + 1000} old" + "".join(f" | {n} {NOW_S + 1000} x" for n in range(2, 900)))
    table = compacted(table, 0)
    assert [file["level"] for file in table.inspect.files().rows(named=True)] == [2]
    for text in (f"1 {NOW_S - 500} new", f"2 {NOW_S - 500} new", f"-D 3 {NOW_S - 500} x"):
        put(table, text)
    before = held(table)

    partly = compacted(table, 0, full=False)

    levels = partly.inspect.files()["level"].to_list()
    assert sorted(levels) == [1, 2]
    assert held(partly) == before
    assert f"1 {NOW_S + 1000} old" in held(compacted(partly, 0))


def test_file_of_the_last_level_is_rewritten_once_its_statistics_say_so() -> None:
    table = made()
    put(table, f"1 {NOW_S} a | 2 {NOW_S + 50} b")
    table = compacted(table, 0)
    (first,) = table.inspect.files()["file_path"]

    table = compacted(table, 100)
    assert table.inspect.files()["file_path"].to_list() == [first]
    table = compacted(table, 101)

    assert table.inspect.files()["file_path"].to_list() != [first]
    assert held(table) == f"2 {NOW_S + 50} b"


def test_aggregation_folds_only_rows_that_have_not_expired() -> None:
    table = made(
        {"id": "INT NOT NULL", "t": "INT", "v": "INT"},
        merge_engine="aggregation",
        fields__v__aggregate_function="sum",
        fields__t__aggregate_function="last_value",
    )
    put(table, f"1 {NOW_S - 500} 5")
    put(table, f"1 {NOW_S} 7")

    assert held(compacted(table, 0)) == f"1 {NOW_S} 7"


def test_first_row_expires_and_the_key_can_be_written_again() -> None:
    table = made(merge_engine="first-row")
    put(table, f"1 {NOW_S - 500} a")
    table = compacted(table, 0)
    assert held(table) == ""
    put(table, f"1 {NOW_S} b")

    assert held(compacted(table, 0)) == f"1 {NOW_S} b"


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_expire_in_tables_with_look_ups(vectors: str) -> None:
    table = made(
        changelog_producer="lookup",
        deletion_vectors__enabled=vectors,
        num_sorted_run__compaction_trigger="3",
    )
    put(table, f"1 {NOW_S} a | 2 {NOW_S + 500} b")
    table = compacted(table, 0)
    put(table, f"1 {NOW_S + 20} A")
    table = compacted(table, 0, full=False)
    assert held(table) == f"1 {NOW_S + 20} A | 2 {NOW_S + 500} b"

    assert held(compacted(table, 200)) == f"2 {NOW_S + 500} b"


def test_time_column_may_change_its_type() -> None:
    table = made()
    put(table, f"1 {NOW_S} a | 2 {NOW_S + 50} b")
    table = compacted(table, 0)
    changed = evolve(
        table.schema, [SchemaChange.update_column_type("t", "BIGINT")], now_ms=1, has_snapshots=True
    )
    assert write_schema(table.context.store, Layout(root=table.path), changed)
    table = reopened(table)
    put(table, f"3 {NOW_S * 1000} c")

    assert held(compacted(table, 101)) == f"2 {NOW_S + 50} b"


def test_writes_expire_rows_in_their_own_compaction() -> None:
    table = new_table(COLUMNS, ambient=at(0), num_sorted_run__compaction_trigger="2", **OPTIONS)
    put(table, f"1 {NOW_S} a")
    later = reopened(table, ambient=at(500))
    put(later, f"2 {NOW_S + 500} b")

    assert held(later) == f"2 {NOW_S + 500} b"


def test_expiry_reads_the_clock_once_for_a_bucket() -> None:
    """All rows of a key expire by the same clock reading, however long the compaction takes."""
    table = made()
    put(table, f"1 {NOW_S} a")
    put(table, f"1 {NOW_S} b")
    times = iter(range(10_000))
    ambient = replace(at(0), now_ms=lambda: (NOW_S + 100 + next(times)) * 1000)

    reopened(table, ambient=ambient).copy({"write-only": "false"}).compact(full=True)

    assert held(reopened(table)) in {"", f"1 {NOW_S} b"}


def test_table_that_does_not_name_the_time_is_an_error_of_compaction() -> None:
    table = made()
    put(table, f"1 {NOW_S} a")
    put(table, f"1 {NOW_S} b")
    with_options(table, record_level__time_field=None)

    with pytest.raises(InvalidRequest, match=r"needs record-level.time-field"):
        compacted(reopened(table), 0)
