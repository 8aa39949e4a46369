"""Tables that lakecore changed by DELETE, UPDATE and MERGE: every peer reads the rows it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from tests.interop import limits, values
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "name": "STRING", "n": "BIGINT", "at": "TIMESTAMP(6)"}
ROWS = [(number, f"name {number}", 10 * number, None) for number in range(1, 7)]
TABLES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "deduplicate": (("id",), {"bucket": "2"}),
    "sequence field": (("id",), {"bucket": "1", "sequence.field": "n"}),
    "dynamic bucket": (("id",), {"bucket": "-1"}),
    "orc": (("id",), {"bucket": "1", "file.format": "orc"}),
    "partial-update": (
        ("id",),
        {
            "bucket": "1",
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
        },
    ),
    "append": ((), {}),
}
REFUSED = {("partial-update", limits.PYPAIMON): "partial-update.remove-record-on-delete"}
"""What a peer does not do, by a part of its words."""


def changed(path: Path, keys: tuple[str, ...], options: Mapping[str, str]) -> list[list[Any]]:
    """Make a table, change it by each verb, and say what it should hold."""
    session = lc.connect(path.parent.parent, create=True)
    session.create_database("d", ignore_if_exists=True)
    table = session.create_table("d.t", COLUMNS, primary_keys=keys, options=dict(options))
    table.write(pl.DataFrame(ROWS, schema=[*COLUMNS], orient="row"))
    table.delete("id = 2 or n = 50")
    table.update({"name": "changed", "n": pl.col("n") + 1}, pl.col("id") >= 4)
    news = pl.DataFrame({"id": [1, 7, 8], "name": ["merged", "new", None], "n": [11, 70, 80]})
    (
        table.merge(news, on=["id"])
        .when_matched_update({"name": pl.col("source.name"), "n": pl.col("source.n")})
        .when_not_matched_insert(
            {name: pl.col(f"source.{name}") for name in news.columns},
            condition="source.name is not null",
        )
        .execute()
    )
    return [
        [1, "merged", 11, None],
        [3, "name 3", 30, None],
        [4, "changed", 41, None],
        [6, "changed", 61, None],
        [7, "new", 70, None],
    ]


@pytest.mark.parametrize("name", TABLES)
def test_every_peer_reads_what_the_verbs_left(
    name: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    expected = changed(path, *TABLES[name])

    assert values.sort_rows(LakecoreEngine().read(path)) == expected
    for peer in limits.PEERS:
        if (name, peer) in REFUSED:
            with pytest.raises(PeerRefused, match=REFUSED[name, peer]):
                peers(peer).read(path)
        else:
            assert values.sort_rows(peers(peer).read(path)) == expected, peer


def test_java_goes_on_with_a_table_that_the_verbs_changed(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    expected = changed(path, *TABLES["deduplicate"])
    java = peers(limits.JAVA)
    java.write(path, (("+I", [2, "again", 22, None]), ("-D", [7, "new", 70, None])))

    after = values.sort_rows([*expected[:-1], [2, "again", 22, None]])
    assert values.sort_rows(LakecoreEngine().read(path)) == after
    assert values.sort_rows(java.read(path)) == after
