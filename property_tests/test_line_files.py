"""Rows of a file of lines come back as they are, or the file refuses them and names a value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.io.files.data_files import LineWriter, read_lines
from lakecore.io.files.file_format import BatchSize, WriteFormat
from lakecore.io.stores.store import MemoryStore
from lakecore.model.line_format import LineFormat
from lakecore.options import LINE_FORMATS

# Letters that mean something in these files, and blanks of Java and of others.
LETTERS = ",;\"'\\|\t\n\r \u00a0\u3000\ufeffaé😀N"
TEXTS = st.one_of(st.none(), st.text(LETTERS, max_size=6))


@st.composite
def formats(draw: st.DrawFn) -> LineFormat:
    kind = draw(st.sampled_from(LINE_FORMATS))
    count = 1 if kind == "text" else draw(st.integers(1, 3))
    return LineFormat(
        kind=kind,
        columns=tuple("abc"[:count]),
        separator=draw(st.sampled_from(",;\t")),
        quote=draw(st.sampled_from("\"'")),
        escape=draw(st.sampled_from("\\|")),
        null_text=draw(st.sampled_from(["", "N", " "])),
        header=kind == "csv" and draw(st.booleans()),
        line_end=draw(st.sampled_from(["\n", "\r", "\r\n"])),
    )


@settings(max_examples=150)
@given(lines=formats(), data=st.data())
def test_rows_come_back_or_are_refused(lines: LineFormat, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[TEXTS] * len(lines.columns)), max_size=5))
    columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(lines.columns))]
    table = pa.table(columns, names=list(lines.columns))
    store = MemoryStore()
    writer = LineWriter(store, "f", lines, WriteFormat(compression="none"))
    try:
        writer.write(table)
    except InvalidRequest:
        texts = [text for row in rows for text in row]
        odd = {"\n", "\r", "\ufeff"} & set("".join(filter(None, texts)))
        lost = lines.kind == "text" and None in texts
        blank = lines.kind == "csv" and any(
            not "".join(text or lines.null_text for text in row).strip() for row in rows
        )
        assert odd or lost or blank or lines.null_text in texts
        return
    writer.close()

    size = BatchSize(data.draw(st.integers(1, 6)))
    found = [batch for _, batch in read_lines(store, "f", lines, [*table.schema], size)]
    assert pa.Table.from_batches(found, table.schema).to_pylist() == table.to_pylist()
