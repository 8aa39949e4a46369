"""lakecore packs tables without a key: every peer reads them, and Java packs on, in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import cases, limits
from tests.interop.engines import check_read, write_all
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

LAKECORE = LakecoreEngine()
EVERY_FILE = {"compaction.force-rewrite-all-files": "true"}
SHAPES: dict[str, dict[str, Any]] = {
    "no buckets": {"options": {}},
    "no buckets, partitioned": {"options": {}, "partition_keys": ["day"]},
    "one bucket in order": {"options": {"bucket": "1", "bucket-key": "id"}},
    "buckets, partitioned": {
        "options": {"bucket": "2", "bucket-key": "id"},
        "partition_keys": ["day"],
    },
}
FORMATS = ("parquet", "orc", "avro")
ROUNDS = 6


def _cases(writer: str, readers: tuple[str, ...]) -> Iterator[Case]:
    found = (*cases.value_cases(), *cases.partition_cases(), *cases.bucket_cases())
    yield from limits.tried(writer, readers, (case for case in found if not case.primary_keys))


@pytest.mark.parametrize(
    "case", list(_cases(limits.LAKECORE, limits.PEERS)), ids=lambda case: case.name
)
@pytest.mark.sampled(4)
def test_every_peer_reads_what_lakecore_packed(
    case: Case, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    if not write_all(LAKECORE, path, case):
        return
    lc.open_table(path).copy(EVERY_FILE).compact(full=True)

    check_read(LAKECORE, path, case, limits.LAKECORE, case.expected())
    for name in limits.PEERS:
        check_read(peers(name), path, case, limits.LAKECORE, case.expected())


@pytest.mark.parametrize("writer", [limits.JAVA, limits.JAVA_OLD, limits.PYPAIMON, limits.RUST])
def test_lakecore_packs_what_every_peer_writes(
    writer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    seen = 0
    for number, case in enumerate(_cases(writer, (limits.LAKECORE, limits.JAVA))):
        path = tmp_path / f"d{number}.db" / "t"
        writable = limits.limit(limits.LAKECORE, "write", case.features) is None
        if not writable or not write_all(peers(writer), path, case):
            continue
        readers = (limits.LAKECORE, limits.JAVA)
        if any(limits.limit(name, "read", case.features, writer) for name in readers):
            continue
        seen += 1
        result = lc.open_table(path).copy(EVERY_FILE).compact(full=True)

        assert result.rows_after == len(case.expected()), case.name
        check_read(LAKECORE, path, case, limits.LAKECORE, case.expected())
        check_read(peers(limits.JAVA), path, case, limits.LAKECORE, case.expected())
    assert seen > 20


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_OLD])
@pytest.mark.sampled(2)
def test_both_write_and_pack_in_turns_and_read_equal_rows(
    version: str, shape: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(version)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    made = dict(SHAPES[shape])
    # 0.9 packs files of a table without buckets by their number only if this is said.
    most = {"compaction.max.file-num": "3"} if version == limits.JAVA_OLD else {}
    options = {**made.pop("options"), "compaction.min.file-num": "3", **most}
    columns = {"day": "STRING", "id": "INT", "v": "STRING"}
    table = session.create_table("d.t", columns, options=options, **made)
    wanted: list[list[Any]] = []

    def rows(count: int, who: str) -> list[list[Any]]:
        fresh = [[f"{n % 2}", n, who] for n in range(len(wanted), len(wanted) + count)]
        wanted.extend(fresh)
        return fresh

    # pypaimon reads no manifest of 0.9.
    readers = (version,) if version == limits.JAVA_OLD else limits.PEERS

    def check() -> None:
        for name in readers:
            assert sorted(peers(name).read(path)) == sorted(wanted), name
        ours = [list(row) for row in table.refresh().to_polars().rows()]
        assert sorted(ours) == sorted(wanted)
        if shape == "one bucket in order":
            assert ours == wanted
            assert java.read(path) == wanted

    for turn in range(ROUNDS):
        own = table.copy({"file.format": FORMATS[turn % 3]})
        for count in range(1, 4):
            names = ("day", "id", "v")
            own.write([dict(zip(names, row, strict=True)) for row in rows(count, f"we {turn}")])
        own.compact(full=turn % 2 == 0)
        check()
        for count in range(1, 4):
            java.write(path, tuple(("+I", row) for row in rows(count, f"they {turn}")))
        java.compact(path, full=turn % 2 == 1)
        check()
    kinds = [str(kind) for kind in table.refresh().inspect.snapshots()["commit_kind"]]

    assert kinds.count("COMPACT") > ROUNDS
    assert table.refresh().inspect.files().height < 3 * ROUNDS
