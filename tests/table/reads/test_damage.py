"""A data file of which a byte changed on disk gives its rows, or CorruptTable; never other rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, LakecoreError
from lakecore.io.stores.local import LocalStore
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.table.handle import Table

ROWS = [
    {"id": number, "v": f"name-{number * 7919 % 1000}", "n": number / 7} for number in range(200)
]
COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING", "n": "DOUBLE"}


def table_of(tmp_path: Path, keys: list[str], **options: str) -> Table:
    table = new_table(COLUMNS, keys=keys, store=LocalStore(), path=str(tmp_path / "t"), **options)  # type: ignore[arg-type]
    table.write(ROWS)
    return table


def compacted(table: Table) -> list[dict[str, Any]]:
    table.compact(full=True)
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return rows


FACES: dict[str, Callable[[Table], list[dict[str, Any]]]] = {
    "to_polars": lambda table: table.to_polars().to_dicts(),
    "scan": lambda table: table.scan().collect().to_dicts(),
    "filtered scan": lambda table: table.scan(where="id >= 0").collect().to_dicts(),
    "to_arrow": lambda table: table.to_arrow().to_pylist(),
    "to_batches": lambda table: [row for batch in table.to_batches() for row in batch.to_pylist()],
    "dataset": lambda table: table.to_arrow_dataset().to_table().to_pylist(),
    "to_duckdb": lambda table: table.to_duckdb().to_arrow_table().to_pylist(),
    "compact": compacted,
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("keys", [["id"], []])
def test_flipped_bits_give_no_other_rows(face: str, keys: list[str], tmp_path: Path) -> None:
    chance = random.Random(f"{face} {keys}")
    table = table_of(tmp_path, keys)
    if face == "compact":
        table.write(ROWS[:1])
    path = max((tmp_path / "t").rglob("data-*.parquet"), key=lambda each: each.stat().st_size)
    intact = path.read_bytes()
    told = 0
    for _ in range(25):
        data = bytearray(intact)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            rows = FACES[face](reopened(table))
        except CorruptTable as error:
            assert path.name in str(error)  # noqa: PT017  what is told is what is tested
            told += 1
        else:
            assert sorted(rows, key=lambda row: row["id"])[: len(ROWS)] == ROWS
            if face == "compact":
                break

    assert told


def test_file_that_changes_after_it_was_read_is_checked_again(tmp_path: Path) -> None:
    table = table_of(tmp_path, ["id"])
    assert table.to_polars().height == len(ROWS)
    (path,) = (tmp_path / "t").rglob("data-*.parquet")
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    (start,) = (
        group.column(at).data_page_offset
        for at in range(group.num_columns)
        if group.column(at).path_in_schema == "n"
    )
    data[start + 60] ^= 1
    path.write_bytes(data)

    with pytest.raises(CorruptTable, match=rf"checksum does not match.*{path.name}.*column="):
        table.to_polars()


def test_switch_leaves_checksums_unread(tmp_path: Path) -> None:
    table = table_of(tmp_path, [], file__compression="none", lakecore__verify_checksums="false")
    (path,) = (tmp_path / "t").rglob("data-*.parquet")
    data = path.read_bytes()
    path.write_bytes(data.replace((7).to_bytes(8, "little"), (9).to_bytes(8, "little"), 1))

    assert sum(row["id"] for row in table.to_polars().to_dicts()) == sum(range(200)) + 2
    table.write(ROWS[:1])
    with pytest.raises(LakecoreError, match="checksum"):
        compacted(reopened(table))
