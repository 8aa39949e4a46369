"""The oldest run of a section, of which flags of newer keys tell what comes out."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.memory import Budget, Share
from lakecore.table.run_writer import file_shape
from lakecore.table.sections.windows import on_reader
from lakecore.table.splits import polars_rows, read_planner
from lakecore.table.splits.polars_rows import PolarsRows
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_planner import flagged_keys
from lakecore.table.splits.survivors import NewerKeys
from tests.damage import PLAIN, replace_in
from tests.table.splits.test_polars_rows import (
    late_of,
    local_table,
    plans_of,
    polars_of,
    polars_rows_of,
    sorted_rows,
)
from tests.table.splits.test_read import hide
from tests.tables import put, reopened, with_options

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

GROUP_ROWS = 50
"""Of the files of these tables, about."""
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_planner, "_ROWS_MIN", 0)
    monkeypatch.setattr(file_shape, "row_group_bytes_of", lambda *_: 32 * GROUP_ROWS)


@pytest.fixture
def chunks_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Share.CHUNK, "under", 1 << 20)
    monkeypatch.setattr(read_planner, "_CHUNK_PARTS_MIN", 0)


def written(table: Table, ids: object, text: str, kinds: object = "+I") -> None:
    """Write rows of these keys, whose values tell who wrote them."""
    keys = pa.array(ids).cast(table.schema.arrow.field("id").type)
    texts = [f"{text}{number}" for number in range(len(keys))]
    given = [kinds] * len(keys) if isinstance(kinds, str) else kinds
    table.write(pa.table({"id": keys, "v": texts, "_row_kind": given}))


def with_old_rows(tmp_path: Path, ids: object, kind: str = "BIGINT", **options: str) -> Table:
    """A table of which these keys are on the last level."""
    columns = {"id": f"{kind} NOT NULL", "v": "STRING"}
    table = local_table(tmp_path, columns, write_only="true", **options)
    written(table, ids, "old")
    table.compact(full=True)
    return reopened(table)


def assert_flags_decide(table: Table, columns: list[str] | None = None) -> list[str]:
    """Every section is read so by Polars alone, and has the rows of windows; those rows."""
    context, found = table.context, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolarsRows, "_own_of_oldest", None)
        patch.setattr(polars_rows, "read_split", None)
        for split, plan in plans_of(table, columns):
            polars = polars_rows_of(split, plan, context.store, context.budget)
            assert polars is not None
            assert late_of(polars).flagged is not None
            rows = sorted_rows(list(polars.batches()), plan.output)
            windows = list(read_split(split, plan, context.store, context.budget))
            assert rows == sorted_rows(windows, plan.output)
            assert sum(frame.height for frame in polars.frames()) == len(rows)
            found += rows
    assert context.budget.used_bytes == 0
    return found


# --- the rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT", "DATE"])
def test_rows_of_every_kind_of_key(kind: str, tmp_path: Path) -> None:
    days = kind == "DATE"
    old, new = (pa.array(ids, pa.int32()) for ids in (range(-120, 120), range(-128, 127, 3)))
    table = with_old_rows(tmp_path, old.cast(pa.date32()) if days else old, kind)
    kinds = ["-D" if number % 5 == 0 else "+U" for number in range(len(new))]
    written(table, new.cast(pa.date32()) if days else new, "new", kinds)
    written(table, new[::2].cast(pa.date32()) if days else new[::2], "newest")

    for columns in (None, ["v"], ["id"], ["v", "id"]):
        assert len(assert_flags_decide(table, columns)) > 200


@pytest.mark.usefixtures("chunks_of_a_group")
def test_first_and_last_keys_of_row_groups_are_replaced(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(10_000))
    (polars,) = polars_of(table)
    assert polars is not None
    starts = np.array([part.group.first_row for part in polars.path.all_parts])
    assert len(starts) > 50
    written(table, sorted({*starts.tolist(), *(starts[1:] - 1).tolist(), 9_999}), "new")

    assert len(assert_flags_decide(table)) == 10_000
    values = table.to_arrow()["v"]
    assert pc.sum(pc.starts_with(values, "new")).as_py() == 2 * len(starts)


def test_keys_at_the_ends_of_all_numbers_are_told_apart(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, [LEAST, LEAST + 1, -1, 0, 1, 2, GREATEST - 1, GREATEST])
    written(table, [0, 2], "new")

    assert len(assert_flags_decide(table)) == 8
    found = dict(table.to_polars().iter_rows())
    assert {key for key, value in found.items() if value.startswith("new")} == {0, 2}


@pytest.mark.parametrize("ids", [[GREATEST - 2, GREATEST], [LEAST + 1, LEAST + 3]])
def test_newer_keys_at_the_ends_of_all_numbers(ids: list[int], tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, [LEAST, LEAST + 1, -1, 0, 1, GREATEST - 1, GREATEST])
    written(table, ids, "new")

    assert len(assert_flags_decide(table)) == 8


def test_deletions_hide_what_is_older(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(100))
    written(table, [3, 5, 200], "gone", "-D")
    written(table, [5], "back")

    rows = assert_flags_decide(table)
    assert len(rows) == 99
    assert table.to_arrow(where="id in (3, 5, 200)")["v"].to_pylist() == ["back0"]


def test_oldest_run_of_many_files_and_other_levels_beside_it(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(500), target_file_size="1 b")
    for number in range(1, 4):
        written(table, range(500 * number, 500 * number + 500), "old")
    table.compact(full=True)
    table = reopened(table)
    for number in range(7):
        written(table, range(number, 2_000, 7), f"run{number}-")
        if number == 5:
            table.compact()
    ((split, _),) = plans_of(table)
    assert len(split.runs[0]) >= 4
    assert {file.level for run in split.runs for file in run} > {0, 5}

    assert len(assert_flags_decide(table)) == 2_000


def test_buckets_and_partitions_are_flagged_each(tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
    table = local_table(
        tmp_path, columns, keys=["p", "id"], partitions=["p"], bucket="2", write_only="true"
    )
    for name, count in (("old", 300), ("new", 40)):
        ids = pa.array([*range(count)] * 2, pa.int32())
        days = ["a"] * count + ["b"] * count
        table.write(pa.table({"p": days, "id": ids, "v": [name] * 2 * count}))
        if name == "old":
            table.compact(full=True)
            table = reopened(table)

    assert len(assert_flags_decide(table)) == 600
    assert len(assert_flags_decide(table, ["v"])) == 600
    assert table.to_polars()["v"].value_counts(sort=True).rows() == [("old", 520), ("new", 80)]


@pytest.mark.usefixtures("chunks_of_a_group")
def test_nothing_is_left_of_a_read_that_is_given_up(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(5_000))
    written(table, [1, 2, 3], "new")
    (polars,) = polars_of(table)
    assert polars is not None
    frames = polars.frames()
    next(frames)
    before = threading.active_count()
    assert table.context.budget.used_bytes > 0
    frames.close()

    assert table.context.budget.used_bytes == 0
    assert threading.active_count() < before


def test_threads_of_polars_that_call_back_never_wait_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_old_rows(tmp_path, range(5_000))
    written(table, [1, 2, 3], "new")
    seen: list[bool] = []
    lack = NewerKeys.lack

    def lacking(self: NewerKeys, keys: pl.Series) -> pl.Series:
        seen.append(on_reader())
        return lack(self, keys)

    monkeypatch.setattr(NewerKeys, "lack", lacking)
    assert table.scan().collect().height == 5_000

    assert seen
    assert all(seen)
    assert not on_reader()


# --- when they do not decide --------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        *("one run", "sequence field", "ignored rows", "text", "two columns", "far apart"),
        *("first row", "deletions among the old", "equal numbers", "vectors", "lower level"),
    ],
)
def test_other_sections_are_marked(reason: str, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "INT", "w": "STRING"}
    options = {
        "sequence field": {"sequence__field": "v"},
        "ignored rows": {"ignore_delete": "true"},
        "first row": {"merge_engine": "first-row"},
    }
    keys = {"text": ["w"], "two columns": ["id", "v"]}.get(reason, ["id"])
    columns |= {key: f"{columns[key].split()[0]} NOT NULL" for key in keys}
    table = local_table(tmp_path, columns, keys=keys, write_only="true", **options.get(reason, {}))
    put(table, " | ".join(f"{number} 1 t{number}" for number in range(100)))
    table.compact(full=True)
    table = reopened(table)
    if reason != "one run":
        put(table, "5 1 t5" + (f" | {1 << 40} 1 t6" if reason == "far apart" else ""))
    if reason == "vectors":
        on_read = {"deletion_vectors__merge_on_read": "true"}
        with_options(table, deletion_vectors__enabled="true", **on_read)
        table = reopened(table)
        ((split, _),) = plans_of(table)
        hide(table, {split.runs[0][0].name: [7]})
        table = reopened(table)
    ((split, plan),) = plans_of(table)
    oldest = split.runs[0][0]
    if reason == "deletions among the old":
        oldest = replace(oldest, delete_row_count=None)
    if reason == "equal numbers":
        oldest = replace(oldest, sequence_max=split.runs[-1][0].sequence_min)
    if reason == "lower level":
        split = replace(split, runs=(split.runs[0], (replace(split.runs[1][0], level=5),)))
    split = replace(split, runs=((oldest,), *split.runs[1:]))

    assert flagged_keys(split, plan) is None


def test_least_of_all_numbers_is_marked(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, [LEAST, LEAST + 1, LEAST + 2])
    written(table, [LEAST, LEAST + 1], "new")
    ((split, plan),) = plans_of(table)

    assert flagged_keys(split, plan) is None
    assert sorted(table.to_polars()["v"]) == ["new0", "new1", "old2"]


def test_keys_beyond_those_that_the_manifest_says_are_read_by_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_old_rows(tmp_path, range(100))
    written(table, [5, 50], "new")
    written(table, [6, 7], "new")
    ((split, plan),) = plans_of(table)
    newer = [run[0] for run in split.runs[1:]]
    narrow = replace(newer[0], key_min=newer[1].key_min, key_max=newer[1].key_max)
    split = replace(split, runs=(split.runs[0], (narrow,), (newer[1],)))
    context = table.context
    polars = polars_rows_of(split, plan, context.store, context.budget)
    assert polars is not None
    flagged = late_of(polars).flagged
    assert flagged is not None
    assert flagged.span == range(6, 8)
    monkeypatch.setattr(polars_rows, "newer_keys", None)

    found = dict(pl.concat(polars.frames()).select("id", "v").iter_rows())
    assert len(found) == 100
    assert [found[key][:3] for key in (5, 6, 7, 50)] == ["new"] * 4


def test_flags_count(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(1_000))
    written(table, [0, 7_000], "new")
    ((split, plan),) = plans_of(table)
    context = table.context
    polars = polars_rows_of(split, plan, context.store, context.budget)
    assert polars is not None
    assert late_of(polars).held_bytes > 7_001
    few = polars_rows_of(split, plan, context.store, Budget(8 * 7_000))

    assert few is None


# --- damage -------------------------------------------------------------------------------------


def file_of_old_rows(table: Table, tmp_path: Path) -> Path:
    ((split, _),) = plans_of(table)
    (path,) = (tmp_path / "t").rglob(split.runs[0][0].name)
    return path


@pytest.mark.usefixtures("chunks_of_a_group")
def test_text_that_is_no_utf8_is_read_by_the_own_reader(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(1_000), **PLAIN)
    written(table, range(0, 1_000, 3), "new")
    replace_in(file_of_old_rows(table, tmp_path), b"old500", b"old\xff00")
    ((split, plan),) = plans_of(table)
    (polars,) = polars_of(table)
    assert polars is not None
    assert late_of(polars).flagged is not None
    windows = read_split(split, plan, table.context.store, table.context.budget)

    rows = sorted_rows(list(polars.batches()), plan.output)
    assert rows == sorted_rows(list(windows), plan.output)
    assert any("old\ufffd00" in row for row in rows)


@pytest.mark.parametrize("where", ["in a chunk", "between chunks", "to one that is newer"])
def test_keys_out_of_order_are_named(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where != "in a chunk":
        monkeypatch.setattr(Share.CHUNK, "under", 1 << 20)
        monkeypatch.setattr(read_planner, "_CHUNK_PARTS_MIN", 0)
    table = with_old_rows(tmp_path, range(0, 1_000, 2), **PLAIN)
    written(table, [4], "new")
    path = file_of_old_rows(table, tmp_path)
    (polars,) = polars_of(table)
    assert polars is not None
    at = 7
    if where != "in a chunk":
        flagged = late_of(polars).flagged
        assert flagged is not None
        at = flagged.parts[3].group.first_row
    fallen = 4 if where == "to one that is newer" else 2 * at - 3
    if where == "to one that is newer":
        at += 1
    old, new = (number.to_bytes(8, "little") for number in (2 * at, fallen))
    assert old in path.read_bytes()
    replace_in(path, old, new)

    for rows_of in (table.to_arrow, table.to_polars):
        with pytest.raises(CorruptTable, match=f"out of order.*{path.name}"):
            rows_of()


def test_damaged_file_is_named(tmp_path: Path) -> None:
    table = with_old_rows(tmp_path, range(5_000))
    written(table, range(10), "new")
    path = file_of_old_rows(table, tmp_path)
    column = pq.read_metadata(path).row_group(5).column([*pq.read_schema(path).names].index("v"))
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    path.write_bytes(bytes(data))

    for rows_of in (table.to_arrow, table.to_polars):
        with pytest.raises(CorruptTable, match=path.name):
            rows_of()


def test_null_keys_are_no_keys() -> None:
    newer = NewerKeys(key="id", low=-1, lacking=np.array([True, False, False, True]))
    assert newer.lack(pl.Series([-2, -1, 0, 1])).to_list() == [True, False, False, True]
    assert newer.lack(pl.Series([0, None])).to_list() == [False, True]

    with pytest.raises(pl.exceptions.ComputeError, match="null"):
        newer.kept(pl.LazyFrame({"id": [-1, None, 2]}), 0)


def test_order_is_that_of_chunks_read_in_any_order() -> None:
    newer = NewerKeys(key="id", low=1, lacking=np.array([True, False, True]))
    assert newer.are_in_order(20, pl.Series([5, 5, 6]))
    assert newer.are_in_order(0, pl.Series([1, 4]))
    assert newer.are_in_order(10, pl.Series([], dtype=pl.Int64))
    assert newer.are_in_order(30, pl.concat([pl.Series([6]), pl.Series([7])], rechunk=False))
    assert not newer.are_in_order(40, pl.Series([6]))
    assert newer.are_in_order(40, pl.Series([8]))
    assert not newer.are_in_order(10, pl.Series([4, 3]))
