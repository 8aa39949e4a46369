"""Rows that expire in compactions: Java and lakecore drop the same rows of the same table.

The ages are so far apart that the moment of a compaction does not matter.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
DAY_S = 86_400
AGES_DAYS = (None, 0, 5, 15, 40, 8, 12, 100, -3)
KINDS = ("INT", "BIGINT", "BIGINT in ms", "TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE")
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "changelog": {"changelog-producer": "full-compaction"},
}


def time_of(kind: str, age_days: int | None) -> int | str | None:
    if age_days is None:
        return None
    seconds = int(time.time()) - age_days * DAY_S
    if kind == "BIGINT in ms":
        return seconds * 1000
    if kind in ("INT", "BIGINT"):
        return seconds
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{'0' * (3 if '3' in kind else 6)}"


@pytest.mark.parametrize(
    ("engine", "kind"),
    [*(("deduplicate", kind) for kind in KINDS), *((name, "INT") for name in [*ENGINES][1:])],
)
def test_both_leave_out_the_same_rows(
    engine: str, kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    columns = {"id": "INT NOT NULL", "t": kind.removesuffix(" in ms"), "n": "INT"}
    options = {
        **ENGINES[engine],
        "bucket": "1",
        "write-only": "true",
        "record-level.expire-time": "10 d",
        "record-level.time-field": "t",
    }
    session.create_table("d.t", columns, primary_keys=["id"], options=options)
    path, copy = tmp_path / "d.db" / "t", tmp_path / "d.db" / "copy"
    for turn in range(2):
        rows: Commit = tuple(
            ("+I", [number, time_of(kind, age), 10 * turn + number])
            for number, age in enumerate(AGES_DAYS)
            if turn == 0 or number % 2
        )
        (OURS if turn else java).write(path, rows)
    shutil.copytree(path, copy)

    java.compact(path, full=True)
    lc.open_table(copy).copy({"write-only": "false"}).compact(full=True)

    found = sorted(OURS.read(copy), key=repr)
    assert found == sorted(java.read(path), key=repr)
    assert found == sorted(java.read(copy), key=repr)
    assert [row[0] for row in found] == [0, 1, 2, 5, 8]
