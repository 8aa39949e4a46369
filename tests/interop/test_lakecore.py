"""lakecore and its peers: every table that one writes, the other reads with equal rows.

A case that a peer, or lakecore, cannot write or read is in `limits`; then it must be seen to fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, limits
from tests.interop.engines import check_read, for_writer, write_all
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

LAKECORE = LakecoreEngine()
ALL = list(cases.all_cases())
# Types that have statistics to prune by.
FILTERED = [
    case
    for case in cases.value_cases()
    if case.file_format == "parquet" and not case.columns[1].type.children
]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_peer_reads_what_lakecore_writes(
    case: Case, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    if not write_all(LAKECORE, table, case):
        return

    check_read(LAKECORE, table, case, limits.LAKECORE, case.expected())
    for name in limits.PEERS:
        check_read(peers(name), table, case, limits.LAKECORE, case.expected())


@pytest.mark.parametrize(
    ("writer", "case"),
    [
        pytest.param(writer, for_writer(case, writer), id=f"{writer}-{case.name}")
        for writer in limits.PEERS
        for case in ALL
    ],
)
def test_lakecore_reads_what_every_peer_writes(
    case: Case, writer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    if write_all(peers(writer), table, case):
        check_read(LAKECORE, table, case, writer, case.expected())


@pytest.mark.parametrize("case", FILTERED, ids=lambda case: case.name)
@pytest.mark.parametrize("reader", [limits.JAVA, limits.JAVA_OLD])
def test_filters_find_rows_by_the_statistics_that_lakecore_wrote(
    case: Case, reader: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    assert write_all(LAKECORE, table, case)
    if limits.limit(reader, "read", case.features, limits.LAKECORE):
        return  # what the reader cannot read at all it cannot filter

    for found in {str(row[1]): row[1] for row in case.expected()}.values():
        wanted = [row for row in case.expected() if row[1] == found]
        # NaN equals nothing, or everything, as one likes.
        if found != "NaN":
            where = ("v", "isNull" if found is None else "equal", found)
            rows = peers(reader).read_where(table, where)

            assert all(row in rows for row in wanted), f"{found!r} is not among {rows}"
