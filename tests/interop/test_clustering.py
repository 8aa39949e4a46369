"""Clustered tables exchanged with Java: rows, units of incremental clustering, and sort keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

import lakecore as lc
from lakecore.merge.curves import Ordering, curve_columns
from lakecore.options import OrderStrategy
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.interop.columns import Json
    from tests.interop.engines import PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
COLUMNS = {"x": "INT", "y": "BIGINT", "s": "STRING"}


def made(tmp_path: Path, columns: dict[str, str] | None = None, **options: str) -> Path:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d", ignore_if_exists=True)
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    session.create_table("d.t", columns or COLUMNS, options={"bucket": "-1"} | stated)
    return tmp_path / "d.db" / "t"


def rows(turn: int, count: int = 12) -> Commit:
    return tuple(
        ("+I", [(turn * 7 + at * 5) % 23 if at % 6 else None, -at * turn, f"v{at % 4}"])
        for at in range(count)
    )


def in_order(found: object) -> list[object]:
    return sorted(cast("list[object]", found), key=repr)


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_both_read_and_go_on_with_tables_that_were_sorted(
    vectors: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    path = made(tmp_path, deletion_vectors__enabled=vectors, compaction__min__file_num="2")
    for turn, strategy in enumerate(OrderStrategy):
        java.write(path, rows(turn))
        OURS.write(path, rows(turn + 10))
        if vectors == "true":
            lc.open_table(path).delete(f"x = {turn}")
        before = in_order(OURS.read(path))

        lc.open_table(path).compact(order_strategy=strategy, order_by=["x", "y", "s"])

        assert in_order(OURS.read(path)) == before
        assert in_order(java.read(path)) == before
    java.write(path, rows(99))
    before = in_order(OURS.read(path))
    java.compact(path, full=True)
    assert in_order(java.read(path)) == in_order(OURS.read(path)) == before


@pytest.mark.parametrize("full", [False, True])
def test_both_pick_the_same_files_to_cluster(
    peers: Callable[[str], PeerEngine], tmp_path: Path, *, full: bool
) -> None:
    java = peers(limits.JAVA)
    path = made(
        tmp_path,
        clustering__incremental="true",
        clustering__columns="x,y",
        num_sorted_run__compaction_trigger="3",
    )
    for turn in range(9):
        (OURS if turn % 2 else java).write(path, rows(turn, 5 + 40 * (turn % 4 == 0)))
        wanted = java.peer.ask("cluster_units", path=str(path), full=full)
        before, kept = _levels(path), in_order(OURS.read(path))

        lc.open_table(path).compact(full=full)

        after = _levels(path)
        taken, new = before.keys() - after.keys(), after.keys() - before.keys()
        found = [[level, sorted(taken)] for level in {after[name] for name in new}]
        assert found == wanted, turn
        assert in_order(java.read(path)) == in_order(OURS.read(path)) == kept
    assert max(_levels(path).values()) == 3


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_NEW])
def test_both_go_on_in_buckets_that_are_clustered(
    version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(version)
    path = made(
        tmp_path,
        bucket="2",
        bucket_key="s",
        bucket_append_ordered="false",
        clustering__incremental="true",
        clustering__columns="x,y",
        num_sorted_run__compaction_trigger="3",
    )
    for turn in range(6):
        (OURS if turn % 2 else java).write(path, rows(turn))
        if turn in (2, 4):
            before = in_order(OURS.read(path))
            (OURS if turn == 2 else java).compact(path, full=turn == 2)
            assert in_order(OURS.read(path)) == before
        assert in_order(java.read(path)) == in_order(OURS.read(path))
    assert len(OURS.read(path)) == 72


def _levels(path: Path) -> dict[str, int]:
    files = lc.open_table(path).inspect.files()
    return {row["file_path"].rpartition("/")[2]: row["level"] for row in files.rows(named=True)}


def test_keys_of_a_z_order_are_those_of_java(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    """Decimals and floats differ, because in Java their bytes do not sort as the values do."""
    kinds = {
        "i": "INT",
        "n": "BIGINT",
        "s": "STRING",
        "b": "BOOLEAN",
        "t": "DATE",
        "c": "SMALLINT",
        "a": "VARBINARY(20)",
    }
    path = made(tmp_path, kinds)
    values: list[list[Json]] = [
        [1, -1, "short", True, "2024-01-01", -3, "0102"],
        [-(2**31), 2**62, "a text longer than eight", False, "1950-06-07", 300, "ff" * 12],
        [None, None, None, None, None, None, None],
        [0, 0, "", True, "1970-01-01", 0, ""],
    ]
    OURS.write(path, tuple(("+I", row) for row in values))
    table = lc.open_table(path).to_arrow()
    stored = OURS.read(path)
    for var_bytes in (8, 3, 11):
        for columns in (("i", "n"), ("s", "b", "t"), tuple(kinds)):
            wanted = peers(limits.JAVA).peer.ask(
                "z_keys", path=str(path), columns=[*columns], rows=stored, var_bytes=var_bytes
            )

            ordering = Ordering(strategy=OrderStrategy.ZORDER, columns=columns, var_bytes=var_bytes)
            assert _hex(ordering, table, wanted) == wanted, columns


def _hex(ordering: Ordering, table: pa.Table, wanted: Json) -> list[str]:
    """The keys as hexadecimal digits, without the zeros that fill up the last word."""
    keys = zip(*(column.tolist() for column in curve_columns(ordering, table)), strict=True)
    width = len(cast("list[str]", wanted)[0])
    texts = ["".join(f"{word + (1 << 63):016x}" for word in key) for key in keys]
    assert all(set(text[width:]) <= {"0"} for text in texts)
    return [text[:width] for text in texts]
