"""lakecore and its peers: every table that one writes, the other reads with equal rows.

A case that a peer, or lakecore, cannot write or read is in `limits`; then it must be seen to fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, limits
from tests.interop.columns import columns
from tests.interop.engines import check_read, for_writer, one_in, write_all
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.columns import Json
    from tests.interop.engines import PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

LAKECORE = LakecoreEngine()
# Types that have statistics to prune by.
FILTERED = [
    case
    for case in cases.value_cases()
    if case.file_format != "avro"
    and not case.columns[1].type.children
    and not limits.limit(limits.LAKECORE, "write", case.features)
]


def _cases(writer: str, readers: tuple[str, ...]) -> Iterator[Case]:
    # Which bucket a key is in matters to who writes on, not to who reads: `test_relay`.
    found = [
        *cases.value_cases(),
        *(case for case in cases.key_cases() if case.options["bucket"] == "1"),
        *cases.partition_cases(),
        *cases.bucket_cases(),
        *cases.option_cases(),
    ]
    yield from limits.tried(writer, readers, (for_writer(case, writer) for case in found))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "case", list(_cases(limits.LAKECORE, limits.PEERS)), ids=lambda case: case.name
)
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
        pytest.param(
            writer, case, id=f"{writer}-{case.name}", marks=pytest.mark.sampled(one_in(writer))
        )
        for writer in limits.PEERS
        for case in _cases(writer, (limits.LAKECORE,))
    ],
)
def test_lakecore_reads_what_every_peer_writes(
    case: Case, writer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    if write_all(peers(writer), table, case):
        check_read(LAKECORE, table, case, writer, case.expected())


@pytest.mark.parametrize("file_format", cases.FORMATS)
@pytest.mark.parametrize("keys", [["k"], ["p", "k"], []])
def test_lakecore_finds_short_chars_by_the_statistics_that_java_wrote(
    file_format: str, keys: list[str], peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    chars = columns(k="CHAR(5) NOT NULL", p="CHAR(4) NOT NULL", v="CHAR(3)")
    rows: list[list[Json]] = [["a", "x", "b"], ["ab", "x", "bc"], ["q", "x", None]]
    made = case(
        f"short CHAR, {file_format}",
        chars,
        [[("+I", row)] for row in rows],
        primary_keys=keys,
        partition_keys=keys[:-1],
        options={"file.format": file_format, "bucket": "1" if keys else "-1"},
    )
    assert write_all(peers(limits.JAVA), table, made)

    for row in rows:
        for column, value in zip(chars, row, strict=True):
            for operator in ("=", "<=", ">="):
                found = LAKECORE.read(table, where=f"{column.name} {operator} '{value}'")

                assert value is None or row in found, (column.name, operator, value)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", FILTERED, ids=lambda case: case.name)
@pytest.mark.parametrize("reader", [limits.JAVA, limits.JAVA_OLD])
def test_filters_find_rows_by_the_statistics_that_lakecore_wrote(
    case: Case, reader: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = tmp_path / "d.db" / "t"
    assert write_all(LAKECORE, table, case)
    if limits.limit(reader, "read", case.features, limits.LAKECORE):
        return  # what the reader cannot read at all it cannot filter
    limit = limits.limit(reader, "filter", case.features, limits.LAKECORE)

    lost: list[Json] = []
    for found in {str(row[1]): row[1] for row in case.expected()}.values():
        wanted = [row for row in case.expected() if row[1] == found]
        # NaN equals nothing, or everything, as one likes.
        if found == "NaN":
            continue
        try:
            rows = peers(reader).read_where(
                table, ("v", "isNull" if found is None else "equal", found)
            )
        except PeerRefused as refusal:
            if limit is None or not limit.fits(refusal.reason):
                raise
            return
        if not all(row in rows for row in wanted):
            lost.append(found)

    if limit is None:
        assert lost == []
    else:
        assert lost, f"{reader} filters in spite of its limit: {limit.because}"
