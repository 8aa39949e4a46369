"""Tables whose manifests one engine merged are read, written and merged by the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "p": "INT NOT NULL", "v": "STRING"}
MINOR = {"manifest.merge-min-count": "2"}
FULL = {"manifest.full-compaction-threshold-size": "1 b", "manifest.target-file-size": "5 kb"}
READERS = (limits.JAVA, limits.JAVA_OLD, limits.PYPAIMON, limits.RUST)
# pypaimon wants fields of a manifest that 0.9 does not write, whoever merges.
REFUSES = {limits.JAVA_OLD: {limits.PYPAIMON}}
ROUNDS = 6


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(table.refresh().to_polars().rows())


@pytest.mark.parametrize("merging", [MINOR, FULL], ids=["minor", "full"])
@pytest.mark.parametrize("writer", [limits.JAVA, limits.JAVA_OLD, limits.PYPAIMON])
def test_every_engine_reads_and_goes_on_after_every_merge(
    writer: str, merging: dict[str, str], peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {"bucket": "1", **merging}
    table = session.create_table(
        "d.t", COLUMNS, primary_keys=["id", "p"], partition_keys=["p"], options=options
    )
    for turn in range(ROUNDS):
        ours = range(turn, turn + 6)
        table.write([{"id": key, "p": key % 3, "v": f"ours {turn}"} for key in ours])
        if turn % 3 == 1:
            table.overwrite([{"id": 90 + turn, "p": 1, "v": "alone"}], partition={"p": 1})
        if turn % 3 == 2:
            table.compact(full=True)
        theirs = range(turn, turn + 9, 2)
        peers(writer).write(path, tuple(("+I", [key, key % 3, f"t {turn}"]) for key in theirs))
        wanted = rows_of(table)

        assert len(table.refresh().inspect.manifests()) < 8
        readers = {*READERS} - REFUSES.get(writer, set())
        for reader in sorted(readers) if turn > ROUNDS - 3 else (writer,):
            assert sorted(tuple(row) for row in peers(reader).read(path)) == wanted, reader
