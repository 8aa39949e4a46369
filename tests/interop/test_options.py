"""lakecore and Java write, compact and read a table in turns, under options that say how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

TYPES = {"p": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
LAYOUTS = {
    "data-directory": {"data-file.path-directory": "data/all"},
    "index-beside-data": {"index-file-in-data-file-dir": "true"},
    "both": {"data-file.path-directory": "data/", "index-file-in-data-file-dir": "true"},
}
BUCKETS: dict[str, dict[str, str]] = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1"},
    "append": {"bucket": "2", "bucket-key": "id"},
}
TURNS = 2


def table_of(name: str, options: dict[str, str], *, keyed: bool) -> Case:
    return Case(
        name=name,
        columns=tuple(Column(key, parse_type(kind)) for key, kind in TYPES.items()),
        commits=(),
        primary_keys=("p", "id") if keyed else (),
        partition_keys=("p",),
        options=options,
    )


def inserts(turn: int, who: str) -> tuple[tuple[str, list[Any]], ...]:
    return tuple(("+I", [f"p{key % 2}", key, f"{who} {turn}"]) for key in range(turn, turn + 6))


@pytest.mark.parametrize(
    ("layout", "buckets", "creator"),
    [
        ("data-directory", "fixed", limits.JAVA),
        ("data-directory", "append", limits.LAKECORE),
        ("index-beside-data", "dynamic", limits.JAVA),
        ("both", "dynamic", limits.LAKECORE),
    ],
)
def test_both_find_what_the_other_wrote_where_the_options_say(
    layout: str,
    buckets: str,
    creator: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    options = LAYOUTS[layout] | BUCKETS[buckets]
    case = table_of(layout, options, keyed=buckets != "append")
    (java if creator == limits.JAVA else ours).create(path, case)

    for turn in range(TURNS):
        ours.write(path, inserts(turn, "ours"))
        java.write(path, inserts(turn + 1, "theirs"))
        assert sorted(java.read(path)) == sorted(ours.read(path))
        (java if turn % 2 else ours).compact(path, full=True)
        assert sorted(java.read(path)) == sorted(ours.read(path))

    folder = options.get("data-file.path-directory", "").strip("/")
    assert {file.name for file in (path / folder).glob("p=*")} == {"p=p0", "p=p1"}
    assert bool(list(path.rglob("bucket-*/index-*"))) == (
        buckets == "dynamic" and layout != "data-directory"
    )


def test_deletion_vectors_beside_the_data_hide_rows(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "t"
    options = LAYOUTS["both"] | BUCKETS["fixed"] | {"deletion-vectors.enabled": "true"}
    java.create(path, table_of("vectors", options, keyed=True))
    java.write(path, inserts(0, "old"))
    java.compact(path, full=True)
    java.write(path, (("+I", ["p0", 2, "new"]), ("-D", ["p1", 1, None])))
    java.compact(path, full=False)

    assert list(path.rglob("bucket-*/index-*"))
    assert sorted(ours.read(path)) == sorted(java.read(path))
    assert ["p0", 2, "new"] in ours.read(path)


def in_order(changes: dict[int, list[tuple[str, Row]]]) -> dict[int, list[tuple[str, Row]]]:
    return {number: sorted(rows, key=str) for number, rows in changes.items()}


@pytest.mark.parametrize("manifests", ["parquet", "orc"])
def test_manifests_of_other_formats_are_read_and_written(
    manifests: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    merging = {"manifest.target-file-size": "4 kb", "manifest.merge-min-count": "3"}
    options = BUCKETS["dynamic"] | merging | {"manifest.format": manifests}
    ours.create(path, table_of(manifests, options, keyed=True))
    for turn in range(TURNS):
        ours.write(path, inserts(turn, "ours"))
        java.write(path, (*inserts(turn + 1, "java"), ("-D", ["p1", turn + 1, None])))
        assert sorted(ours.read(path)) == sorted(java.read(path))
        (java if turn % 2 else ours).compact(path, full=True)
        assert sorted(ours.read(path)) == sorted(java.read(path))

    assert in_order(ours.stream(path)) == in_order(java.stream(path))
    magic = {"parquet": b"PAR1", "orc": b"ORC"}[manifests]
    assert all(file.read_bytes().startswith(magic) for file in (path / "manifest").iterdir())


@pytest.mark.parametrize("manifests", ["parquet", "orc"])
def test_index_manifests_of_other_formats_are_read(
    manifests: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "t"
    options = {"manifest.format": manifests, "deletion-vectors.enabled": "true"}
    java.create(path, table_of(manifests, BUCKETS["fixed"] | options, keyed=True))
    for turn in range(TURNS):
        java.write(path, (*inserts(turn, "java"), ("-D", ["p1", turn + 1, None])))
        java.compact(path, full=turn % 2 == 0)
        assert sorted(ours.read(path)) == sorted(java.read(path))


def test_blanks_around_the_text_of_an_option_and_empty_names_are_not_stored(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    options = {
        "bucket": " 2 ",
        "bucket-key": "id, p",
        "sequence.field": " v",
        "merge-engine": " Deduplicate ",
        "file.format": " ORC ",
        "write-only": "TRUE ",
        "metadata.stats-mode": " Truncate( 8 )",
        "fields.v.stats-mode": " none ",
        "rowkind.field": "",
        "changelog-producer.row-deduplicate-ignore-fields": " ,",
    }
    case = Case(
        name="blanks",
        columns=tuple(Column(key, parse_type(kind)) for key, kind in TYPES.items()),
        commits=(),
        primary_keys=("p", "id"),
        partition_keys=(),
        options=options,
    )
    ours.create(path, case)
    ours.write(path, inserts(0, "ours"))
    java.write(path, inserts(3, "theirs"))

    assert sorted(java.read(path)) == sorted(ours.read(path))


def test_default_values_of_columns_stand_for_null_and_the_older_option_does_not(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "d.db" / "t"
    java.create(path, table_of("defaults", {"fields.v.default-value": "old"}, keyed=False))
    java.write(path, (("+I", ["p0", 1, None]),))
    ours.write(path, (("+I", ["p0", 2, None]),))
    assert sorted(java.read(path)) == [["p0", 1, None], ["p0", 2, None]]

    change = lc.SchemaChange.update_column_default_value("v", "'new'")
    lc.connect(tmp_path).alter_table("d.t", [change])
    java.write(path, (("+I", ["p0", 3, None]),))
    ours.write(path, (("+I", ["p0", 4, None]),))
    rows = [["p0", 1, None], ["p0", 2, None], ["p0", 3, "new"], ["p0", 4, "new"]]

    assert sorted(java.read(path)) == sorted(ours.read(path)) == rows
