"""Relays: lakecore and a peer write the same table in turns; both read equal rows at every step.

It needs equal buckets for equal keys, sequence numbers that go on, hash indexes that both keep, and
metadata that each takes over from the other. Cases that a peer cannot write or read at all are
tried elsewhere; a peer that reads a case but must not go on with it has a limit for `relay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, limits, values
from tests.interop.engines import for_writer, one_in
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.engines import Engine, PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

LAKECORE = LakecoreEngine()

DYNAMIC = {f"key {label} in -1" for label in ("INT", "STRING", *cases.COMPOSITE_KEYS)}
PARTITIONED = {f"partition {label} pk" for label in ("STRING", "DATE", "INT", "TIMESTAMP(6)")}


def _relayed(peer: str) -> Iterator[Case]:
    relayed = [
        *(case for case in cases.key_cases() if case.options["bucket"] == "4"),
        # What a hash index holds of a key is the hash that also chooses fixed buckets.
        *(case for case in cases.key_cases() if case.name in DYNAMIC),
        *cases.bucket_cases(),
        *cases.option_cases(),
        *(case for case in cases.partition_cases() if case.name in PARTITIONED),
    ]
    for case in relayed:
        written = for_writer(case, peer)
        if not _limited(written, peer):
            yield written


def _limited(case: Case, peer: str) -> bool:
    pair = (peer, limits.LAKECORE)
    return any(
        limits.limit(engine, "write", case.features)
        or limits.limit(engine, "read", case.features, writer)
        for engine in pair
        for writer in pair
    )


RELAYS = [
    # Every other case begins with the peer.
    pytest.param(
        peer,
        case,
        peer if number % 2 else limits.LAKECORE,
        id=f"{peer}-{case.name}",
        marks=pytest.mark.sampled(one_in(peer)),
    )
    for peer in limits.PEERS
    for number, case in enumerate(_relayed(peer))
]


@pytest.mark.parametrize(("peer", "case", "first"), RELAYS)
def test_both_write_in_turns_and_read_equal_rows(
    peer: str, case: Case, first: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    pair: list[Engine] = [LAKECORE, peers(peer)]
    if first == peer:
        pair.reverse()
    limit = limits.limit(peer, "relay", case.features)

    wrong = _relay(pair, table, case)

    if limit is None:
        assert wrong == []
    else:
        assert wrong, f"{peer} goes on with {case.name}, against its limit: {limit.because}"


def _relay(pair: list[Engine], table: Path, case: Case) -> list[str]:
    wrong: list[str] = []
    pair[0].create(table, case)
    for number, changes in enumerate(case.commits):
        pair[number % 2].write(table, changes)
        for reader in pair:
            found = values.difference(reader.read(table), case.expected(number + 1), case.columns)
            step = f"after commit {number + 1} by {pair[number % 2].name}, {reader.name}"
            wrong += [f"{step}: {line}" for line in found]
    return wrong


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("peer", "depth"), [(limits.JAVA, "full"), (limits.JAVA_OLD, "minor")])
@pytest.mark.parametrize("case", list(cases.bucket_cases()), ids=lambda case: case.name)
def test_lakecore_goes_on_after_java_compacts_its_files(
    peer: str, case: Case, depth: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    java = peers(peer)
    LAKECORE.create(table, case)
    for changes in case.commits[:-1]:
        LAKECORE.write(table, changes)

    java.compact(table, full=depth == "full")

    before = case.expected(len(case.commits) - 1)
    assert values.difference(LAKECORE.read(table), before, case.columns) == []
    LAKECORE.write(table, case.commits[-1])
    assert values.difference(LAKECORE.read(table), case.expected(), case.columns) == []
    assert values.difference(java.read(table), case.expected(), case.columns) == []
