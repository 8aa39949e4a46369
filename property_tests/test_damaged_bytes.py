"""A file of which bytes changed gives the rows of before, or an error of lakecore; never others.

Files are data files of each format, manifests and their lists, snapshots and schemas; index files
have laws of their own. A byte is flipped, a block zeroed or copied, a file cut or made longer.

ORC and Avro files of other programs have no checksums: only those of lakecore's are looked at here.
JSON has none either: a digit of a snapshot may become another, so of that only the kind of the
error is looked at.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import LakecoreError
from lakecore.io.stores.local import LocalStore
from property_tests.byte_damage import FACES, Rows, in_order, mutated
from property_tests.profile import sized
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING", "n": "DOUBLE", "a": "ARRAY<INT>"}
ROWS: Rows = [
    {"id": number, "v": f"name-{number * 7919 % 97}", "n": number / 7, "a": [number, None]}
    for number in range(150)
]


def made(path: Path, keys: list[str], file_format: str) -> Table:
    table = new_table(
        COLUMNS,
        keys=keys,
        store=LocalStore(),
        path=str(path),
        file__format=file_format,
        write_only="true",
    )
    table.write(ROWS)
    table.write([{**ROWS[7], "v": "newer"}] if keys else [{**ROWS[7], "id": 150}])
    return table


def damage(
    tmp_path: Path,
    keys: list[str],
    file_format: str,
    pattern: str,
    rounds: int,
    *,
    is_exact: bool = True,
) -> tuple[int, int]:
    """How many mutations were refused and how many gave the rows, each through one face."""
    chance = random.Random(f"{keys} {file_format} {pattern}")
    whole = tmp_path / "whole"
    wanted = in_order(made(whole, keys, file_format).to_arrow().to_pylist())
    paths = sorted(path.relative_to(whole) for path in whole.rglob(pattern) if path.is_file())
    assert paths
    refused = right = 0
    faces = [*FACES]
    table = made(tmp_path / "t", keys, file_format)
    for number in range(rounds):
        shutil.rmtree(tmp_path / "t")
        shutil.copytree(whole, tmp_path / "t")
        path = tmp_path / "t" / chance.choice(paths)
        path.write_bytes(mutated(path.read_bytes(), chance))
        face = faces[number % len(faces)]
        try:
            rows = in_order(FACES[face](reopened(table)))
        except LakecoreError:
            refused += 1
        else:
            right += 1
            assert rows == wanted or not is_exact, f"{face} of {path.name}"
    return refused, right


@pytest.mark.parametrize("keys", [["id"], []])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_damaged_data_file_gives_no_other_rows(
    keys: list[str], file_format: str, tmp_path: Path
) -> None:
    refused, _ = damage(tmp_path, keys, file_format, "data-*", 24)

    assert refused


@pytest.mark.parametrize("pattern", ["manifest-*", "snapshot-*", "schema-*", "EARLIEST", "LATEST"])
def test_damaged_metadata_raises_errors_of_lakecore_alone(pattern: str, tmp_path: Path) -> None:
    exact = pattern.isupper()
    refused, right = damage(tmp_path, ["id"], "parquet", pattern, 24, is_exact=exact)

    assert (refused == 0) if exact else refused
    assert refused + right == 24


@pytest.mark.slow
@pytest.mark.parametrize("keys", [["id"], []])
def test_many_damaged_parquet_files_give_no_other_rows(keys: list[str], tmp_path: Path) -> None:
    refused, right = damage(tmp_path, keys, "parquet", "data-*", sized(1_000, quick=80))

    assert refused > right
