"""Statistics files: those of Java byte by byte, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecore.errors import CorruptTable
from lakecore.format.metadata import decode_statistics, encode_statistics
from lakecore.model.manifest import ColumnStatistics, TableStatistics

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures" / "tag_branch_consumer_statistics"
JAVA = sorted(FIXTURES.glob("*/statistics/*"))


def test_fixtures_have_statistics() -> None:
    assert len(JAVA) >= 2


@pytest.mark.parametrize("path", JAVA, ids=lambda path: path.parts[-3])
def test_file_of_java_is_written_again_byte_by_byte(path: Path) -> None:
    found = decode_statistics(path.read_bytes(), str(path))

    assert encode_statistics(found) == path.read_bytes()
    assert found.columns["k"] == ColumnStatistics(
        column_id=0,
        distinct_count=1,
        min="1",
        max="1",
        null_count=0,
        average_length=4,
        max_length=4,
    )


def test_what_is_unknown_is_left_out() -> None:
    known = TableStatistics(
        snapshot_id=1, schema_id=0, columns={"a": ColumnStatistics(column_id=7)}
    )

    assert decode_statistics(encode_statistics(known), "x") == known
    assert b"null" not in encode_statistics(known)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"snapshotId": 1}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": [1]}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": {"a": 3}}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": {"a": {}}}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": {"a": {"colId": 0, "min": 3}}}',
        '{"snapshotId": true, "schemaId": 0}',
    ],
)
def test_damaged_file_is_named(text: str) -> None:
    with pytest.raises(CorruptTable, match="path=lost"):
        decode_statistics(text.encode(), "lost")
