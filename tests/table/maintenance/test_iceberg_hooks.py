"""What a table that goes leaves in an Iceberg catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import StorageError
from lakecore.table.maintenance import iceberg_hooks
from lakecore.table.maintenance.iceberg_hooks import forget_entries
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.table.context import TableContext


class Entries:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("failure", [None, StorageError("the catalog does not answer")])
def test_entry_goes_with_its_table_and_a_failure_is_told(
    failure: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = Entries(failure)
    asked: list[TableContext] = []
    context = new_table().context
    forget_entries(context)  # a table without a catalog has no entry

    def entries_of(of: TableContext) -> Entries:
        asked.append(of)
        return entries

    monkeypatch.setattr(iceberg_hooks, "entries_of", entries_of)
    forget_entries(context)
    assert (asked, entries.forgotten) == ([context], 1)
    assert ("the entry in the Iceberg catalog stays" in caplog.text) is (failure is not None)
