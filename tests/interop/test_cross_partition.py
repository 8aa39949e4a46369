"""Keys that move between partitions: lakecore and Java write in turn, and read the same rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.interop import limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import Engine, PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deduplicate, input": {"changelog-producer": "input"},
    "deduplicate, deletion vectors": {"deletion-vectors.enabled": "true"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
    "first-row": {"merge-engine": "first-row"},
}


def drawn(seed: int, *, deletes: bool) -> Commit:
    chance = random.Random(seed)
    kinds = ("+I", "+I", "-D") if deletes else ("+I",)
    return tuple(
        (chance.choice(kinds), [chance.randrange(8), chance.choice("xyz"), f"{seed}.{at}"])
        for at in range(10)
    )


@pytest.mark.parametrize("kind", ENGINES)
def test_both_engines_move_keys_alike(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA_NEW)
    table = case(
        kind,
        columns(k="INT NOT NULL", p="STRING", v="STRING"),
        [],
        primary_keys=["k"],
        partition_keys=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "2", **ENGINES[kind]},
    )
    # One table for each engine alone, and one where they take turns: all hold the same rows.
    paths = [tmp_path / name / "d.db" / "t" for name in ("ours", "java", "both")]
    turns: list[tuple[Engine, ...]] = [(OURS, OURS), (java, java), (java, OURS)]
    for path, (first, _) in zip(paths, turns, strict=True):
        path.parent.mkdir(parents=True)
        first.create(path, table)
    for number in range(3):
        changes = drawn(number, deletes="deduplicate" in kind)
        for path, engines in zip(paths, turns, strict=True):
            engines[number % 2].write(path, changes)
        if number == 1:
            OURS.compact(paths[2], full=True)
        read = [values.sort_rows(engine.read(path)) for path in paths for engine in (OURS, java)]
        assert all(each == read[0] for each in read), number
    assert read[0]
