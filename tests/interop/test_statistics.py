"""Statistics that one engine stores and the other reads, and how long each keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

import lakecore as lc
from tests.interop import limits
from tests.table.verbs.test_analyze import ROWS, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop


@pytest.fixture
def java(peers: Callable[[str], PeerEngine]) -> PeerEngine:
    return peers(limits.JAVA)


def asked(java: PeerEngine, table: lc.Table, **how: Any) -> dict[str, list[Any]] | None:
    found = java.peer.ask("statistics", path=table.path, **how)
    return cast("dict[str, list[Any]] | None", found)


def made(path: Path) -> lc.Table:
    return lc.open_table(
        path, create=True, schema=TYPES, primary_keys=["id"], options={"bucket": "1"}
    )


def test_java_reads_our_statistics_of_every_type(java: PeerEngine, tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.write(pl.DataFrame(ROWS, strict=False))
    ours = table.analyze().statistics
    assert ours is not None
    theirs = asked(java, table)

    assert theirs is not None
    assert theirs.pop("") == [1, 3, ours.merged_record_size_bytes]
    assert theirs.keys() == ours.columns.keys()
    for name, column in ours.columns.items():
        column_id, distinct, low, high, nulls, average, most = theirs[name]
        least, greatest = column.min or "", column.max or ""
        assert (column_id, distinct, nulls, average, most) == (
            column.column_id,
            column.distinct_count,
            column.null_count,
            column.average_length,
            column.max_length,
        )
        if name in ("flag", "rate"):  # Python prints them
            assert (low.lower(), high.lower()) == (least.lower(), greatest.lower())
        elif name not in ("at", "seen"):
            assert (low, high) == (column.min, column.max)
        else:  # Java prints its own form of a timestamp that it has read
            assert low is None or low.startswith(least[:10])


def test_both_engines_keep_and_drop_statistics_alike(java: PeerEngine, tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    table.write([{"id": 1, "v": "a"}])
    table.analyze(["id"])
    java.write(tmp_path / "t", (("+I", [2, "b"]),))

    assert table.inspect.statistics()["mergedRecordCount"].to_list() == [1]
    new = {"rows": 2, "bytes": 9, "columns": {"v": [1, 2, 0, 1, 1]}}
    assert asked(java, table, new=new) == {
        "v": [1, 2, None, None, 0, 1, 1],
        "": [3, 2, 9],
    }
    table.write([{"id": 3}])
    found = lc.open_table(tmp_path / "t")
    assert found.inspect.statistics()["mergedRecordCount"].to_list() == [2]
    assert found.inspect.snapshots()["commit_kind"].to_list() == [
        "APPEND",
        "ANALYZE",
        "APPEND",
        "ANALYZE",
        "APPEND",
    ]
    assert asked(java, table) is not None
