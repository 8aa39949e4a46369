from __future__ import annotations

import codecs
import gzip
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.sql.file_rows import FileFormat, FileRows

if TYPE_CHECKING:
    from pathlib import Path

ARRAY = b'[{"a": 1}, {"a": 2}]'
LINES = b'{"a": 1}\n{"a": 2}\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in (("marked", codecs.BOM_UTF8 + ARRAY), ("lines", codecs.BOM_UTF8 + LINES)):
        (tmp_path / f"{name}.json").write_bytes(content)
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(content))
    (tmp_path / "plain.json").write_bytes(b"[]")
    (tmp_path / "wide.json").write_bytes(codecs.BOM_UTF16_LE + ARRAY.decode().encode("utf-16-le"))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "parameters"),
    [
        ("'marked.json'", None),
        ("'marked.json.gz'", None),
        ("'mark*.json'", None),
        ('"marked.json" AS m', None),
        ("'marked.json' m", None),
        ("'marked.json' WHERE marked.a > 0", None),
        ("(SELECT * FROM 'marked.json')", None),
        ("read_json('marked.json')", None),
        ("read_json_auto('marked.json')", None),
        ("read_json(['plain.json', 'marked.json']) WHERE a > 0", None),
        ("read_json(?)", ["marked.json"]),
        ("read_json($file)", {"file": "marked.json"}),
        ("(SELECT (json->>'a')::INT AS a FROM read_json_objects('marked.json'))", None),
        ("read_json('marked.json', format = 'array')", None),
    ],
)
def test_array_after_a_byte_order_mark_is_read_as_without_it(
    place: Path, source: str, parameters: list[object] | dict[str, object] | None
) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    assert session.sql(f"SELECT a FROM {source} ORDER BY a", parameters).fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_json(['lines.json', 'marked.json'])",
        "FROM read_ndjson('marked.json')",
        "FROM 'lines.json', 'marked.json'",
    ],
)
def test_array_after_a_mark_is_refused_where_it_cannot_be_stated(place: Path, query: str) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    with pytest.raises(InvalidRequest, match=r"array after a byte order mark.* file="):
        session.sql(query)


def test_utf_16_is_refused(place: Path) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    with pytest.raises(InvalidRequest, match="UTF-16"):
        session.sql("SELECT * FROM 'wide.json'")


@pytest.mark.parametrize("source", ["'lines.json'", "'lines.json.gz'"])
def test_what_duckdb_reads_is_read(place: Path, source: str) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    assert session.sql(f"SELECT a FROM {source} ORDER BY a").fetchall() == [(1,), (2,)]


def test_import_and_copy_read_the_array(place: Path) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)
    session.sql("CREATE TABLE t (a INT)")

    (batch,) = FileRows(paths=("marked.json",), format=FileFormat(kind="json")).batches()
    assert batch.to_pylist() == [{"a": 1}, {"a": 2}]
    session.sql(
        f"COPY INTO t FROM '{place}/marked.json' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = true)"
    )
    assert session.sql("SELECT * FROM t ORDER BY a").fetchall() == [(1,), (2,)]
    with pytest.raises(InvalidRequest, match="files that are no arrays"):
        FileRows(paths=("lines.json", "marked.json"), format=FileFormat(kind="json"))
