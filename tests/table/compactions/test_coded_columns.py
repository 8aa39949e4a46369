"""Compactions that move texts as codes give the rows and files that those which do not give."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakecore as lc
from lakecore.io.files import data_files
from lakecore.merge import spec as merge_spec
from lakecore.model.schema_change import SchemaChange
from lakecore.table.compactions import compact_bucket
from lakecore.table.sections import merge_runs as choice
from lakecore.table.sections import windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "city": "STRING",
    "note": "VARCHAR(40)",
    "code": "CHAR(3)",
    "v": "INT",
}
CITIES = ["", "Köln", "oslo", None, "\U0001f600", "a" * 30]
Moved = list[frozenset[str]]


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """The columns that each bucket's compaction moved as codes, also of small files."""
    found: Moved = []
    original = choice.coded_columns

    def seen(*args: object) -> frozenset[str]:
        found.append(original(*args))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(choice, "_LEAST_ROWS", 1)
    monkeypatch.setattr(compact_bucket, "coded_columns", seen)
    return found


def rows(seed: int, count: int = 3_000, keys: int = 4_000) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    ids = np.sort(random.choice(keys, count, replace=False))
    cities = [*CITIES, f"only of {seed}"]
    return pl.DataFrame(
        {
            "id": ids,
            "city": [cities[at] for at in random.integers(0, len(cities), count)],
            "note": [f"note {n}" for n in random.integers(0, 10**9, count)],
            "code": [["a", "abc", None][at] for at in random.integers(0, 3, count)],
            "v": random.integers(0, 100, count),
        },
        schema_overrides={"v": pl.Int32},
    )


def made(path: Path, options: Mapping[str, str] | None = None) -> Table:
    stated = {"bucket": "1", "write-only": "true", **(options or {})}
    return lc.open_table(path, create=True, schema=COLUMNS, primary_keys=["id"], options=stated)


def compacted_apart(path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A copy of a table, compacted without codes."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    with monkeypatch.context() as patch:
        patch.setattr(compact_bucket, "coded_columns", lambda *_: frozenset())
        table = lc.open_table(copy)
        table.compact(full=True)
    return lc.open_table(copy)


def assert_equal(table: Table, expected: Table) -> None:
    assert table.to_polars().sort("id").equals(expected.to_polars().sort("id"))
    names = [
        "record_count", "level", "min_key", "max_key", "null_value_counts", "min_value_stats",
        "max_value_stats", "min_sequence_number", "max_sequence_number",
    ]  # fmt: skip
    assert table.inspect.files().select(names).equals(expected.inspect.files().select(names))


@pytest.mark.parametrize("combined_bytes", [16 << 20, 0])
@pytest.mark.parametrize("stats", ["truncate(3)", "counts", "none"])
def test_rows_and_statistics_are_those_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved, combined_bytes: int, stats: str
) -> None:
    """Also where a window is not put into one chunk before rows are taken from it."""
    monkeypatch.setattr(merge_spec, "_COMBINED_BYTES", combined_bytes)
    table = made(tmp_path / "t", {"metadata.stats-mode": stats})
    for seed in range(4):
        table.write(rows(seed))
    table.write(rows(9).with_columns(_row_kind=pl.lit("-D")).head(500))
    expected = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)

    assert moved == [{"city", "code"}]
    assert_equal(lc.open_table(tmp_path / "t"), expected)


def test_files_have_the_statistics_that_readers_skip_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    table = made(tmp_path / "t")
    for seed in range(3):
        table.write(rows(seed))
    apart = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)
    footers = [pq.read_metadata(each.inspect.files()["file_path"][0]) for each in (table, apart)]
    own, other = (
        [
            (chunk.path_in_schema, chunk.statistics.min, chunk.statistics.max,
             chunk.statistics.null_count, chunk.has_dictionary_page)
            for at in range(footer.num_row_groups)
            for leaf in range(footer.num_columns)
            for chunk in [footer.row_group(at).column(leaf)]
        ]
        for footer in footers
    )  # fmt: skip

    assert moved
    assert own == other


def test_column_of_many_texts_in_one_file_is_moved_as_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    """Each row would be moved with all of them."""
    table = made(tmp_path / "t")
    table.write(rows(1))
    many = rows(2, count=2_500).with_columns(city=pl.col("note") + pl.col("note"))
    table.write(many)
    expected = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)

    assert moved == [{"code"}]
    assert_equal(lc.open_table(tmp_path / "t"), expected)


def test_many_columns_are_moved_as_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    monkeypatch.setattr(choice, "_COLUMNS_MAX", 1)
    table = made(tmp_path / "t")
    for seed in range(2):
        table.write(rows(seed))
    table.compact(full=True)

    assert moved == [frozenset()]


def test_section_that_is_merged_in_rounds_lies_beside_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    """Rounds give texts; both go into one file."""
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 3)
    table = made(tmp_path / "t")
    for seed in range(2):
        table.write(rows(seed))
    for seed in range(5):
        table.write(rows(seed).with_columns(pl.col("id") + 10_000))
    expected = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)

    assert moved == [{"city", "code"}]
    assert_equal(lc.open_table(tmp_path / "t"), expected)


def test_file_that_is_not_read_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    asked: list[str] = []
    original = data_files.small_dictionaries

    def seen(store: Store, path: str, columns: Sequence[str]) -> tuple[str, ...]:
        asked.append(path.rpartition("/")[2])
        return original(store, path, columns)

    monkeypatch.setattr(choice, "small_dictionaries", seen)
    table = made(tmp_path / "t", {"compaction.max-size-amplification-percent": "1000"})
    table.write(rows(0, count=50_000, keys=60_000))
    table.compact(full=True)
    (base,) = (name.rpartition("/")[2] for name in table.inspect.files()["file_path"])
    asked.clear()
    for seed in range(1, 6):
        table.write(rows(seed, count=200))
    table.compact()

    assert moved[-1] == {"city", "code"}, "each row of a small file may have a note of its own"
    assert len(asked) == 5
    assert base not in asked


@pytest.mark.parametrize(("before", "after"), [("a.b", "ab"), ("ab", "a.b")])
def test_name_that_another_column_has_for_a_part_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved, before: str, after: str
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    options = {"bucket": "1", "write-only": "true"}
    columns = {"id": "BIGINT NOT NULL", before: "STRING", "a": "ROW<b STRING>"}
    table = session.create_table("d.t", columns, primary_keys=["id"], options=options)
    table.write([{"id": n, before: "x", "a": {"b": f"{n}"}} for n in range(3_000)])
    table.write([{"id": n, before: "y", "a": {"b": f"{n}"}} for n in range(1_000)])
    session.alter_table("d.t", [SchemaChange.rename_column(before, after)])
    table = session.get_table("d.t")
    path = tmp_path / "w" / "d.db" / "t"
    expected = compacted_apart(path, monkeypatch)
    table.compact(full=True)

    assert moved == [frozenset()]
    assert_equal(lc.open_table(path), expected)


@pytest.mark.parametrize("change", ["renamed", "added", "changed"])
def test_columns_of_older_schemas_are_texts_where_they_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved, change: str
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    options = {"bucket": "1", "write-only": "true"}
    table = session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    table.write(rows(1))
    new = rows(2)
    if change == "renamed":
        session.alter_table("d.t", [SchemaChange.rename_column("city", "town")])
        new = new.rename({"city": "town"})
    elif change == "added":
        session.alter_table("d.t", [SchemaChange.add_column("more", "STRING")])
        new = new.with_columns(more=pl.lit("x"))
    else:
        session.alter_table("d.t", [SchemaChange.update_column_type("v", "STRING")])
        new = new.with_columns(pl.col("v").cast(pl.String))
    table = session.get_table("d.t")
    table.write(new)
    path = tmp_path / "w" / "d.db" / "t"
    expected = compacted_apart(path, monkeypatch)
    table.compact(full=True)

    city = "town" if change == "renamed" else "city"
    assert moved == [{city, "code"}]
    assert_equal(lc.open_table(path), expected)


def test_bytes_that_are_no_text_are_shown_as_java_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    table = made(tmp_path / "t")
    table.write(rows(1))
    table.write(rows(2))
    for name in table.inspect.files()["file_path"]:
        data = pq.read_table(name)
        cities = data["city"].cast(pa.binary()).to_pylist()
        broken = pa.array([b"\xff" + each[1:] if each else each for each in cities], pa.binary())
        at = data.schema.get_field_index("city")
        broken = pa.Array.from_buffers(pa.string(), len(broken), broken.buffers())
        pq.write_table(data.set_column(at, data.schema.field(at), broken), name)
    # The files have other sizes now.
    monkeypatch.setattr("lakecore.table.file_reader.split_files.check_size", lambda *_: None)
    expected = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)

    assert moved == [{"city", "code"}]
    assert_equal(lc.open_table(tmp_path / "t"), expected)
    assert "\ufffdslo" in set(lc.open_table(tmp_path / "t").to_polars()["city"])


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "partial-update"},
        {"merge-engine": "aggregation"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"sequence.field": "city"},
        {"file.format.per.level": "5:orc"},
        {"file.format": "avro"},
    ],
)
def test_texts_that_are_looked_at_are_no_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved, options: Mapping[str, str]
) -> None:
    table = made(tmp_path / "t", options)
    for seed in range(3):
        table.write(rows(seed))
    expected = compacted_apart(tmp_path / "t", monkeypatch)
    table.compact(full=True)

    assert "city" not in {name for columns in moved for name in columns}
    assert_equal(lc.open_table(tmp_path / "t"), expected)
