"""Rows that hold references to BLOB values: descriptors, which reads follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore import BlobDescriptor
from lakecore.errors import CorruptTable, InvalidRequest, NotFound, Unsupported
from lakecore.table.file_reader import blob_resolution

if TYPE_CHECKING:
    from lakecore.table.handle import Table

EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
COLUMNS = {"k": "INT", "b": "BLOB", "v": "STRING"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A directory outside the table, with a file of ten bytes."""
    place = tmp_path / "images"
    place.mkdir()
    (place / "cat").write_bytes(b"0123456789")
    return place


def made(tmp_path: Path, columns: dict[str, str] | None = None, **options: str) -> Table:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    named = {"blob-descriptor-field": "b"} | EVOLVING | named
    return lc.open_table(tmp_path / "t", create=True, schema=columns or COLUMNS, options=named)


def opened(tmp_path: Path, images: Path, **options: str) -> Table:
    named = {key.replace("_", "-"): text for key, text in options.items()}
    return lc.open_table(tmp_path / "t", options={"lakecore.blob-paths": str(images)} | named)


def cat(images: Path, *place: int) -> bytes:
    return BlobDescriptor(str(images / "cat"), *place).to_bytes()


def row(key: int, blob: object) -> dict[str, object]:
    return {"k": key, "b": blob, "v": f"v{key}"}


def blobs(table: Table, **arguments: Any) -> list[object]:
    return table.to_polars(**arguments).sort("k")["b"].to_list()


def test_values_are_those_that_descriptors_name(tmp_path: Path, images: Path) -> None:
    given = [cat(images), cat(images, 2, 3), None, cat(images, 10, 0), cat(images, 4)]
    made(tmp_path).write([row(key, blob) for key, blob in enumerate(given)])
    table = opened(tmp_path, images)

    assert blobs(table) == [b"0123456789", b"234", None, b"", b"456789"]
    assert blobs(table, where="k > 2") == [b"", b"456789"]
    assert blobs(table, where="b is null") == [None]
    assert table.to_polars(where=pl.col("b") == b"234")["k"].to_list() == [1]
    assert table.to_arrow(["b"], "k = 1")["b"].to_pylist() == [b"234"]
    assert table.to_polars(["v"])["v"].len() == table.count() == 5
    assert table.scan().filter(pl.col("b") == b"").collect()["k"].to_list() == [3]
    assert table.to_duckdb().filter("b = '234'::BLOB").fetchall() == [(1, b"234", "v1")]
    assert not [name for name in table.inspect.files()["file_path"] if name.endswith(".blob")]


def test_descriptors_are_read_as_they_are(tmp_path: Path, images: Path) -> None:
    given = [cat(images), None, cat(images, 2, 3)]
    made(tmp_path).write([row(key, blob) for key, blob in enumerate(given)])
    table = lc.open_table(tmp_path / "t", options={"blob-as-descriptor": "true"})

    assert blobs(table) == given
    assert table.to_polars(where=pl.col("b") == cat(images, 2, 3))["k"].to_list() == [2]
    assert BlobDescriptor.from_bytes(given[2] or b"") == BlobDescriptor(str(images / "cat"), 2, 3)


def test_descriptors_are_joined_with_columns_that_were_changed(
    tmp_path: Path, images: Path
) -> None:
    table = made(tmp_path, deletion_vectors__enabled="true")
    table.write([row(key, cat(images, key, 1)) for key in range(4)])
    table.update({"v": "new"}, "k in (1, 2)")
    table.update({"b": cat(images, 8)}, "k = 2")
    table.merge([row(0, cat(images, 7, 2)), row(9, cat(images, 9))], on="k").when_matched_update(
        {"b": pl.col("source.b")}
    ).when_not_matched_insert_all().execute()
    table.delete("k = 3")
    expected = [b"78", b"1", b"89", b"9"]
    assert blobs(opened(tmp_path, images)) == expected

    table.compact(full=True)
    table = opened(tmp_path, images)
    assert blobs(table) == expected
    assert table.to_polars().sort("k")["v"].to_list() == ["v0", "new", "new", "v9"]


def test_changes_have_the_values(tmp_path: Path, images: Path) -> None:
    made(tmp_path).write([row(0, cat(images, 1, 1))])
    table = opened(tmp_path, images)
    table.write([row(1, cat(images, 2, 1)), row(2, None)])
    frames = [frame.collect() for _, frame in table.stream(from_snapshot=1, until="latest")]

    assert [frame["b"].to_list() for frame in frames] == [[b"1"], [b"2", None]]
    assert table.changes(1, 2).collect()["b"].to_list() == [b"2", None]


def test_files_outside_the_table_need_the_word_of_the_reader(tmp_path: Path, images: Path) -> None:
    table = made(tmp_path)
    table.write([row(0, cat(images))])
    with pytest.raises(InvalidRequest, match=r"outside the table.*lakecore\.blob-paths"):
        blobs(table)
    for place in (images / "other", images / "cat", Path(f"{images}x")):
        with pytest.raises(InvalidRequest, match="outside the table"):
            blobs(opened(tmp_path, place))
    for uri in (f"{images}/../secret", f"{tmp_path}/t/../secret", "https://h/cat", "cat"):
        table.overwrite([row(0, BlobDescriptor(uri).to_bytes())])
        with pytest.raises(InvalidRequest, match="outside the table"):
            blobs(opened(tmp_path, images))


def test_a_table_does_not_state_where_descriptors_may_lead(tmp_path: Path, images: Path) -> None:
    made(tmp_path, lakecore__blob_paths=str(images)).write([row(0, cat(images))])
    schema = tmp_path / "t" / "schema" / "schema-0"
    stated = json.loads(schema.read_text())
    assert "lakecore.blob-paths" not in stated["options"]
    stated["options"]["lakecore.blob-paths"] = str(images)
    schema.write_text(json.dumps(stated))
    with pytest.raises(InvalidRequest, match="outside the table"):
        blobs(lc.open_table(tmp_path / "t"))
    assert blobs(opened(tmp_path, images)) == [b"0123456789"]


def test_a_table_does_not_state_the_storage_of_descriptors(tmp_path: Path) -> None:
    endpoint = {"blob-descriptor.s3.endpoint": "http://elsewhere"}
    session = lc.connect({"warehouse": str(tmp_path)}, create=True)
    session.create_database("db")
    options = {"blob-descriptor-field": "b", **EVOLVING, **endpoint}
    table = session.create_table("db.t", COLUMNS, options=options)
    assert not table.context.options.blob_descriptor_storage
    table = table.copy(endpoint).refresh()
    assert table.context.options.blob_descriptor_storage == {"s3.endpoint": "http://elsewhere"}
    session.alter_table("db.t", [lc.SchemaChange.update_comment("c")])
    assert endpoint.items() <= session.get_table("db.t").context.schema.options.items()


def test_a_state_before_a_column_was_dropped_has_its_values(tmp_path: Path, images: Path) -> None:
    session = lc.connect({"warehouse": str(tmp_path)}, create=True)
    session.create_database("db")
    options = {"blob-descriptor-field": "b", **EVOLVING}
    table = session.create_table("db.t", COLUMNS, options=options)
    table.write([row(key, cat(images, key, 1)) for key in range(2)])
    table.update({"v": "new"}, "k = 0")
    session.alter_table("db.t", [lc.SchemaChange.drop_column("b")])
    table = session.get_table("db.t").copy({"lakecore.blob-paths": str(images)})
    assert table.schema.names == ("k", "v")
    for snapshot_id in (1, 2):
        assert blobs(table, snapshot_id=snapshot_id) == [b"0", b"1"]


def test_files_of_the_table_itself_are_read(tmp_path: Path) -> None:
    table = made(tmp_path, {"k": "INT", "b": "BLOB", "c": "BLOB"})
    table.write([{"k": 0, "b": None, "c": b"value"}])
    (own,) = table.copy({"blob-as-descriptor": "true"}).to_polars()["c"].to_list()
    table.write([{"k": 1, "b": own, "c": None}])

    assert table.to_polars().sort("k").rows() == [(0, None, b"value"), (1, b"value", None)]


def test_what_is_missing_or_wrong_is_an_error(tmp_path: Path, images: Path) -> None:
    for uri, place, error, match in (
        (images / "dog", (), NotFound, "dog"),
        (tmp_path / "t" / "dog", (), CorruptTable, "file of BLOB values is missing"),
        (images / "cat", (8, 3), CorruptTable, "beyond the end"),
        (images / "cat", (11,), CorruptTable, "beyond the end"),
    ):
        table = made(tmp_path)
        table.overwrite([row(0, BlobDescriptor(str(uri), *place).to_bytes())])
        with pytest.raises(error, match=match):
            blobs(opened(tmp_path, images))
        assert table.to_polars(["k"])["k"].to_list() == [0]


def test_only_references_are_stored_in_such_a_column(tmp_path: Path, images: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidRequest, match=r"stores references .*column=b"):
        table.write([row(0, cat(images)), row(1, b"a value")])
    table.write([row(0, cat(images))])
    with pytest.raises(InvalidRequest, match=r"stores references .*column=b"):
        table.update({"b": b"a value"}, "k = 0")
    assert blobs(opened(tmp_path, images)) == [b"0123456789"]


def test_a_change_does_not_compare_values_that_it_does_not_read(
    tmp_path: Path, images: Path
) -> None:
    table = made(tmp_path, deletion_vectors__enabled="true")
    table.write([row(0, cat(images)), row(1, cat(images, 1))])
    match = r"cannot use BLOB values.* columns=\[b\]"
    with pytest.raises(Unsupported, match=match):
        table.delete(pl.col("b") == b"0123456789")
    with pytest.raises(Unsupported, match=match):
        table.update({"v": pl.col("b").bin.encode("hex")}, "k = 0")
    with pytest.raises(Unsupported, match=match):
        table.merge([row(0, None)], on="b").when_matched_delete().execute()
    as_descriptors = table.copy({"blob-as-descriptor": "true"})
    as_descriptors.delete(pl.col("b") == cat(images))
    assert table.to_polars(["k"])["k"].to_list() == [1]


def test_descriptors_are_copied_into_files_of_blob_values(tmp_path: Path, images: Path) -> None:
    columns = {"k": "INT", "b": "BLOB", "l": "ARRAY<BLOB>"}
    table = made(tmp_path, columns, blob_descriptor_field="")
    given = {"k": 0, "b": cat(images, 1, 2), "l": [cat(images), None, b"plain"]}
    with pytest.raises(InvalidRequest, match="outside the table"):
        table.write([given])
    opened(tmp_path, images).write([given])
    (images / "cat").unlink()

    assert table.to_arrow().to_pylist() == [
        {"k": 0, "b": b"12", "l": [b"0123456789", None, b"plain"]}
    ]


def test_descriptors_that_cannot_be_copied_become_null_if_options_say_so(
    tmp_path: Path, images: Path
) -> None:
    made(tmp_path, blob_descriptor_field="")
    gone = BlobDescriptor(str(images / "dog")).to_bytes()
    table = opened(tmp_path, images)
    with pytest.raises(NotFound, match="dog"):
        table.write([row(0, gone)])
    table = opened(tmp_path, images, blob_write_null_on_missing_file="true")
    with pytest.raises(CorruptTable, match="beyond"):
        table.write([row(0, cat(images, 20, 1))])
    table.write([row(0, gone)])
    table = opened(tmp_path, images, blob_write_null_on_fetch_failure="true")
    table.write([row(1, cat(images, 20, 1))])
    assert blobs(table) == [None, None]


def test_a_missing_file_of_the_table_becomes_null_if_options_say_so(
    tmp_path: Path, images: Path
) -> None:
    made(tmp_path, blob_descriptor_field="")
    gone = BlobDescriptor(str(tmp_path / "t" / "dog")).to_bytes()
    with pytest.raises(CorruptTable, match="is missing"):
        opened(tmp_path, images).write([row(0, gone)])
    opened(tmp_path, images, blob_write_null_on_missing_file="true").write([row(0, gone)])
    assert blobs(opened(tmp_path, images)) == [None]


@pytest.mark.parametrize("length", [1 << 40, (1 << 63) - 1])
def test_a_descriptor_of_more_bytes_than_memory_is_damage(
    tmp_path: Path, images: Path, length: int
) -> None:
    huge = cat(images, 0, length)
    columns = {"k": "INT", "b": "BLOB", "c": "BLOB"}
    table = made(tmp_path, columns, blob_descriptor_field="b,c")
    table.write([{"k": key, "b": huge, "c": huge} for key in range(3)])
    with pytest.raises(CorruptTable, match="beyond the end"):
        blobs(opened(tmp_path, images))


def test_values_next_to_each_other_may_be_in_many_files(tmp_path: Path, images: Path) -> None:
    for number in range(20):
        (images / f"{number}").write_bytes(b"%d" % number)
    given = [BlobDescriptor(f"{images}/{key % 20}").to_bytes() for key in range(100)]
    made(tmp_path).write([row(key, blob) for key, blob in enumerate(given)])
    assert blobs(opened(tmp_path, images)) == [b"%d" % (key % 20) for key in range(100)]


def test_statistics_of_all_columns_read_no_descriptor(tmp_path: Path, images: Path) -> None:
    table = made(tmp_path)
    table.write([row(0, cat(images))])
    found = table.analyze().statistics
    assert found is not None
    assert found.columns.keys() == {"k", "v"}
    found = opened(tmp_path, images).analyze(["b"]).statistics
    assert found is not None
    assert found.columns["b"].max_length == 10


def test_views_are_stored_and_read_as_they_are(tmp_path: Path) -> None:
    table = made(tmp_path, blob_descriptor_field="", blob_view_field="b")
    view = lc.BlobView("db.t", 2, 7).to_bytes()
    table.write([row(0, view), row(1, None)])
    with pytest.raises(Unsupported, match=r"blob-view\.resolve\.enabled=false"):
        blobs(table)

    assert blobs(table.copy({"blob-view.resolve.enabled": "false"})) == [view, None]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"blob_descriptor_field": "v"}, "not a column of the type BLOB"),
        ({"blob_descriptor_field": "l"}, "not a column of the type BLOB"),
        ({"blob_view_field": "l"}, "not a column of the type BLOB"),
        ({"blob_view_field": "b"}, "name the same column"),
        ({"blob_external_storage_field": "x"}, "that blob-descriptor-field does not"),
        ({"blob_external_storage_field": "b"}, "needs blob-external-storage-path"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, str], match: str
) -> None:
    with pytest.raises(InvalidRequest, match=match):
        made(tmp_path, {**COLUMNS, "l": "ARRAY<BLOB>"}, **options)


def test_values_of_an_external_storage_are_written_there(tmp_path: Path, images: Path) -> None:
    made(tmp_path, blob_external_storage_field="b", blob_external_storage_path=str(images))
    table = opened(tmp_path, images)
    table.write([row(0, b"first"), row(1, None), row(2, b"")])
    table.update({"b": b"second"}, "k = 1")
    table.update({"v": "new"}, "k = 0")
    table.compact(full=True)

    assert blobs(opened(tmp_path, images)) == [b"first", b"second", b""]
    assert len([each for each in images.iterdir() if each.suffix == ".blob"]) == 2


def test_the_place_of_an_external_storage_is_absolute(tmp_path: Path) -> None:
    table = made(tmp_path, blob_external_storage_field="b", blob_external_storage_path="images")
    with pytest.raises(InvalidRequest, match="must be absolute"):
        table.write([row(0, b"value")])


def test_a_changelog_tells_the_old_value_of_an_external_storage(
    tmp_path: Path, images: Path
) -> None:
    options = {
        "primary-key": "k",
        "bucket": "1",
        "changelog-producer": "input",
        "blob-descriptor-field": "b",
        "blob-external-storage-field": "b",
        "blob-external-storage-path": str(images),
    }
    columns = {**COLUMNS, "k": "INT NOT NULL"}
    plain = lc.open_table(tmp_path / "t", create=True, schema=columns, options=options)
    with pytest.raises(InvalidRequest, match=r"add it to the dynamic option lakecore\.blob-paths"):
        plain.write([row(0, b"old")])
    table = opened(tmp_path, images)
    table.write([row(0, b"old")])
    table.update({"b": b"new"}, "k = 0")
    (_, _), (_, changes) = table.stream(from_snapshot=1, until="latest")
    assert changes.collect().select("_row_kind", "b").rows() == [("-U", b"old"), ("+U", b"new")]


def test_values_of_a_batch_fit_an_array(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_resolution, "ARRAY_BYTES_MAX", 25)
    made(tmp_path).write([row(key, cat(images)) for key in range(5)])
    batches = [*opened(tmp_path, images).to_batches(["b"])]
    assert [batch.num_rows for batch in batches] == [2, 2, 1]


def test_large_values_come_in_small_batches(tmp_path: Path) -> None:
    table = made(tmp_path, {"k": "INT", "b": "BLOB", "c": "BLOB"})
    table.write([{"k": 0, "b": None, "c": b"x" * (3 << 20)}])
    (own,) = table.copy({"blob-as-descriptor": "true"}).to_polars()["c"].to_list()
    table.write([{"k": key, "b": own, "c": None} for key in range(1, 12)])
    table = lc.open_table(tmp_path / "t", options={"lakecore.memory-budget": "64 mb"})
    sizes = [batch.num_rows for batch in table.to_batches(["b"], "k > 0")]

    assert sum(sizes) == 11
    assert max(sizes) <= 2
    assert isinstance(table.schema.arrow.field("b").type, pa.DataType)
