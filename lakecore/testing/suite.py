"""Compliance classes: the tests of another implementation inherit them and define `read`.

A class needs pytest, which collects its tests where it is inherited. This module imports neither
pytest nor Hypothesis.
"""

from __future__ import annotations

import atexit
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from lakecore.errors import InvalidRequest, NotFound, did_you_mean
from lakecore.testing.values import as_arrow, assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReadsPaimon"]


class ReadsPaimon:
    """Whether a reader returns the rows that Java Paimon read, of every golden table and snapshot.

    Subclass it as `Test...`, and give `read(path, snapshot_id)`, which returns the rows as Arrow,
    a Polars frame or a list of dictionaries. Each golden table is one test; it reads each snapshot.
    Order does not matter, values do: NaN, -0.0 and nested values are compared exactly.

    - `tables`: the golden tables that are read; by default all of `golden_names()`.
    - `known_failures`: tables that the reader is known to fail, with the reason. The test of such a
      table fails as soon as the reader passes it, so that the list stays true.

        class TestMine(suite.ReadsPaimon):
            known_failures = {"paimon-2.1/head_bucket_mod": "knows no bucket function"}

            def read(self, path, snapshot_id):
                return my_reader.scan(path, snapshot=snapshot_id)
    """

    tables: ClassVar[tuple[str, ...] | None] = None
    known_failures: ClassVar[Mapping[str, str]] = {}

    def read(self, path: str, snapshot_id: int) -> Any:
        """The rows of the table in a directory, at a snapshot."""
        raise InvalidRequest(
            "a subclass of ReadsPaimon gives read(path, snapshot_id)",
            path=path,
            snapshot=snapshot_id,
        )

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Make one test of each golden table."""
        if "golden_name" in metafunc.fixturenames:
            names = self.tables or golden_names()
            if unknown := {*self.known_failures} - {*names}:
                raise InvalidRequest(
                    "known_failures names tables that are not tried", names=unknown
                )
            metafunc.parametrize("golden_name", names)

    def test_reads_the_rows_that_java_read(self, golden_name: str) -> None:
        """Each snapshot of a golden table has its rows."""
        reason = self.known_failures.get(golden_name)
        if reason is None:
            self.check(golden_name)
            return
        with _Failing() as found:
            self.check(golden_name)
        assert found.failed, f"passes now; known_failures says: {reason}"

    def check(self, golden_name: str) -> None:
        """Raise AssertionError unless each snapshot of a golden table is read as Java read it."""
        table = golden(golden_name)
        for snapshot_id, wanted in table.snapshots.items():
            found = as_arrow(self.read(table.path, snapshot_id))
            assert_same_rows(_in_order(found, table.unordered), _in_order(wanted, table.unordered))


class _Failing:
    """A block that is known to fail, by an assertion or an error of the reader."""

    failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.failed = isinstance(error, Exception)
        return self.failed


def _in_order(rows: pa.Table, unordered: frozenset[str]) -> pa.Table:
    """The rows with the lists of these columns in one order."""
    for name in unordered & {*rows.column_names}:
        lists = [each and sorted(each, key=repr) for each in rows[name].to_pylist()]
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.array(lists, rows[name].type))
    return rows


# --- golden tables --------------------------------------------------------------------------------
# Golden tables: written by Java Paimon, with the rows that Java read at each snapshot.
#
# They are packed in `golden.tar.xz` beside this module (`python -m tests.golden.pack` writes it):
# for each table its directory as Java left it, and one Arrow file of expected rows per snapshot.


ARCHIVE = Path(__file__).parent / "golden.tar.xz"
TABLE, EXPECTED = "table", "expected"
"""The folders of a golden table: its files, and its expected rows."""
UNORDERED = b"unordered"
"""The metadata key of expected rows: the columns of lists without an order, separated by commas."""


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """A table that Java Paimon wrote, as `golden` returns it.

    - `name`: its name, such as `paimon-2.1/pk_first_row`;
    - `path`: its directory, a copy that a test may change;
    - `snapshots`: the rows that Java read, as Arrow tables by snapshot id;
    - `unordered`: the columns with lists whose order Paimon leaves open (`collect`).

        for snapshot_id, rows in golden(name).snapshots.items():
            ...
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
