"""Repair of metadata: merged manifests, files that do not exist, a history with a gap."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import lakecore as lc
from tests.stores import FullStore, files_below
from tests.tables import held, in_directory, new_table, put, reopened

MARKING: dict[str, Any] = {"deletion_vectors__enabled": "true"}


def made(place: Path, **options: str) -> lc.Table:
    session = lc.connect(place / "w", create=True)
    session.create_database("default")
    columns = {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}
    return session.create_table(
        "default.t",
        columns,
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "1", "write-only": "true", **options},
    )


def add(table: lc.Table, *rows: tuple[int, str, str]) -> None:
    table.write(pl.DataFrame(list(rows), {"id": pl.Int32, "v": str, "dt": str}, orient="row"))


def rows_of(table: lc.Table) -> list[tuple[object, ...]]:
    return table.to_polars().sort("dt", "id").select("id", "v", "dt").rows()


def call(place: Path, text: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = lc.connect(place / "w").sql(f"CALL sys.{text}").fetchall()
    return rows


@pytest.fixture
def table(tmp_path: Path) -> lc.Table:
    made(tmp_path)
    return lc.connect(tmp_path / "w").get_table("default.t")


# --- compact_manifests ----------------------------------------------------------------------------


def test_merged_manifests_hold_the_same_files(table: lc.Table) -> None:
    for n in range(5):
        add(table, (n, f"v{n}", "a"))
    table.compact(full=True)
    before = rows_of(table)
    files = sorted(table.inspect.files()["file_path"])
    done = table.compact_manifests()
    again = table.compact_manifests()

    assert done.snapshot_ids == (7,)
    assert again.snapshot_ids == ()
    assert table.inspect.manifests().height == 1
    assert table.inspect.manifests()["num_deleted_files"].to_list() == [0]
    assert sorted(table.inspect.files()["file_path"]) == files
    assert rows_of(table) == before
    last = table.inspect.snapshots().sort("snapshot_id").row(-1, named=True)
    assert (last["commit_kind"], last["delta_record_count"]) == ("COMPACT", 0)
    assert last["total_record_count"] == 5


def test_manifests_of_an_empty_table(table: lc.Table) -> None:
    assert table.compact_manifests().snapshot_ids == ()


def test_the_procedure_compact_manifest(table: lc.Table, tmp_path: Path) -> None:
    assert call(tmp_path, "compact_manifest('t', '', true)") == [("Dry run: no snapshot exists.",)]
    for n in range(3):
        add(table, (n, "v", "a"))
    (said,) = call(tmp_path, "compact_manifest(table => 't', dry_run => true)")[0]

    assert str(said).startswith("Dry run: 3 manifest files (")
    assert str(said).endswith("0 deleted entries in 0 files, 3 undersized files (< 8 mb).")
    assert call(tmp_path, "compact_manifest(`table` => 'default.t')") == [("success",)]
    assert table.inspect.manifests().height == 1
    with pytest.raises(lc.Unsupported, match="manifest_sort_enabled"):
        call(tmp_path, "compact_manifest(table => 't', manifest_sort_enabled => true)")


# --- remove_unexisting_files ----------------------------------------------------------------------


def test_missing_files_are_taken_out_and_the_rest_can_be_read(
    table: lc.Table, tmp_path: Path
) -> None:
    add(table, (1, "old", "a"), (2, "x", "b"))
    add(table, (1, "new", "a"))
    newest = table.inspect.files().sort("max_sequence_number").row(-1, named=True)["file_path"]
    lost = next((tmp_path / "w").rglob(Path(str(newest)).name))
    lost.unlink()
    with pytest.raises(lc.CorruptTable):
        rows_of(table)
    listed = table.remove_unexisting_files(dry_run=True)
    assert table.inspect.snapshots().height == 2
    done = call(tmp_path, "remove_unexisting_files('default.t')")

    assert listed == (str(lost),)
    assert done == [(str(lost),)]
    assert rows_of(table) == [(1, "old", "a"), (2, "x", "b")]
    assert table.remove_unexisting_files() == ()
    last = table.inspect.snapshots().sort("snapshot_id").row(-1, named=True)
    assert (last["commit_kind"], last["total_record_count"]) == ("OVERWRITE", 2)


def test_the_vectors_of_a_missing_file_go_too(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("default")
    table = session.create_table(
        "default.t", {"id": "INT"}, options={"deletion-vectors.enabled": "true"}
    )
    table.write(pl.DataFrame({"id": [1, 2]}, {"id": pl.Int32}))
    table.write(pl.DataFrame({"id": [3, 4]}, {"id": pl.Int32}))
    table.delete("id IN (1, 3)")
    for lost in (tmp_path / "w").rglob("data-*.parquet"):
        if pl.read_parquet(lost)["id"].to_list() == [1, 2]:
            lost.unlink()
    gone = table.remove_unexisting_files()

    assert len(gone) == 1
    assert table.to_polars()["id"].to_list() == [4]
    table.compact(full=True)
    assert table.to_polars()["id"].to_list() == [4]


def test_table_without_rows_lacks_no_file(table: lc.Table) -> None:
    assert table.remove_unexisting_files() == ()


def test_vectors_go_if_those_of_another_bucket_cannot_be_written() -> None:
    table = new_table({"p": "STRING", "id": "INT"}, keys=(), partitions=("p",), **MARKING)
    for number in (1, 3):
        put(table, f"a {number} | a {number + 1} | b {number} | b {number + 1}")
    table.delete("id IN (1, 3)")
    store = table.context.store
    history = table.context.history
    first = [entry.file.name for entry in history.live_entries(history.snapshot(1))]
    for path in files_below(store, table.path):
        if path.rpartition("/")[2] in first:
            store.delete(path)
    before = in_directory(table, "index")

    for place, count in (("/index/", 1), ("/manifest/", 0)):
        full = FullStore(store, place, count)
        with pytest.raises(lc.StorageError, match="no space left"):
            reopened(table, store=full).remove_unexisting_files()
        assert in_directory(table, "index") == before
    assert len(reopened(table).remove_unexisting_files()) == 2
    assert held(reopened(table)) == "a 4 | b 4"


# --- repair_earliest_snapshot ---------------------------------------------------------------------


def test_history_begins_after_a_gap(table: lc.Table, tmp_path: Path) -> None:
    for n in range(5):
        add(table, (n, "v", "a"))
    directory = next((tmp_path / "w").rglob("snapshot"))
    (directory / "snapshot-3").unlink()
    for wrong, error in ((2, lc.NotFound), (5, lc.InvalidRequest), (9, lc.InvalidRequest)):
        with pytest.raises(error):
            table.repair_earliest_snapshot(wrong)
    done = call(tmp_path, "repair_earliest_snapshot(table => 't', snapshot_id => 4)")
    fresh = lc.connect(tmp_path / "w").get_table("default.t")

    assert done == [(1, 4)]
    assert fresh.inspect.snapshots()["snapshot_id"].to_list() == [4, 5]
    assert fresh.repair_earliest_snapshot(4) == 4
    fresh.expire_snapshots(retain_max=1, retain_min=1)
    assert len(rows_of(fresh)) == 5


def test_an_empty_table_has_no_first_snapshot(table: lc.Table) -> None:
    with pytest.raises(lc.NotFound, match="no snapshot"):
        table.repair_earliest_snapshot(1)
    with pytest.raises(lc.InvalidRequest):
        table.repair_earliest_snapshot("1")  # type: ignore[arg-type]  # a wrong call


# --- partition_idle_time --------------------------------------------------------------------------


def test_only_idle_partitions_are_compacted(table: lc.Table, tmp_path: Path) -> None:
    for dt in "ab":
        add(table, (1, "v", dt))
        add(table, (2, "v", dt))
    assert table.compact(full=True, partition_idle_time="1 h").snapshot_ids == ()
    assert table.compact(full=True, partition_idle_time=timedelta(days=1)).snapshot_ids == ()
    call(tmp_path, "compact(`table` => 't', partition_idle_time => '1 d')")
    assert table.inspect.files().height == 4
    call(tmp_path, "compact_database(partition_idle_time => '1 d')")
    assert table.inspect.files().height == 4

    call(tmp_path, "compact(`table` => 't', partition_idle_time => '0 s')")
    assert table.inspect.files().height == 2


@pytest.mark.parametrize("wrong", ["soon", "-1 d", timedelta(days=-1), 3])
def test_a_wrong_idle_time_is_refused(table: lc.Table, wrong: object) -> None:
    with pytest.raises(lc.InvalidRequest, match="idle time"):
        table.compact(partition_idle_time=wrong)  # type: ignore[arg-type]  # a wrong call


def test_an_idle_time_does_not_go_with_a_sort(table: lc.Table) -> None:
    with pytest.raises(lc.InvalidRequest, match="sort"):
        table.compact(partition_idle_time="1 d", order_strategy="order", order_by=["v"])
