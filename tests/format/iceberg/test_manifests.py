"""Manifests of Iceberg, compared with those that Java Paimon 2.0 wrote for the same files."""

from __future__ import annotations

import json
import shutil
import struct
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.format.avro_container import Frame
from lakecore.format.iceberg import manifests

if TYPE_CHECKING:
    from lakecore.format.iceberg.manifests import Record

GOLDEN = Path(__file__).parents[2] / "golden" / "iceberg"


def document(table: Path) -> Any:
    version = (table / "metadata" / "version-hint.text").read_text()
    return json.loads((table / "metadata" / f"v{version}.metadata.json").read_text())


def lines(table: Path, snapshot_id: int) -> list[Record]:
    snapshots = {each["snapshot-id"]: each for each in document(table)["snapshots"]}
    name = Path(snapshots[snapshot_id]["manifest-list"]).name
    return manifests.decode_list((table / "metadata" / name).read_bytes(), name)


def live(table: Path, snapshot_id: int, content: int = manifests.DATA) -> dict[str, Record]:
    """The records of the files that a snapshot shows, by name and without their directory."""
    found = {}
    for line in lines(table, snapshot_id):
        path = table / "metadata" / Path(line["manifest_path"]).name
        for each in manifests.decode_manifest(path.read_bytes(), str(path)):
            record = each["data_file"]
            if record["content"] == content:
                found[Path(record["file_path"]).name] = {**record, "file_path": None}
    return found


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """A table of Java with its metadata, and one whose metadata lakecore wrote."""
    shutil.copytree(GOLDEN / "append", tmp_path / "java")
    shutil.copytree(GOLDEN / "append", tmp_path / "ours")
    lc.open_table(tmp_path / "ours").export_iceberg(rebuild=True)
    return tmp_path / "java", tmp_path / "ours"


def test_records_of_files_are_those_of_java(copies: tuple[Path, Path]) -> None:
    java, ours = copies

    assert len(live(java, 3)) == 2
    assert live(ours, 3) == live(java, 3)


def test_schemas_of_manifests_and_lists_are_those_of_java(copies: tuple[Path, Path]) -> None:
    for pattern in ("*-m?.avro", "snap-*.avro"):
        schemas = [
            {Frame(path.read_bytes(), "").metadata["avro.schema"] for path in found}
            for found in ((each / "metadata").glob(pattern) for each in copies)
        ]
        by_java, by_us = (
            {json.dumps(json.loads(each), sort_keys=True) for each in some} for some in schemas
        )

        assert len(by_java) == 1
        assert by_us == by_java


def test_document_has_the_keys_and_values_of_java(copies: tuple[Path, Path]) -> None:
    java, ours = map(document, copies)
    own = ("table-uuid", "location", "last-updated-ms", "snapshots", "refs")

    assert list(ours) == list(java)
    assert {key: each for key, each in ours.items() if key not in own} == {
        key: each for key, each in java.items() if key not in own
    }
    (snapshot,) = ours["snapshots"]

    assert snapshot["summary"]["operation"] == "append"
    for total in ("records", "data-files", "files-size"):
        key = f"total-{total}"

        assert snapshot["summary"][key] == java["snapshots"][-1]["summary"][key]


def test_vectors_of_the_rows_that_java_marked_are_in_a_puffin_file(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "vectors", tmp_path / "t")
    (by_java,) = live(tmp_path / "t", 4, manifests.DELETES).values()
    index = (tmp_path / "t" / "index").iterdir()
    blob = next(index).read_bytes()[1:]
    lc.open_table(tmp_path / "t").export_iceberg(rebuild=True)
    ((name, ours),) = live(tmp_path / "t", 4, manifests.DELETES).items()
    puffin = (tmp_path / "t" / "metadata" / name).read_bytes()
    start, size = ours["content_offset"], ours["content_size_in_bytes"]

    assert (ours["record_count"], size) == (by_java["record_count"], len(blob))
    assert Path(ours["referenced_data_file"]).name == Path(by_java["referenced_data_file"]).name
    assert ours["file_size_in_bytes"] == len(puffin)
    assert puffin[start : start + size] == blob
    assert puffin[:4] == puffin[-4:] == b"PFA1"
    (footer_size,) = struct.unpack("<i", puffin[-12:-8])
    footer = json.loads(puffin[-12 - footer_size : -12])

    assert puffin[-16 - footer_size : -12 - footer_size] == b"PFA1"
    assert [each["type"] for each in footer["blobs"]] == ["deletion-vector-v1"]
    assert footer["blobs"][0]["offset"] == start
    assert footer["blobs"][0]["properties"] == {
        "referenced-data-file": ours["referenced_data_file"],
        "cardinality": "1",
    }


@pytest.mark.parametrize(
    ("value", "type_name", "data"),
    [
        (True, "boolean", b"\x01"),
        (-2, "int", b"\xfe\xff\xff\xff"),
        (2, "long", b"\x02" + bytes(7)),
        ("é", "string", b"\xc3\xa9"),
        (1.5, "float", b"\x00\x00\xc0\x3f"),
    ],
)
def test_bounds_are_little_endian(value: object, type_name: str, data: bytes) -> None:
    assert manifests.bound(value, type_name) == data


def test_decimals_are_the_shortest_big_endian_numbers() -> None:
    texts = ["1.25", "1.28", "-1.28", "-1.29", "0.00", None]
    numbers = pa.array([text and Decimal(text) for text in texts], pa.decimal128(38, 2))

    assert manifests.plain_values(numbers, "decimal(38, 2)") == [
        b"\x7d",
        b"\x00\x80",
        b"\x80",
        b"\xff\x7f",
        b"\x00",
        None,
    ]


def test_summary_of_partitions_leaves_nan_out_of_the_bounds() -> None:
    record = {"content": 0, "record_count": 1}
    entries = [
        {**manifests.entry({**record, "partition": {"f": value}}, 7)}
        for value in (float("nan"), None, 0.0, 2.5)
    ]
    (found,) = manifests.manifest_line("m", 1, entries, ["double"], 7)["partitions"]

    assert found == {
        "contains_null": True,
        "contains_nan": True,
        "lower_bound": struct.pack("<d", -0.0),
        "upper_bound": struct.pack("<d", 2.5),
    }


def test_entries_inherit_row_ids_in_order(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "append", tmp_path / "t")
    table = lc.open_table(tmp_path / "t").copy({"metadata.iceberg.format-version": "3"})
    table.export_iceberg()
    (line,) = lines(tmp_path / "t", 3)
    path = tmp_path / "t" / "metadata" / Path(line["manifest_path"]).name
    found = manifests.decode_manifest(path.read_bytes(), str(path), line["first_row_id"])

    assert [each["data_file"]["first_row_id"] for each in found] == [0, 1]
    assert document(tmp_path / "t")["next-row-id"] == 2


def test_old_names_of_counters_are_written_and_read(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "append", tmp_path / "t")
    table = lc.open_table(tmp_path / "t").copy({"metadata.iceberg.manifest-legacy-version": "true"})
    table.export_iceberg(rebuild=True)
    (line,) = lines(tmp_path / "t", 3)
    name = Path(document(tmp_path / "t")["snapshots"][0]["manifest-list"]).name

    assert b'"added_data_files_count"' in (tmp_path / "t" / "metadata" / name).read_bytes()
    assert line["added_files_count"] == 2
