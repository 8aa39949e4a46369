"""Partitions with different numbers of buckets: lakecore and Java rescale, read and write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import Engine, PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
ROWS: Commit = tuple(("+I", [number, part, f"v{number}"]) for number in range(20) for part in "ab")


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_both_go_on_in_a_table_whose_partitions_have_other_numbers_of_buckets(
    vectors: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    table = case(
        "rescaled",
        columns(k="INT NOT NULL", p="STRING NOT NULL", v="STRING"),
        [],
        primary_keys=["k", "p"],
        partition_keys=["p"],
        options={"bucket": "2", "deletion-vectors.enabled": vectors},
    )
    java.create(path, table)
    java.write(path, ROWS)
    java.write(path, (("+I", [3, "a", "newer"]), ("-D", [4, "b", "v4"])))
    before = values.sort_rows(OURS.read(path))
    java.alter(path, [("set", "bucket", "5")])
    with pytest.raises(PeerRefused, match="another number of buckets"):
        OURS.write(path, (("+I", [50, "a", "no"]),))

    lc.open_table(path).rescale(partition={"p": "a"})
    assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path)) == before
    # Java rescales the other partition by an overwrite, as its documents say.
    java.overwrite(path, tuple(("+I", row) for row in before if row[1] == "b"), {"p": "b"})
    engines: tuple[Engine, ...] = (java, OURS)
    for number, engine in enumerate(engines):
        engine.write(path, (("+I", [5, "a", f"{number}"]), ("+I", [60 + number, "b", "x"])))
        java.compact(path, full=bool(number))
    assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path))
    assert len(OURS.read(path)) == len(before) + 2
    assert [5, "a", "1"] in OURS.read(path)
