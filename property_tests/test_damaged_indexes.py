"""An index file of which bytes changed gives the rows of before, or CorruptTable; never others.

A deletion vector hides rows from each read; a hash index says to each write which bucket holds a
key. The vectors are those that Java wrote. Of hash indexes only lakecore's have a checksum; from
those of other programs, a changed hash cannot be known.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable
from lakecore.io.stores.local import LocalStore
from property_tests.byte_damage import FACES, Rows, in_order, mutated
from property_tests.profile import sized
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "fixtures"
VECTORS = [
    ("pk_deletion_vectors/table", 8),
    ("append_deletion_vectors/table-head", 5),
    ("head_append_dv_bitmap64/table-head", 3),
    ("head_deletion_vectors_bitmap64/table-head", 5),
]
"""Tables, and a snapshot at which vectors hide rows."""
READS = [face for face in FACES if face != "compact"]
KEYS = range(24)
NEW: Rows = [{"id": number, "v": "new"} for number in (*KEYS, 99)]
ODD: Rows = [row for row in NEW if row["id"] % 2]


def upserted(table: Table) -> None:
    table.write(NEW)


def written_in_two_phases(table: Table) -> None:
    with table.new_write() as rows:
        rows.write(NEW)
        table.commit(rows.prepare_commit())


def merged(table: Table) -> None:
    merge = table.merge(pa.Table.from_pylist(NEW), on=["id"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def updated(table: Table) -> None:
    table.update({"v": "new"}, where="id >= 0")
    table.write(NEW[-1:])


def deleted(table: Table) -> None:
    table.delete(where="id >= 0")
    table.write(NEW)


WRITES: dict[str, Callable[[Table], None]] = {
    "write": upserted,
    "two phases": written_in_two_phases,
    "merge": merged,
    "update": updated,
    "delete": deleted,
}


def at(root: Path, snapshot_id: int) -> Table:
    """The table as another process sees it at a snapshot."""
    return lc.open_table(root).copy({"scan.snapshot-id": snapshot_id})


def damage_vectors(tmp_path: Path, golden: str, snapshot_id: int, rounds: int) -> tuple[int, int]:
    """How many mutations were refused and how many gave the rows, each through one face."""
    chance = random.Random(golden)
    root = tmp_path / "t"
    shutil.copytree(GOLDEN / golden, root)
    table = at(root, snapshot_id)
    wanted = in_order(table.to_arrow().to_pylist())
    history = table.context.history
    names = [each.file.name for each in history.index_entries(history.snapshot(snapshot_id))]
    assert names
    refused = right = 0
    for number in range(rounds):
        path = root / "index" / chance.choice(names)
        intact = path.read_bytes()
        path.write_bytes(mutated(intact, chance))
        face = READS[number % len(READS)]
        try:
            rows = in_order(FACES[face](at(root, snapshot_id)))
        except CorruptTable as error:
            refused += 1
            assert path.name in str(error)  # noqa: PT017  what is told is what is tested
        else:
            right += 1
            assert rows == wanted, f"{face} of {path.name}"
        path.write_bytes(intact)
    return refused, right


def damage_hashes(tmp_path: Path, rounds: int) -> tuple[int, int]:
    """How many mutations were refused, and after how many each key was still there once."""
    chance = random.Random(7)
    whole = tmp_path / "whole"
    table = new_table(
        {"id": "BIGINT NOT NULL", "v": "STRING"},
        store=LocalStore(),
        path=str(whole),
        bucket="-1",
        dynamic_bucket__target_row_num="8",
        write_only="true",
    )
    table.write([{"id": number, "v": "old"} for number in KEYS[:10]])
    table.write([{"id": number, "v": "old"} for number in KEYS[10:]])
    history = table.context.history
    names = [each.file.name for each in history.index_entries(history.latest_snapshot())]
    table = new_table(store=LocalStore(), path=str(tmp_path / "t"))
    refused = right = 0
    for number in range(rounds):
        shutil.rmtree(tmp_path / "t")
        shutil.copytree(whole, tmp_path / "t")
        path = tmp_path / "t" / "index" / chance.choice(names)
        path.write_bytes(mutated(path.read_bytes(), chance))
        face = [*WRITES][number % len(WRITES)]
        try:
            WRITES[face](reopened(table))
        except CorruptTable as error:
            refused += 1
            assert path.name in str(error)  # noqa: PT017  what is told is what is tested
        else:
            right += 1
            assert in_order(reopened(table).to_arrow().to_pylist()) == NEW, f"{face} of {path.name}"
    return refused, right


@pytest.mark.parametrize(("golden", "snapshot_id"), VECTORS)
def test_damaged_deletion_vector_gives_no_other_rows(
    golden: str, snapshot_id: int, tmp_path: Path
) -> None:
    refused, right = damage_vectors(tmp_path, golden, snapshot_id, 21)

    assert refused > right


def test_damaged_hash_index_gives_no_key_twice(tmp_path: Path) -> None:
    refused, right = damage_hashes(tmp_path, 20)

    assert refused > right


@pytest.mark.slow
@pytest.mark.parametrize(("golden", "snapshot_id"), VECTORS)
def test_many_damaged_deletion_vectors_give_no_other_rows(
    golden: str, snapshot_id: int, tmp_path: Path
) -> None:
    refused, right = damage_vectors(tmp_path, golden, snapshot_id, sized(300, quick=30))

    assert refused > right


@pytest.mark.slow
def test_many_damaged_hash_indexes_give_no_key_twice(tmp_path: Path) -> None:
    refused, right = damage_hashes(tmp_path, sized(300, quick=30))

    assert refused > right
