"""BLOB values in lists and maps: written to files of their own, and read back."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.blob_file import encode_value, parts_of
from lakecore.format.blob_references import BlobDescriptor
from lakecore.model.types import parse_type
from lakecore.table.run_writer.blobs import managed_files

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
LISTS: list[Any] = [[b"one", None, b""], None, [], [b"x" * 900], [None, None]]
MAPS: list[Any] = [[("a", b"1"), ("é", None)], [], None, [("", b"")], [("z", b"y" * 900)]]


def made(path: Path, columns: dict[str, str], **options: str) -> Table:
    given = EVOLVING | {key.replace("_", "-"): text for key, text in options.items()}
    return lc.open_table(path / "t", create=True, schema=columns, options=given)


def filled(path: Path) -> Table:
    table = made(path, {"k": "INT", "l": "ARRAY<BLOB>", "m": "MAP<STRING, BLOB>", "v": "STRING"})
    table.write(
        [{"k": k, "l": one, "m": two, "v": "v"} for k, (one, two) in enumerate(zip(LISTS, MAPS))]  # noqa: B905
    )
    return table


def test_lists_and_maps_are_read_as_they_were_written(tmp_path: Path) -> None:
    table = filled(tmp_path)

    assert table.to_arrow().column("l").to_pylist() == LISTS
    assert table.to_arrow().column("m").to_pylist() == MAPS
    assert sorted(table.inspect.files()["file_format"].to_list()) == ["blob", "blob", "parquet"]
    assert table.to_arrow(["m"], "k = 3").to_pylist() == [{"m": MAPS[3]}]


def test_an_updated_list_leaves_the_others(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.merge([{"k": 1, "l": [b"new"]}], on="k").when_matched_update(
        {"l": lc.sql_expr("source.l")}
    ).execute()
    table.compact(full=True)

    assert table.to_arrow().column("l").to_pylist() == [LISTS[0], [b"new"], *LISTS[2:]]
    assert table.to_arrow().column("m").to_pylist() == MAPS


def test_descriptors_name_each_element(tmp_path: Path) -> None:
    table = filled(tmp_path)
    shown = table.copy({"blob-as-descriptor": "true"})
    (first, null, empty), *_ = shown.to_arrow().column("l").to_pylist()

    def value_at(descriptor: bytes) -> bytes:
        size = int.from_bytes(descriptor[9:13], "little")
        path = descriptor[13 : 13 + size].decode()
        place = descriptor[13 + size :]
        offset, length = (int.from_bytes(place[at : at + 8], "little") for at in (0, 8))
        data = (tmp_path / path).read_bytes()
        return data[offset : offset + length]

    assert (value_at(first), null, value_at(empty)) == (b"one", None, b"")
    assert value_at(shown.to_arrow().column("m").to_pylist()[4][0][1]) == b"y" * 900


def test_blob_field_makes_lists_and_maps_of_binaries_blobs(tmp_path: Path) -> None:
    columns = {"k": "INT", "l": "ARRAY<BYTES>", "m": "MAP<INT, BYTES>"}
    table = made(tmp_path, columns, blob_field="l,m")

    assert [str(table.schema.field(name).type) for name in "lm"] == [
        "ARRAY<BLOB>",
        "MAP<INT, BLOB>",
    ]


@pytest.mark.parametrize("kind", ["ROW<a BLOB>", "ARRAY<ARRAY<BLOB>>", "MAP<TIMESTAMP, BLOB>"])
def test_other_places_of_blobs_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidRequest, match="BLOB values"):
        made(tmp_path, {"k": "INT", "b": kind})


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("BOOLEAN", [True, False]),
        ("TINYINT", [-128, 127]),
        ("SMALLINT", [-300, 300]),
        ("BIGINT", [-(2**63), 2**63 - 1]),
        ("DECIMAL(10, 2)", [Decimal("-1.25"), Decimal("99999999.99")]),
        ("DECIMAL(30, 3)", [Decimal("-1.250"), Decimal("999999999999999999999999999.999")]),
        ("DATE", [date(1969, 12, 31), date(2024, 2, 29)]),
        ("TIME(3)", [time(0, 0), time(23, 59, 59, 999000)]),
        ("BYTES", [b"", b"\x00\xff"]),
        ("STRING", ["", "é😀"]),
    ],
)
def test_keys_of_every_type_come_back(tmp_path: Path, kind: str, keys: list[Any]) -> None:
    table = made(tmp_path, {"k": "INT", "m": f"MAP<{kind}, BLOB>"})
    value = [(key, b"%d" % at) for at, key in enumerate(keys)]
    table.write([{"k": 1, "m": value}])

    assert table.to_arrow().column("m").to_pylist() == [value]


def test_a_map_with_a_key_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a key twice"):
        encode_value([("a", b"1"), ("a", b"2")], parse_type("MAP<STRING, BLOB>"))


@pytest.mark.parametrize("kind", ["ARRAY<BLOB>", "MAP<STRING, BLOB>"])
def test_damaged_values_are_detected(kind: str) -> None:
    data_type = parse_type(kind)
    value: Any = [b"one", None] if kind.startswith("A") else [("a", b"one"), ("b", None)]
    whole = b"".join(encode_value(value, data_type))

    assert len(parts_of(whole, data_type, "f")) == 2
    other = parse_type("MAP<STRING, BLOB>" if kind.startswith("A") else "ARRAY<BLOB>")
    with pytest.raises(CorruptTable, match="damaged"):
        parts_of(whole, other, "f")
    for end in range(len(whole)):
        with pytest.raises(CorruptTable, match="damaged"):
            parts_of(whole[:end], data_type, "f")


def test_a_key_that_is_no_date_of_its_type_is_damage() -> None:
    entry = b"".join(encode_value([(2**31 - 1, b"x")], parse_type("MAP<INT, BLOB>")))

    with pytest.raises(CorruptTable, match="damaged"):
        parts_of(entry, parse_type("MAP<DATE, BLOB>"), "f")


def test_types_within_a_blob_column_stay(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    columns = {"k": "INT", "m": "MAP<INT, BLOB>", "l": "ARRAY<BLOB>"}
    session.create_table("d.t", columns, options=EVOLVING)
    for path, kind in ((["m", "key"], "BIGINT"), (["l", "element"], "BYTES")):
        change = lc.SchemaChange.update_column_type(path, kind)
        with pytest.raises(InvalidRequest, match="within a BLOB column"):
            session.alter_table("d.t", [change])


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        (pa.binary(), lambda values: values),
        (pa.list_(pa.binary()), lambda values: [values[:2], None, values[2:]]),
        (
            pa.map_(pa.string(), pa.binary()),
            lambda values: [[("a", values[0]), ("b", values[1])], None, [("c", values[2])]],
        ),
    ],
    ids=["one", "list", "map"],
)
def test_managed_files_are_those_that_values_name(kind: pa.DataType, nested: Any) -> None:
    uris = ("/t/a.managed.blob", "/t/b.blob", "/t/c.managed.blob")
    values = [BlobDescriptor(uri, 0, 4).to_bytes() for uri in uris]
    rows = pa.table({"b": pa.array(nested(values), kind), "other": pa.nulls(3)})

    assert managed_files(rows, ["b"]) == {"/t/a.managed.blob", "/t/c.managed.blob"}
