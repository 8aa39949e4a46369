"""File indexes that lakecore wrote serve Java, and those of Java serve lakecore, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.format.file_index.container import decode_container
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case
from tests.tables import with_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TYPES = {
    "id": "INT",
    "s": "STRING",
    "n": "BIGINT",
    "d": "DOUBLE",
    "b": "BOOLEAN",
    "m": "DECIMAL(10, 2)",
    "t": "DATE",
}
OPTIONS = {
    "bucket": "-1",
    "file-index.bloom-filter.columns": "id,s,d,t",
    "file-index.bloom-filter.id.items": "50",
    "file-index.bloom-filter.s.items": "50",
    "file-index.bloom-filter.s.fpp": "0.01",
    "file-index.bloom-filter.d.items": "50",
    "file-index.bloom-filter.t.items": "50",
    "file-index.bitmap.columns": "s,n,b",
    "file-index.bitmap.s.index-block-size": "100 b",
    "file-index.range-bitmap.columns": "s,n,d,b,m,t",
    "file-index.range-bitmap.n.chunk-size": "40 b",
    "file-index.bsi.columns": "n,m,t",
}
ASKED: tuple[tuple[str, str, Any], ...] = (
    ("s", "equal", "s1"),
    ("s", "notEqual", "s1"),
    ("s", "greaterThan", "s2"),
    ("n", "equal", 14),
    ("n", "lessThan", -6),
    ("n", "greaterOrEqual", 15),
    ("n", "isNull", None),
    ("d", "lessOrEqual", 2.5),
    ("b", "equal", True),
    ("m", "greaterThan", "12.00"),
)


def rows(start: int) -> tuple[tuple[str, list[Any]], ...]:
    """Rows whose values statistics do not tell apart."""
    return tuple(
        (
            "+I",
            [
                start + at,
                None if at % 7 == 3 else f"s{at % 4}",
                None if at % 5 == 4 else (at - 10) * 2,
                None if at == 9 else at / 4,
                None if at == 5 else at % 2 == 0,
                f"{at}.25",
                f"2024-01-{1 + at % 20:02d}",
            ],
        )
        for at in range(20)
    )


def table_of(threshold: str) -> Case:
    return Case(
        name="file indexes",
        columns=tuple(Column(key, parse_type(kind)) for key, kind in TYPES.items()),
        commits=(),
        options={**OPTIONS, "file-index.in-manifest-threshold": threshold},
    )


def containers(path: Path) -> list[dict[tuple[str, str], bytes | None]]:
    """The indexes of each file, by column and type, in the order of the commits."""
    table = lc.open_table(path)
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    found = []
    for entry in context.history.live_entries(snapshot):
        data = entry.file.embedded_index
        if data is None:
            (name,) = entry.file.extra_files
            data = context.store.read(context.layout.extra_file("", entry.bucket, entry.file, name))
        found.append({(each.column, each.index_type): each.body for each in decode_container(data)})
    return found


@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
def test_both_write_the_same_indexes_and_read_by_those_of_the_other(
    threshold: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours = peers(limits.JAVA), LakecoreEngine()
    by_java, by_us = tmp_path / "d.db" / "java", tmp_path / "d.db" / "ours"
    java.create(by_java, table_of(threshold))
    ours.create(by_us, table_of(threshold))
    for start in (0, 20):
        java.write(by_java, rows(start))
        ours.write(by_us, rows(start))

    theirs, mine = containers(by_java), containers(by_us)
    assert [set(each) for each in mine] == [set(each) for each in theirs]
    for own, other in zip(mine, theirs, strict=True):
        for name, body in own.items():
            # Java stores the bitmaps of values in the order of a hash table.
            if name[1] != "bitmap":
                assert body == other[name], name
            else:
                assert body is not None
                assert len(body) == len(other[name] or b""), name
    for where in ASKED:
        expected = sorted(java.read_where(by_java, where), key=str)
        assert 0 < len(expected) < 40, where
        assert sorted(java.read_where(by_us, where), key=str) == expected, where
    for condition, count in (("s = 's1'", 8), ("n = 14", 2), ("d > 4.5", 2), ("m < 1", 2)):
        assert len(ours.read(by_java, where=condition)) == count, condition


def test_java_keeps_files_whose_indexes_are_rewritten_and_stay_the_same(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    java.create(path, table_of("1 mb"))
    java.write(path, rows(0))
    ours.write(path, rows(20))
    for _ in range(2):
        lc.open_table(path).rewrite_file_index()

    assert len(java.read(path)) == len(ours.read(path)) == 40


def test_java_reads_by_indexes_that_were_rewritten_and_both_go_on(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    bare = {"file-index.in-manifest-threshold": "1 b", "bucket": "-1"}
    case = table_of("1 b")
    ours.create(path, Case(name=case.name, columns=case.columns, commits=(), options=bare))
    java.write(path, rows(0))
    ours.write(path, rows(20))
    table = lc.open_table(path).copy(OPTIONS)
    assert not table.explain(where="s = 's9'").files_skipped_by_index
    stated: dict[str, Any] = {
        key.replace(".", "__").replace("-", "_"): text for key, text in OPTIONS.items()
    }
    with_options(lc.open_table(path), **stated)
    assert lc.open_table(path).rewrite_file_index().files == 2

    assert len(java.read_where(path, ("s", "equal", "s1"))) == 8
    java.write(path, rows(40))
    assert len(java.read_where(path, ("n", "equal", 14))) == 3
    assert len(ours.read(path, where="n = 14")) == 3
    assert [len(each) for each in containers(path)] == [16, 16, 16]
