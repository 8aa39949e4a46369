"""Rows of a batch with the columns of their target, and the rows that become dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lakecore as lc
from lakecore.cdc.events import SourceTable
from lakecore.cdc.sink_parts import TargetRows, fitting
from lakecore.cdc.state import DeadLetters
from tests.cdc.sources import batch, schema

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = SourceTable("d", "t")
COLUMNS = {"id": "INT", "v": "STRING"}


def test_batch_of_rows_that_all_do_not_fit_becomes_empty(tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    given = batch(SOURCE, schema(COLUMNS), ("+I", None, "a"), ("+I", None, "b"))
    letters = DeadLetters()
    rows = TargetRows(table.context)

    assert len(fitting("d.t", rows, given, letters)) == 0
    assert letters.count == len(letters.lines) == 2
    assert fitting("d.t", rows, given, None) is given
    assert rows.written(batch(SOURCE, schema(COLUMNS), ("+I", 1, "a"))).num_rows == 1
