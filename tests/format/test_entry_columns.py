"""Which rows of manifests are live files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.format.entry_columns import (
    COUNTED,
    HOLDS_DELETIONS,
    EntryColumns,
    Unmatched,
    live_rows,
)
from lakecore.format.manifest_files import decode_entries, encode_manifest
from lakecore.model.manifest import FileKind
from tests.tables import entry, files

if TYPE_CHECKING:
    from collections.abc import Mapping


def manifest(text: str) -> EntryColumns:
    """Entries such as `"a +1 -2"`: in partition a, file 1 is added and file 2 is deleted."""
    (first,) = files("L0 a-m")
    partition, *words = text.split()
    found = [
        entry(
            replace(first, name=f"data-{word[1:]}"),
            FileKind.ADD if word[0] == "+" else FileKind.DELETE,
            partition=partition.encode(),
        )
        for word in words
    ]
    return EntryColumns.of(decode_entries(encode_manifest(found), "m"))


def live(*texts: str, wanted: Mapping[bytes, None] | None = None) -> list[list[int]]:
    return [rows.tolist() for rows in live_rows([manifest(text) for text in texts], wanted)]


def test_files_that_are_deleted_later_are_not_live() -> None:
    assert live() == []
    assert live("a +1 +2", "b +1") == [[0, 1], [0]]
    assert live("a +1 +2 +3", "a -2 +4", "a +2 -4") == [[0, 2], [], [0]]
    assert live("a +1 -1 +1") == [[2]]


@pytest.mark.parametrize(
    ("texts", "manifest_at", "row", "reason"),
    [
        (["a +1 +2", "a +3 -4"], 1, 1, "deleted that was not added"),
        (["a +1 +2 +3", "a -2 -1", "a +4 +5 -2"], 2, 2, "deleted that was not added"),
        (["a +1 +2", "a +3 +2"], 1, 1, "added twice"),
        (["a +1 +2 +1", "a +3"], 0, 2, "added twice"),
    ],
)
def test_entry_that_does_not_follow_is_named_by_its_place(
    texts: list[str], manifest_at: int, row: int, reason: str
) -> None:
    for found, wanted in ((texts, None), (["b +1 +2", *texts], {b"a": None})):
        with pytest.raises(Unmatched, match=reason) as refusal:
            live(*found, wanted=wanted)
        place = refusal.value.manifest - (len(found) - len(texts)), refusal.value.row
        assert place == (manifest_at, row)


@pytest.mark.parametrize(
    ("count", "level", "says"),
    [
        (None, 0, 0),
        (None, 5, 0),
        (0, 0, 0),
        (0, 1, COUNTED),
        (1, 0, HOLDS_DELETIONS),
        (3, 5, HOLDS_DELETIONS),
    ],
)
def test_deletions_of_a_file_are_those_that_it_states(
    count: int | None, level: int, says: int
) -> None:
    (first,) = files("L0 a-m")
    file = replace(first, name="data-1.parquet", level=level, delete_row_count=count)
    columns = EntryColumns.of(decode_entries(encode_manifest([entry(file)]), "m"))

    assert columns.deletions.take(columns.rows_of(None)).tolist() == [says]
