"""BLOB values of tables with a primary key: values in managed files, descriptors in the rows."""

from __future__ import annotations

import shutil
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.blob_references import BlobDescriptor, encode_file_list
from lakecore.table.writes.write_compaction import WriteCompaction
from tests.stores import FailingStore
from tests.tables import in_directory, new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "b": "BLOB", "l": "ARRAY<BLOB>", "v": "STRING"}
MANAGED = ".managed.blob"
SEQUENCE_OF_B = "fields__v__sequence_group"


def row(key: int, blob: bytes | None, *parts: bytes | None, v: str = "v") -> dict[str, Any]:
    return {"id": key, "b": blob, "l": list(parts), "v": v}


def held(table: Table, **arguments: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**arguments).to_pylist(), key=lambda each: each["id"])


def grouped(group: str, columns: str, **options: str) -> dict[str, str]:
    return {"merge_engine": "partial-update", group: columns, **options}


def managed(table: Table, directory: str = "bucket-0") -> set[str]:
    return {name for name in in_directory(table, directory) if name.endswith(MANAGED)}


def test_newest_values_are_read_and_compactions_move_none() -> None:
    table = new_table(COLUMNS, write_only="true")
    table.write([row(1, b"old", b"a", None), row(2, b"two"), row(3, None)])
    table.write([row(1, b"new", b"c"), row(4, b"")])
    expected = [row(1, b"new", b"c"), row(2, b"two"), row(3, None), row(4, b"")]
    assert held(table) == expected
    assert held(table, where=pl.col("b") == b"two") == [row(2, b"two")]
    assert table.to_polars(["v"])["v"].len() == table.count() == 4

    files = managed(table)
    table.compact(full=True)
    assert held(table) == expected
    assert managed(table) == files
    assert table.inspect.files()["record_count"].to_list() == [4]


def test_updates_and_deletions_keep_other_values() -> None:
    table = new_table(COLUMNS)
    table.write([row(key, b"%d" % key, b"p%d" % key) for key in range(4)])
    files = managed(table)
    table.update({"v": "new"}, "id in (0, 1)")
    assert managed(table) == files
    table.update({"b": b"other"}, "id = 1")
    table.delete("id = 2")
    source = [row(3, b"merged"), row(9, b"nine")]
    merge = table.merge(source, on="id").when_matched_update({"b": pl.col("source.b")})
    merge.when_not_matched_insert_all().execute()

    assert held(table) == [
        row(0, b"0", b"p0", v="new"),
        row(1, b"other", b"p1", v="new"),
        row(3, b"merged", b"p3"),
        row(9, b"nine"),
    ]


@pytest.mark.parametrize("engine", ["partial-update", "first-row"])
def test_other_merge_engines(engine: str) -> None:
    table = new_table({"id": "INT NOT NULL", "b": "BLOB", "v": "STRING"}, merge_engine=engine)
    table.write([{"id": 1, "b": b"first", "v": None}])
    table.write([{"id": 1, "b": None, "v": "x"}])
    table.compact(full=True)

    v = "x" if engine == "partial-update" else None
    assert held(table) == [{"id": 1, "b": b"first", "v": v}]


def test_each_data_file_lists_the_managed_files_of_its_rows() -> None:
    table = new_table(COLUMNS, blob__target_file_size="1 kb", write_only="true")
    table.write([row(key, b"x" * 700) for key in range(4)])
    (parquet,) = table.inspect.files()["file_path"]
    store, name = table.context.store, str(parquet).rpartition("/")[2]
    uris = [f"{table.path}/bucket-0/{each}" for each in managed(table)]
    assert len(uris) == 2
    assert store.read(f"{table.path}/bucket-0/{name}.blobref") == encode_file_list(uris)

    table.delete("id < 9")
    newest = table.inspect.files()["file_path"].to_list()
    (deleted,) = {str(path).rpartition("/")[2] for path in newest} - {name}
    assert store.read(f"{table.path}/bucket-0/{deleted}.blobref") == encode_file_list([])
    assert held(table) == []
    table.compact(full=True)
    assert table.remove_orphan_files(older_than="2100-01-01", force=True).files == 0
    assert len(managed(table)) == 2


def test_partitions_postponed_buckets_and_rescale() -> None:
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "b": "BLOB"}
    table = new_table(columns, keys=("id", "p"), partitions=("p",), bucket="-2")
    table.write([{"id": key, "p": f"p{key % 2}", "b": b"%d" % key} for key in range(6)])
    expected = [(key, b"%d" % key) for key in range(6)]
    table.compact()
    assert table.to_polars(["id", "b"]).sort("id").rows() == expected
    table.rescale(bucket_num=3)
    table = reopened(table)
    assert table.to_polars(["id", "b"]).sort("id").rows() == expected


def test_changes_and_lookups_have_the_values() -> None:
    table = new_table({"id": "INT NOT NULL", "b": "BLOB"})
    table.write([{"id": 1, "b": b"one"}, {"id": 2, "b": b"two"}])
    table.write([{"id": 1, "b": b"uno"}])
    frames = [frame.collect() for _, frame in table.stream(from_snapshot=1, until="latest")]

    assert [frame["b"].to_list() for frame in frames] == [[b"one", b"two"], [b"uno"]]
    assert table.changes(1, 2).collect()["b"].to_list()[-1] == b"uno"
    assert table.lookup([{"id": 2}, {"id": 1}])["b"].to_list() == [b"two", b"uno"]
    with table.open_lookup(on=["id"]) as lookup:
        assert lookup.rows([{"id": 1}])["b"].to_list() == [b"uno"]
        assert not lookup.cached_bytes
    with table.open_lookup(on=["id"], columns=["id"]) as lookup:
        assert lookup.rows([{"id": 1}])["id"].to_list() == [1]
        assert lookup.cached_bytes


def test_a_table_that_was_moved_finds_its_values(tmp_path: Path) -> None:
    options = {"primary-key": "id,p", "partition": "p", "bucket": "1"}
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "b": "BLOB"}
    table = lc.open_table(tmp_path / "t", create=True, schema=columns, options=options)
    table.write([{"id": 1, "p": "x", "b": b"one"}])
    shutil.move(tmp_path / "t", tmp_path / "u")
    table = lc.open_table(tmp_path / "u")
    assert table.to_polars()["b"].to_list() == [b"one"]

    for file in (tmp_path / "u").rglob(f"*{MANAGED}"):
        file.unlink()
    with pytest.raises(InvalidRequest, match="outside the table"):
        table.to_polars()


def test_a_table_that_was_moved_within_the_blob_paths_finds_its_values(tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT NOT NULL", "b": "BLOB"},
        options={"primary-key": "id", "bucket": "1"},
    )
    table.write([{"id": 1, "b": b"one"}])
    shutil.move(tmp_path / "t", tmp_path / "u")
    table = lc.open_table(tmp_path / "u", options={"lakecore.blob-paths": str(tmp_path)})
    assert table.to_polars()["b"].to_list() == [b"one"]


def test_large_values_make_no_small_data_files() -> None:
    table = new_table(COLUMNS, write_only="true", budget_bytes=16 << 20)
    with table.new_write() as writer:
        for key in range(4):
            writer.write([row(key, b"x" * (3 << 20))])
        table.commit(writer.prepare_commit())
    assert table.inspect.files()["record_count"].to_list() == [4]


def test_a_missing_managed_file_is_damage(tmp_path: Path) -> None:
    options = {"primary-key": "id", "bucket": "1"}
    columns = {"id": "INT NOT NULL", "b": "BLOB"}
    table = lc.open_table(tmp_path / "t", create=True, schema=columns, options=options)
    table.write([{"id": 1, "b": b"one"}])
    (file,) = (tmp_path / "t").rglob(f"*{MANAGED}")
    file.write_bytes(file.read_bytes()[:5])
    with pytest.raises(CorruptTable, match="beyond the end"):
        table.to_polars()
    file.unlink()
    with pytest.raises(CorruptTable, match="is missing"):
        table.to_polars()
    assert table.to_polars(["id"])["id"].to_list() == [1]


def test_descriptors_of_managed_values() -> None:
    table = new_table(COLUMNS).copy({"blob-as-descriptor": "true"})
    table.write([row(1, b"value", b"part")])
    (shown,) = held(table)
    for descriptor, value in ((shown["b"], b"value"), (shown["l"][0], b"part")):
        named = BlobDescriptor.from_bytes(descriptor)
        data = table.context.store.read(named.uri)
        assert data[named.offset : named.offset + named.length] == value
        assert data[:4] == struct.pack("<i", 1_481_511_375)


def test_columns_that_must_not_be_null() -> None:
    table = new_table({"id": "INT NOT NULL", "b": "BLOB NOT NULL", "l": "ARRAY<BLOB> NOT NULL"})
    table.write([{"id": 1, "b": b"one", "l": []}, {"id": 2, "b": b"two", "l": [b"x"]}])
    table.delete("id = 1")
    assert held(table) == [{"id": 2, "b": b"two", "l": [b"x"]}]
    (_, _), (_, deleted) = table.stream(from_snapshot=1, until="latest")
    assert deleted.collect().rows() == [("-D", 1, b"", [])]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"merge_engine": "aggregation"}, "merge-engine"),
        ({"changelog_producer": "input"}, "changelog-producer"),
        ({"sequence__field": "b"}, "cannot be a sequence field"),
        ({"keys": ("id", "b")}, "cannot be a primary key"),
        (grouped("fields__b__sequence_group", "v"), "cannot be a sequence field of a group"),
        (grouped(SEQUENCE_OF_B, "b", fields__b__aggregate_function="first_value"), "no BLOB"),
    ],
)
def test_what_paimon_forbids_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidRequest, match=match):
        new_table(COLUMNS, **options)


@pytest.mark.parametrize("refused", range(1, 5))
def test_a_failed_write_leaves_no_file(refused: int) -> None:
    table = new_table(COLUMNS, blob__target_file_size="1 kb", write_only="true")

    class Refusing(FailingStore):
        opened = 0

        def open_output(self, path: str) -> Any:
            self.opened += 1
            if self.opened == refused:
                raise OSError("refused")
            return super().open_output(path)

    with pytest.raises(OSError, match="refused"):
        reopened(table, store=Refusing(table.context.store)).write(
            [row(key, b"x" * 700) for key in range(6)]
        )
    assert in_directory(table, "bucket-0") == set()


def test_a_write_whose_compaction_fails_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(COLUMNS)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("refused")

    monkeypatch.setattr(WriteCompaction, "compact", refuse)
    with pytest.raises(OSError, match="refused"):
        table.write([row(1, b"value", b"part")])
    assert in_directory(table, "bucket-0") == set()


def test_a_write_to_many_buckets_has_few_open_files() -> None:
    class Counting(FailingStore):
        now = most = 0

        @contextmanager
        def open_output(self, path: str) -> Iterator[Any]:
            self.now += path.endswith(MANAGED)
            self.most = max(self.most, self.now)
            try:
                with super().open_output(path) as out:
                    yield out
            finally:
                self.now -= path.endswith(MANAGED)

    table = new_table(COLUMNS, bucket="16", write_only="true")
    store = Counting(table.context.store)
    rows = [row(key, b"%d" % key * (1 << 19), b"small") for key in range(10, 50)]
    with reopened(table, store=store, budget_bytes=32 << 20).new_write() as writer:
        for each in rows:
            writer.write([each])
        table.commit(writer.prepare_commit())
    assert 1 <= store.most < 10
    assert held(table) == rows
