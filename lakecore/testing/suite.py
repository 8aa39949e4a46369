"""Compliance classes: another implementation inherits them, and says how it reads.

A class needs pytest, which collects its tests where it is inherited. This module imports neither
pytest nor Hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.testing.golden_tables import golden, golden_names
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
