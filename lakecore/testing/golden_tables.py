"""Golden tables: written by Java Paimon, with the rows that Java read at each snapshot.

They are packed in `golden.tar.xz` beside this module (`python -m tests.golden.pack` writes it):
for each table its directory as Java left it, and one Arrow file of expected rows per snapshot.
"""

from __future__ import annotations

import atexit
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import NotFound
from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

ARCHIVE = Path(__file__).parent / "golden.tar.xz"
TABLE, EXPECTED = "table", "expected"
"""The folders of a golden table: its files, and its expected rows."""
UNORDERED = b"unordered"
"""The key in the metadata of expected rows: the columns of lists without an order, by commas."""


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """A table that Java Paimon wrote, as `golden` returns it.

    - `name`: its name, such as `paimon-2.1/pk_first_row`;
    - `path`: its directory, a copy that a test may change;
    - `snapshots`: the rows that Java read, as Arrow tables by snapshot id;
    - `unordered`: the columns with lists whose order Paimon leaves open (`collect`).

        for snapshot_id, rows in golden(name).snapshots.items(): ...
    """

    name: str
    path: str
    snapshots: Mapping[int, pa.Table]
    unordered: frozenset[str]

    def rows(self, snapshot_id: int | None = None) -> pa.Table:
        """The expected rows at a snapshot; by default, at the latest."""
        return self.snapshots[max(self.snapshots) if snapshot_id is None else snapshot_id]


def golden_names() -> tuple[str, ...]:
    """The names of all golden tables, such as `paimon-2.1/pk_first_row`, sorted.

    The part before the slash is the version of Paimon that wrote the table.

        @pytest.mark.parametrize("name", golden_names())
        def test_read(name): ...
    """
    return tuple(sorted(_unpacked()))


def golden(name: str) -> GoldenTable:
    """A golden table: a directory of its own with the table, and the rows of each snapshot.

    Raises NotFound for an unknown name; `golden_names()` lists them.

        table = golden("paimon-2.1/pk_first_row")
        assert_same_rows(lakecore.open_table(table.path), table)
    """
    folders = _unpacked()
    if name not in folders:
        raise NotFound("no such golden table", name=name, **did_you_mean(name, folders))
    own = Path(tempfile.mkdtemp(dir=_scratch())) / TABLE
    shutil.copytree(folders[name] / TABLE, own)
    snapshots = {}
    unordered: set[str] = set()
    for file in sorted((folders[name] / EXPECTED).iterdir()):
        with pa.OSFile(str(file)) as source:
            read = pa.ipc.open_file(source).read_all()
        unordered |= {*(read.schema.metadata or {}).get(UNORDERED, b"").decode().split(",")} - {""}
        snapshots[int(file.stem)] = read.replace_schema_metadata()
    return GoldenTable(name, str(own), snapshots, frozenset(unordered))


@cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="lakecore-golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _unpacked() -> dict[str, Path]:
    """The folder of each table, unpacked once for this process."""
    root = _scratch() / "tables"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    return {
        f"{folder.parent.name}/{folder.name}": folder
        for folder in root.glob("*/*")
        if folder.is_dir()
    }
