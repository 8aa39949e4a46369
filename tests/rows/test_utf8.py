from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import Unsupported
from lakecore.io.files.data_files import read_positions
from lakecore.model.schema_change import SchemaChange
from lakecore.rows.utf8 import _is_ascii, decode_text, is_utf8, with_utf8
from tests.table.file_reader.test_late_casts import evolved
from tests.tables import new_table

# What `new String(bytes, UTF_8)` of Java 17 gives.
SHOWN = {
    b"": "",
    b"ok\xc3\xa9\xf0\x9f\x98\x80": "oké\U0001f600",
    b"\x00": "\x00",
    b"\xff": "\ufffd",
    b"a\xffb": "a\ufffdb",
    b"\xc3": "\ufffd",
    b"\xc3(": "\ufffd(",
    b"\xe2\x82": "\ufffd",
    b"\xe2(\xa1": "\ufffd(\ufffd",
    b"\xf0\x90\x8c": "\ufffd",
    b"\xf0(\x8c(": "\ufffd(\ufffd(",
    b"\xc0\xaf": "\ufffd\ufffd",
    b"\xe0\x80\xaf": "\ufffd\ufffd\ufffd",
    b"\xed\xa0": "\ufffd",
    b"\xed\xa0\x80": "\ufffd",
    b"\xed\xa0\x80\xed\xb0\x80": "\ufffd\ufffd",
    b"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
    b"\xf8\x88\x80\x80\x80": "\ufffd\ufffd\ufffd\ufffd\ufffd",
    b"\x80\x80": "\ufffd\ufffd",
}
COLUMNS = {"id": "INT NOT NULL", "v": "BYTES", "n": "INT"}


def unchecked(values: list[bytes | None]) -> pa.Array:
    """Bytes as Arrow's text, whatever they are."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("text", ["", "a" * 7, "a" * 8, "a" * 8 + "\x7f", "é", "é" + "a" * 15])
def test_ascii_is_recognised_at_once(text: str) -> None:
    texts = pa.array(["1", text, "é"])

    assert _is_ascii(texts.slice(0, 2)) is text.isascii()
    assert _is_ascii(texts.slice(3))


@pytest.fixture
def x_is_no_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files hold a byte 0xff for each X in a column `v`."""

    def foreign(*args: Any, **arguments: Any) -> Any:
        for position, batch in read_positions(*args, **arguments):
            at = batch.schema.get_field_index("v")
            values = batch.column(at).cast(pa.binary()).to_pylist()
            texts = unchecked([value.replace(b"X", b"\xff") for value in values])
            yield position, batch.set_column(at, "v", texts)

    monkeypatch.setattr("lakecore.table.file_reader.split_files.read_positions", foreign)


def test_bytes_are_shown_as_java_shows_them() -> None:
    given = pa.array([*SHOWN, None], pa.binary())

    assert decode_text(given).to_pylist() == [*SHOWN.values(), None]


def test_texts_inside_of_others_are_shown_alike() -> None:
    texts = unchecked([b"\xff", b"b", None])
    entries = pa.StructArray.from_arrays([unchecked([b"\xff", b"b", b"c"]), texts], ["k", "v"])
    kinds = {
        "row": pa.StructArray.from_arrays([texts, pa.array([1, None, 3])], ["a", "n"]),
        "array": pa.ListArray.from_arrays([0, 1, 3], texts),
        "map": pa.MapArray.from_arrays([0, 2, 3], entries.field(0), entries.field(1)),
    }
    shown = {name: with_utf8(array).to_pylist() for name, array in kinds.items()}

    assert not any(is_utf8(array) for array in kinds.values())
    assert shown == {
        "row": [{"a": "\ufffd", "n": 1}, {"a": "b", "n": None}, {"a": None, "n": 3}],
        "array": [["\ufffd"], ["b", None]],
        "map": [[("\ufffd", "\ufffd"), ("b", "b")], [("c", None)]],
    }


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_column_of_bytes_becomes_text_whatever_they_are(file_format: str, engine: str) -> None:
    table = new_table(COLUMNS, write_only="true", merge_engine=engine, file__format=file_format)
    stored = {"id": range(len(SHOWN)), "v": list(SHOWN), "n": [1] * len(SHOWN)}
    table.write(pa.table(stored, schema=table.schema.arrow))
    table = evolved(table, SchemaChange.update_column_type("v", "STRING"))
    table.write(pa.table({"id": [0], "v": ["new"], "n": [2]}, schema=table.schema.arrow))
    expected = ["new", *list(SHOWN.values())[1:]]

    for _ in range(2):
        assert table.to_arrow().sort_by("id").column("v").to_pylist() == expected
        assert table.to_arrow(where="v = 'a\ufffdb'").column("id").to_pylist() == [4]
        table.compact(full=True)


@pytest.mark.parametrize(
    "options",
    [
        {"sequence__field": "v"},
        {"merge_engine": "partial-update", "fields__v__sequence_group": "n"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "max"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("x_is_no_utf8")
def test_text_that_decides_must_be_utf8(options: dict[str, Any]) -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = new_table(columns, write_only="true", **options)
    for value in ("a", "X"):
        table.write(pa.table({"id": [1], "v": [value], "n": [1]}, schema=table.schema.arrow))

    with pytest.raises(Unsupported, match=r"not valid UTF-8 cannot be compared.*column=v"):
        table.to_arrow()


def test_bytes_that_became_text_that_decides_must_be_utf8() -> None:
    table = new_table(COLUMNS, write_only="true", sequence__field="v")
    for value in (b"a", b"\xff"):
        table.write(pa.table({"id": [1], "v": [value], "n": [1]}, schema=table.schema.arrow))
    assert table.to_arrow().column("v").to_pylist() == [b"\xff"]
    table = evolved(table, SchemaChange.update_column_type("v", "STRING"))

    with pytest.raises(Unsupported, match=r"not valid UTF-8 cannot be compared.*column=v"):
        table.to_arrow()


@pytest.mark.usefixtures("x_is_no_utf8")
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_stored_text_is_shown_as_java_shows_it(file_format: str) -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "w": "ROW<a STRING>"}
    table = new_table(columns, file__format=file_format)
    stored = {"id": [1, 2], "v": ["aXb", "ok"], "w": [{"a": "y"}, None]}
    table.write(pa.table(stored, schema=table.schema.arrow))

    assert table.to_arrow().column("v").to_pylist() == ["a\ufffdb", "ok"]


@pytest.mark.parametrize("bad", [None, b"\xff", b"\xe2\x82", "\u00e9".encode()])
@pytest.mark.parametrize("at", range(0, 40, 3))
def test_each_text_of_a_slice_is_looked_at_and_no_other(bad: bytes | None, at: int) -> None:
    values: list[bytes | None] = [b"x" * (row % 5) for row in range(40)]
    values[at] = bad
    column = unchecked(values)
    for first in range(0, 40, 4):
        for count in (0, 1, 2, 7, 13):
            part = column.slice(first, count)
            wrong = bad in (b"\xff", b"\xe2\x82") and first <= at < first + count
            assert is_utf8(part) is not wrong


def test_a_character_cut_between_two_texts_is_none() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer("é".encode())])
    assert not is_utf8(column)
