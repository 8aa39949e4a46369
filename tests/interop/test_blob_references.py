"""BLOB columns whose rows hold references, which Java and lakecore write in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore import BlobDescriptor
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
FORMATS = pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
JAVAS = pytest.mark.parametrize("java", [limits.JAVA, limits.JAVA_NEW])


@pytest.fixture
def images(tmp_path: Path) -> Path:
    place = tmp_path / "images"
    place.mkdir()
    (place / "cat").write_bytes(b"0123456789")
    return place


def cat(images: Path, *place: int) -> bytes:
    return BlobDescriptor(str(images / "cat"), *place).to_bytes()


def opened(path: Path, images: Path, **options: str) -> Table:
    return lc.open_table(path, options={"lakecore.blob-paths": str(images)} | options)


def of_java(java: PeerEngine, path: Path) -> list[list[Any]]:
    return sorted((list(row) for row in java.read(path)), key=str)


def of_lakecore(table: Table) -> list[list[Any]]:
    rows = table.to_arrow().to_pylist()
    return sorted(([_shown(value) for value in row.values()] for row in rows), key=str)


def _shown(value: object) -> Any:
    match value:
        case bytes():
            return value.hex()
        case tuple() | list():
            return [_shown(each) for each in value]
        case _:
            return value


@JAVAS
@FORMATS
def test_descriptors_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path, images: Path, java: str, kind: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    options = {"blob-descriptor-field": "b", "file.format": kind}
    columns = {"k": "INT", "b": "BLOB", "c": "BLOB", "v": "STRING"}
    table = lc.open_table(path, create=True, schema=columns, options=EVOLVING | options)
    table.write([{"k": 0, "b": cat(images, 1, 3), "c": b"c", "v": "v"}, {"k": 1, "b": None}])
    assert of_java(peer, path) == [[0, b"123".hex(), "63", "v"], [1, None, None, None]]

    peer.write(
        path,
        (
            ("+I", [2, cat(images).hex(), b"d".hex(), "j"]),
            ("+I", [3, cat(images, 8, 2).hex(), None, None]),
        ),
    )
    table = opened(path, images)
    assert of_lakecore(table) == of_java(peer, path)
    assert of_lakecore(table)[2:] == [
        [2, b"0123456789".hex(), "64", "j"],
        [3, b"89".hex(), None, None],
    ]
    table.update({"v": "new"}, "k = 2")
    table.update({"b": cat(images, 4, 1)}, "k = 3")
    table.compact(full=True)
    assert of_lakecore(opened(path, images)) == of_java(peer, path)
    descriptors = lc.open_table(path, options={"blob-as-descriptor": "true"})
    assert descriptors.to_polars(where="k = 2")["b"].to_list() == [cat(images)]


def test_values_that_java_stores_elsewhere_are_read(
    peers: Callable[[str], PeerEngine], tmp_path: Path, images: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA)
    options = {
        "blob-descriptor-field": "b",
        "blob-external-storage-field": "b",
        "blob-external-storage-path": str(images),
    }
    columns = {"k": "INT", "b": "BLOB"}
    lc.open_table(path, create=True, schema=columns, options=EVOLVING | options)
    opened(path, images).write([{"k": 0, "b": b"ours"}])
    peer.write(path, (("+I", [1, b"theirs".hex()]), ("+I", [2, None])))

    assert of_java(peer, path) == [[0, b"ours".hex()], [1, b"theirs".hex()], [2, None]]
    assert of_lakecore(opened(path, images)) == of_java(peer, path)


def test_descriptors_are_copied_by_both(
    peers: Callable[[str], PeerEngine], tmp_path: Path, images: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    columns = {"k": "INT", "b": "BLOB", "l": "ARRAY<BLOB>"}
    lc.open_table(path, create=True, schema=columns, options=EVOLVING)
    opened(path, images).write([{"k": 0, "b": cat(images, 5), "l": [cat(images, 0, 1), None]}])
    peer.write(path, (("+I", [1, cat(images, 6).hex(), [cat(images).hex()]]),))
    (images / "cat").unlink()

    assert of_java(peer, path) == [
        [0, b"56789".hex(), [b"0".hex(), None]],
        [1, b"6789".hex(), [b"0123456789".hex()]],
    ]
    assert of_lakecore(lc.open_table(path)) == of_java(peer, path)


@FORMATS
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
def test_descriptors_of_a_table_with_a_key_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path, images: Path, engine: str, kind: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    options = {
        "blob-descriptor-field": "b",
        "file.format": kind,
        "merge-engine": engine,
        "bucket": "1",
    }
    columns = {"k": "INT NOT NULL", "b": "BLOB", "v": "STRING"}
    lc.open_table(path, create=True, schema=columns, options=options | {"primary-key": "k"})
    table = opened(path, images)
    table.write([{"k": 0, "b": cat(images, 1, 3), "v": "v"}, {"k": 1, "b": cat(images)}])
    peer.write(
        path, (("+I", [2, cat(images, 2).hex(), "j"]), ("+I", [1, cat(images, 9).hex(), "k"]))
    )
    table = opened(path, images)
    if engine == "aggregation":
        table.write([{"k": 0, "b": None, "v": "new"}])
    else:
        table.update({"v": "new"}, "k = 0")
    expected = [[0, b"123".hex(), "new"], [1, b"9".hex(), "k"], [2, b"23456789".hex(), "j"]]
    assert of_java(peer, path) == expected
    assert of_lakecore(table) == expected

    table.compact(full=True)
    assert of_java(peer, path) == of_lakecore(opened(path, images)) == expected
    theirs = [sorted(found, key=str) for found in peer.stream(path, 1).values()]
    ours = [
        sorted(((kind, [_shown(v) for v in row]) for kind, *row in frame.collect().rows()), key=str)
        for _, frame in opened(path, images).stream(from_snapshot=1, until="latest")
    ]
    assert [[(k, list(row)) for k, row in found] for found in theirs] == ours


@FORMATS
def test_managed_values_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path, images: Path, kind: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    columns = {
        "k": "INT NOT NULL",
        "b": "BLOB",
        "l": "ARRAY<BLOB>",
        "m": "MAP<STRING, BLOB>",
        "v": "STRING",
    }
    options = {"bucket": "1", "file.format": kind, "primary-key": "k", "write-only": "true"}
    table = lc.open_table(path, create=True, schema=columns, options=options)
    table.write(
        [
            {"k": 0, "b": b"zero", "l": [b"a", None], "m": [("x", b"y"), ("z", None)], "v": "v"},
            {"k": 1, "b": b"one", "l": [], "m": [], "v": "v"},
            {"k": 2, "b": None, "l": None, "m": None, "v": "v"},
        ]
    )
    expected: list[Any] = [
        [0, b"zero".hex(), ["61", None], [["x", "79"], ["z", None]], "v"],
        [1, b"one".hex(), [], [], "v"],
        [2, None, None, None, "v"],
    ]
    assert of_java(peer, path) == of_lakecore(table) == expected

    peer.write(
        path,
        (
            ("+I", [1, b"uno".hex(), [b"l".hex()], [["n", b"o".hex()]], "j"]),
            ("-D", [2, None, None, None, "v"]),
            ("+I", [3, cat(images).hex(), None, None, "j"]),
        ),
    )
    table = opened(path, images)
    table.update({"v": "new"}, "k = 0")
    table.write([{"k": 4, "b": cat(images, 4, 2), "l": [cat(images, 9)], "m": None, "v": "w"}])
    expected = [
        [0, b"zero".hex(), ["61", None], [["x", "79"], ["z", None]], "new"],
        [1, b"uno".hex(), [b"l".hex()], [["n", b"o".hex()]], "j"],
        [3, b"0123456789".hex(), None, None, "j"],
        [4, b"45".hex(), [b"9".hex()], None, "w"],
    ]
    assert of_java(peer, path) == of_lakecore(table) == expected

    table.compact(full=True)
    assert of_java(peer, path) == of_lakecore(lc.open_table(path)) == expected
    peer.write(path, (("+I", [5, b"five".hex(), None, None, "j"]),))
    peer.compact(path, full=True)
    assert of_java(peer, path) == of_lakecore(lc.open_table(path))
    table = lc.open_table(path)
    table.remove_orphan_files(older_than="2100-01-01", force=True)
    assert of_java(peer, path)[-1][1] == b"five".hex()
