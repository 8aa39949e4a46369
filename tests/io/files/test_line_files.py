from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.io.files import data_files
from lakecore.io.files.data_files import LineWriter, read_lines
from lakecore.io.files.file_format import BatchSize, WriteFormat
from lakecore.io.stores.store import MemoryStore
from lakecore.model.line_format import LineFormat

CSV = LineFormat(kind="csv", columns=("a", "b"), header=True)
JSON = LineFormat(kind="json", columns=("a", "b"))
TEXT = LineFormat(kind="text", columns=("a",))
PLAIN = WriteFormat(compression="none")
ROWS = pa.table({"a": [str(at) for at in range(7)], "b": ["é"] * 7})
A, B = pa.field("a", pa.string()), pa.field("b", pa.string())


def written(lines: LineFormat, rows: pa.Table) -> tuple[MemoryStore, int]:
    store = MemoryStore()
    writer = LineWriter(store, "f", lines, PLAIN)
    writer.write(rows.slice(0, 3))
    (batch,) = rows.slice(3).combine_chunks().to_batches()
    writer.write(batch)
    size_bytes, row_count = writer.close()
    assert (size_bytes, row_count) == (len(store.read("f")), rows.num_rows)
    assert writer.holds(size_bytes)
    assert not writer.holds(size_bytes + 1)
    return store, size_bytes


@pytest.mark.parametrize("lines", [CSV, JSON], ids=lambda lines: lines.kind)
@pytest.mark.parametrize("read_bytes", [1, 2, 5, 1 << 20])
def test_rows_come_back_in_batches_with_their_places(
    lines: LineFormat, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_READ_BYTES", read_bytes)
    store, _ = written(lines, ROWS)
    found = list(read_lines(store, "f", lines, [B, A], BatchSize(2)))

    places = [at for at, batch in found for at in range(at, at + batch.num_rows)]
    assert places == list(range(7))
    assert pa.Table.from_batches([batch for _, batch in found]) == ROWS.select(["b", "a"])
    counted = read_lines(store, "f", lines, [], BatchSize(3))
    assert sum(batch.num_rows for _, batch in counted) == 7


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 4, 1 << 20])
@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"x\ny\n", ["x", "y"]),
        (b"x\r\ny\rz\n\nlast", ["x", "y", "z", "", "last"]),
        (b"\xef\xbb\xbfx\n\xef\xbb\xbfy\r", ["x", "\ufeffy"]),
        (b"\r\n\r", ["", ""]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_end_in_three_ways(
    read_bytes: int, data: bytes, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_READ_BYTES", read_bytes)
    store = MemoryStore()
    store.put("f", data)
    found = [batch for _, batch in read_lines(store, "f", TEXT, [A], BatchSize(2))]

    assert [text for batch in found for text in batch.column(0).to_pylist()] == texts


@pytest.mark.parametrize("text", [None, "a\nb", "\rx", "\ufeffx"])
def test_a_text_file_refuses_what_it_would_lose(text: str | None) -> None:
    writer = LineWriter(MemoryStore(), "f", TEXT, PLAIN)

    with pytest.raises(InvalidRequest, match="column=a"):
        writer.write(pa.table({"a": pa.array(["fine", text])}))


def test_compression_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"file\.compression=none"):
        LineWriter(MemoryStore(), "f", CSV, WriteFormat(compression="zstd"))


def test_an_abandoned_file_is_gone() -> None:
    store = MemoryStore()
    writer = LineWriter(store, "f", CSV, PLAIN)
    writer.write(ROWS)
    writer.abort()

    assert store.list("") == ()


def test_a_column_that_a_csv_file_has_not_is_corrupt() -> None:
    store, _ = written(CSV, ROWS)

    with pytest.raises(CorruptTable, match="column=c"):
        list(read_lines(store, "f", CSV, [pa.field("c", pa.string())], BatchSize(10)))
