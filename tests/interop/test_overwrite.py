"""Overwrites by lakecore leave the levels, and tell the changes, that those by Java do."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.interop import limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
ALONE = {"write-only": "true"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "write-only": ALONE,
    "off": {"overwrite-upgrade": "false"},
    "fewer levels": {"num-levels": "3"},
    "first-row": {"merge-engine": "first-row"},
    "first-row, write-only": {"merge-engine": "first-row", **ALONE},
    "deletion vectors, write-only": {"deletion-vectors.enabled": "true", **ALONE},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "deletion vectors, lookup": {
        "deletion-vectors.enabled": "true",
        "changelog-producer": "lookup",
    },
    "input": {"changelog-producer": "input"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup, write-only": {"changelog-producer": "lookup", **ALONE},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"},
}
AT_ONCE = ("first-row", "deletion vectors", "deletion vectors, lookup")
"""Tables whose reads leave out level 0, and whose writers compact."""


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        (kind, last)
        for kind, options in KINDS.items()
        for last in (("+I",) if options.get("merge-engine") == "first-row" else ("+I", "-D"))
    ],
)
@pytest.mark.sampled(2)
def test_overwrites_of_both_engines_leave_the_same(
    kind: str, last: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    table = case(
        kind,
        columns(k="INT", v="STRING"),
        [],
        primary_keys=["k"],
        options={"bucket": "1", **KINDS[kind]},
    )
    new: Commit = (("+I", [1, "a"]), ("+I", [2, "b"]), (last, [3, "c"]))
    seen: list[tuple[object, ...]] = []
    for engine in (OURS, java):
        path = tmp_path / engine.name / "d.db" / "t"
        path.parent.mkdir(parents=True)
        engine.create(path, table)
        engine.write(path, (("+I", [1, "old"]), ("+I", [9, "old"])))
        engine.overwrite(path, new)
        left = cast("list[dict[str, object]]", java.peer.ask("snapshots", path=str(path)))
        overwritten = [(each["kind"], each["levels"]) for each in left[-2:]]
        rows = values.sort_rows(engine.read(path))
        engine.write(path, (("+I", [2, "later"]),))
        java.compact(path, full=True)
        told = [change for changes in java.stream(path, 1).values() for change in changes]
        seen.append((overwritten, rows, values.sort_rows(engine.read(path)), told))

    assert seen[0][1:] == seen[1][1:]
    if kind in AT_ONCE:
        # Java's readers see an empty table between its two snapshots; lakecore makes one.
        assert seen[0][0] == [("COMPACT", [5]), ("OVERWRITE", [5])]
        assert seen[1][0] == [("OVERWRITE", [0]), ("COMPACT", [5])]
    else:
        assert seen[0][0] == seen[1][0]
    kept = [1, 2] if last == "-D" else [1, 2, 3]
    assert [row[0] for row in cast("list[list[int]]", seen[0][1])] == kept
