"""Tables whose files are CSV, JSON or text: both engines write the same bytes and read all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.columns import Json
    from tests.interop.engines import Engine, PeerEngine
    from tests.interop.model import Case, Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
VERSIONS = (limits.JAVA, limits.JAVA_NEW)
PLAIN: Mapping[str, str] = dict(
    (
        *(("i", "INT NOT NULL"), ("s", "STRING"), ("n", "BIGINT"), ("y", "TINYINT")),
        *(("h", "SMALLINT"), ("b", "BOOLEAN"), ("m", "DECIMAL(12, 3)"), ("f", "FLOAT")),
        *(("d", "DOUBLE"), ("x", "BYTES"), ("k", "DATE"), ("c", "TIME(3)")),
        *(("t", "TIMESTAMP(6)"), ("u", "TIMESTAMP(3)"), ("w", "VARCHAR(20)")),
    )
)
NESTED: Mapping[str, str] = {
    "a": "ARRAY<INT>",
    "q": "MAP<STRING, DOUBLE>",
    "e": "MAP<INT, ARRAY<STRING>>",
    "r": "ROW<g DATE, j ARRAY<ROW<v DECIMAL(5, 1)>>>",
}
VALUES: list[list[Json]] = [
    [1, "plain", 2, 3, -4, True, "12.500", 1.5, -0.001, "00ff", *([None] * 5)],
    [
        *(2, 'he said "no", twice', -(2**63), -128, 32767, False, "-0.001", 1e10, 1e-7, "ff"),
        *("1969-12-31", "23:59:59.120", "2024-02-29 01:02:03.000004", "1970-01-01 00:00:00.000"),
        "é 中文😀",
    ],
    [3, None, None, None, None, None, None, None, None, None, None, None, None, None, None],
    [
        *(4, "a somewhat, longer 'text'", 0, 0, 0, None, "0.000", 0.0, 100.0, "61"),
        *("9999-12-31", "00:00:00.000", "0001-01-01 00:00:00.000000", "2199-12-31 23:59:58.999"),
        " blanks around ",
    ],
]
PARTS: list[list[Json]] = [
    [[1, None, 3], [["k", 1.5], ["", None]], [[7, ["p", None]]], ["2024-01-01", [["1.5"], None]]],
    [[], [], [], [None, None]],
    [None, None, None, None],
    [[0], [["ключ", 1e300]], [[-1, []], [2, None]], [None, []]],
]


def table_of(kind: str, **options: str) -> Case:
    named = {**PLAIN, **(NESTED if kind == "json" else {})}
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return case(
        kind,
        columns(**({"line": "STRING"} if kind == "text" else named)),
        [],
        options={"bucket": "-1", "file.format": kind, "file.compression": "none", **stated},
    )


def rows_of(kind: str) -> Commit:
    if kind == "text":
        return tuple(("+I", [text]) for text in ("one", "", " two, three ", "é😀", '"'))
    rows = [
        [*row, *(parts if kind == "json" else [])] for row, parts in zip(VALUES, PARTS, strict=True)
    ]
    return tuple(("+I", row) for row in values.canonical_rows(rows, table_of(kind).columns))


def data_of(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((path / "bucket-0").iterdir())]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", {}),
        ("csv", {"csv__field_delimiter": ";", "csv__quote_character": "'"}),
        ("csv", {"csv__null_literal": "NULL", "csv__include_header": "true"}),
        ("csv", {"csv__line_delimiter": "\r\n"}),
        ("json", {}),
        ("text", {}),
    ],
    ids=str,
)
def test_both_write_the_same_bytes_and_read_them(
    version: str,
    kind: str,
    options: dict[str, str],
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    java = peers(version)
    by_java, by_us = tmp_path / "d.db" / "java", tmp_path / "d.db" / "ours"
    by_java.parent.mkdir()
    java.create(by_java, table_of(kind, **options))
    OURS.create(by_us, table_of(kind, **options))
    java.write(by_java, rows_of(kind))
    OURS.write(by_us, rows_of(kind))

    assert data_of(by_us) == data_of(by_java)
    wanted = [row for _, row in rows_of(kind)]
    assert java.read(by_us) == java.read(by_java) == OURS.read(by_java) == OURS.read(by_us)
    assert values.sort_rows(OURS.read(by_us)) == values.sort_rows(wanted)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_both_go_on_in_one_table_whose_schema_changes(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    table = case(
        kind,
        columns(a="INT", s="STRING", p="STRING NOT NULL"),
        [],
        partition_keys=["p"],
        options={
            "bucket": "-1",
            "file.format": kind,
            "file.compression": "none",
            "deletion-vectors.enabled": "true",
            "compaction.min.file-num": "2",
        },
    )
    java.create(path, table)
    engines: tuple[Engine, ...] = (java, OURS)
    for turn, engine in enumerate(engines):
        engine.write(
            path, tuple(("+I", [at + 10 * turn, f"s{at}", "xy"[at % 2]]) for at in range(6))
        )
    java.alter(
        path,
        [
            *(
                ("add", "n", "DOUBLE", ("first",)),
                ("rename", "s", "text"),
                ("retype", "a", "BIGINT"),
            ),
            ("move", "text", ("first",)),
        ],
    )
    for turn, engine in enumerate(reversed(engines)):
        engine.write(path, (("+I", [f"new{turn}", 0.5, 2**40 + turn, "x"]),))
    lc.open_table(path).delete("a = 3")

    for full in (False, True):
        assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path))
        assert len(OURS.read(path)) == 13
        java.compact(path, full=full)
    OURS.compact(path, full=True)
    assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path))
    assert OURS.read(path, columns=["a"], where="text = 's4'") == [[4], [14]]


def test_java_reads_escape_characters_that_lakecore_wrote(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    """Java 1.4.2 and 2.0.0 lose them themselves when they write."""
    path = tmp_path / "d.db" / "t"
    texts = ["a\\b", "\\", '\\"', 'ends with "', "c:\\new\\", '"\\"\\', ',\\,"', "'"]
    OURS.create(
        path, case("t", columns(s="STRING", n="INT"), [], options=dict(table_of("csv").options))
    )
    OURS.write(path, tuple(("+I", [text, at]) for at, text in enumerate(texts)))

    wanted = [[text, at] for at, text in enumerate(texts)]
    assert OURS.read(path) == wanted
    for version in VERSIONS:
        assert peers(version).read(path) == wanted
