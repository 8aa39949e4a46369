"""The peers among themselves, without lakecore: `limits` tells the truth, and the suite is right.

All claims of `limits` are tried, and a sample of what should work; `test_lakecore.py` has it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, limits
from tests.interop.engines import check_read, for_writer, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

SAMPLE = 12


def _tried(writer: str, readers: tuple[str, ...]) -> Iterator[Case]:
    written = (for_writer(case, writer) for case in cases.all_cases())
    for number, case in enumerate(limits.tried(writer, readers, written)):
        if number % SAMPLE == 0 or limits.claims(writer, readers, case.features):
            yield case


@pytest.mark.parametrize(
    "case", list(_tried(limits.JAVA, limits.PEERS)), ids=lambda case: case.name
)
@pytest.mark.sampled(9)
def test_every_peer_reads_what_java_writes(
    case: Case, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "table"
    if not write_all(peers(limits.JAVA), table, case):
        return

    for name in limits.PEERS:
        check_read(peers(name), table, case, limits.JAVA, case.expected())


@pytest.mark.parametrize(
    ("writer", "case"),
    [
        pytest.param(writer, case, id=f"{writer}-{case.name}")
        for writer in (limits.JAVA_OLD, limits.PYPAIMON, limits.RUST)
        for case in _tried(writer, (limits.JAVA,))
    ],
)
@pytest.mark.sampled(9)
def test_java_reads_what_every_peer_writes(
    case: Case, writer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "table"
    if write_all(peers(writer), table, case):
        check_read(peers(limits.JAVA), table, case, writer, case.expected())
