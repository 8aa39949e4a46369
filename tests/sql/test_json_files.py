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
    (tmp_path / "wide.json").write_bytes(codecs.BOM_UTF16_LE + ARRAY.decode().encode("utf-16-le"))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "parameters"),
    [
        ("'marked.json'", None),
        ("'marked.json.gz'", None),
        ("'mark*.json'", None),
        ("read_json('marked.json')", None),
        ("read_json(['lines.json', 'marked.json'])", None),
        ("read_json(?)", ["marked.json"]),
        ("read_json($file)", {"file": "marked.json"}),
        ("(SELECT * FROM read_json_objects('marked.json'))", None),
    ],
)
def test_array_after_a_byte_order_mark_is_refused(
    place: Path, source: str, parameters: list[object] | dict[str, object] | None
) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    with pytest.raises(InvalidRequest, match=r"array after a byte order mark.* file=marked\.json"):
        session.sql(f"SELECT * FROM {source}", parameters)


def test_utf_16_is_refused(place: Path) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    with pytest.raises(InvalidRequest, match="UTF-16"):
        session.sql("SELECT * FROM 'wide.json'")


@pytest.mark.parametrize(
    "source", ["'lines.json'", "'lines.json.gz'", "read_json('marked.json', format = 'array')"]
)
def test_what_duckdb_reads_is_read(place: Path, source: str) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)

    assert session.sql(f"SELECT a FROM {source} ORDER BY a").fetchall() == [(1,), (2,)]


def test_import_and_copy_refuse_the_array(place: Path) -> None:
    session = lc.connect(str(place / "warehouse"), create=True)
    session.sql("CREATE TABLE t (a INT)")

    with pytest.raises(InvalidRequest, match="array after a byte order mark"):
        FileRows(paths=("marked.json",), format=FileFormat(kind="json"))
    with pytest.raises(InvalidRequest, match="array after a byte order mark"):
        session.sql(
            f"COPY INTO t FROM '{place}/marked.json' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = true)"
        )
    assert session.sql("SELECT * FROM t").fetchall() == []
