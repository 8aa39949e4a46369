"""Merges of partial-update of which every row takes back: what the laws of merging found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path

REMOVING = [
    {"partial-update.remove-record-on-delete": "true"},
    {
        "fields.g.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "g",
    },
]


@pytest.mark.parametrize("options", REMOVING)
def test_two_rows_that_only_take_back_do_not_delete_once_they_are_merged(
    options: dict[str, str], tmp_path: Path
) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"k": "INT NOT NULL", "g": "INT", "v": "INT"},
        primary_keys=["k"],
        options={"bucket": "1", "merge-engine": "partial-update", **options},
    )
    table.write(pl.DataFrame({"k": [1], "g": [1], "v": [5]}))

    table.write(pl.DataFrame({"k": [1, 1], "g": [2, 3], "v": [5, 5], "_row_kind": ["-U", "-U"]}))

    kept = [(1, 3, None)] if "fields.g.sequence-group" in options else [(1, 1, 5)]
    assert table.to_polars().rows() == kept
