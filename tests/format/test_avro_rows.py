"""Which blocks of an Avro container are decoded together."""

from __future__ import annotations

import io

import fastavro
import pytest

from lakecore.format.avro_container import read_batches

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "long"}]}


def blocks_of_two(count: int) -> io.BytesIO:
    file = io.BytesIO()
    writer = fastavro.write.Writer(file, fastavro.parse_schema(SCHEMA), sync_interval=1 << 30)
    for number in range(count):
        writer.write({"v": number})
        if number % 2:
            writer.dump()
    writer.flush()
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("rows", "size_bytes", "batches"),
    [
        (1, 1 << 20, [2, 2, 2, 1]),
        (3, 1 << 20, [4, 3]),
        (4, 1 << 20, [4, 3]),
        (5, 1 << 20, [6, 1]),
        (100, 1 << 20, [7]),
        (100, 1, [2, 2, 2, 1]),
    ],
)
def test_a_batch_ends_with_enough_rows_or_bytes(
    rows: int, size_bytes: int, batches: list[int]
) -> None:
    found = [*read_batches(blocks_of_two(7), "p", rows, size_bytes)]

    assert [len(each) for each in found] == batches
    assert [row["v"] for each in found for row in each] == [*range(7)]
