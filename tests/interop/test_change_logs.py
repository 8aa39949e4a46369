"""`$audit_log`, `$binlog` and `$ro` of tables that lakecore and Java write in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.test_changes import KINDS, Kind, play

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

Played = tuple[Kind, "PeerEngine", "Path"]
SEQUENCE = {"table-read.sequence-number.enabled": "true"}


@pytest.fixture(scope="module", params=KINDS)
def played(
    request: pytest.FixtureRequest,
    peers: Callable[[str], PeerEngine],
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    """A table with a history, which the tests do not change."""
    kind, java = KINDS[request.param], peers(limits.JAVA)
    path = tmp_path_factory.mktemp("logs") / "d.db" / "t"
    play(path, kind, java)
    return kind, java, path


def theirs(java: PeerEngine, path: Path, name: str, **how: Any) -> dict[int, list[str]]:
    found = cast(
        "list[tuple[int, list[Any]]]", java.peer.ask("log", path=str(path), name=name, **how)
    )
    return {number: [repr(row) for row in rows] for number, rows in found}


def ours(path: Path, name: str, options: dict[str, str] | None = None) -> list[str]:
    table = lc.open_table(path).copy(options or {}).inspect.system_table(name)
    return [repr(list(row.values())) for row in table.to_arrow().to_pylist()]


@pytest.mark.parametrize("name", ["audit_log", "binlog", "ro"])
@pytest.mark.sampled(3)
def test_state_has_the_rows_of_java(name: str, played: Played) -> None:
    _, java, path = played
    last = lc.open_table(path).inspect.snapshots()["snapshot_id"].max()
    assert isinstance(last, int)
    for snapshot in (last, 2):
        options = {"scan.snapshot-id": str(snapshot)}
        assert sorted(ours(path, name, options)) == sorted(
            theirs(java, path, name, options=options)[0]
        ), options


@pytest.mark.parametrize("name", ["audit_log", "binlog"])
@pytest.mark.sampled(3)
def test_sequence_numbers_are_those_of_java(name: str, played: Played) -> None:
    kind, java, path = played
    if not kind.keyed:
        with pytest.raises(lc.Unsupported, match="no sequence numbers"):
            ours(path, name, SEQUENCE)
        return

    assert sorted(ours(path, name, SEQUENCE)) == sorted(
        theirs(java, path, name, options=SEQUENCE)[0]
    )


@pytest.mark.parametrize("name", ["audit_log", "binlog"])
@pytest.mark.sampled(3)
def test_changes_between_snapshots_are_those_of_java(name: str, played: Played) -> None:
    kind, java, path = played
    if kind.hides_level_0 and kind.producer == "none":
        return  # Java reads nothing of level 0; `test_changes` states that limit
    options = {"incremental-between": "1,4"}

    assert sorted(ours(path, name, options)) == sorted(theirs(java, path, name, options=options)[0])


@pytest.mark.parametrize("name", ["audit_log", "binlog"])
@pytest.mark.sampled(3)
def test_stream_has_the_rows_of_java(name: str, played: Played) -> None:
    _, java, path = played
    log: Any = lc.open_table(path).inspect.system_table(name)
    found = {
        number: [repr(list(row)) for row in frame.collect().rows()]
        for number, frame in log.stream(1, "latest")
    }
    expected = theirs(java, path, name, from_snapshot=1)

    assert {n: sorted(rows) for n, rows in found.items()} == {
        n: sorted(rows) for n, rows in expected.items()
    }
