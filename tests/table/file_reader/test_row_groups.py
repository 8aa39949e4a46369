"""What is known of the row groups and the columns of a file without reading it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.model.types import parse_type
from lakecore.rows.evolution import ColumnMapping
from lakecore.table.file_reader.row_groups import Places, bounded_row_groups
from lakecore.table.reads.source import TableSource
from tests.tables import new_table, put

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "w": "STRING", "a": "ARRAY<INT>"}


def test_bounds_that_do_not_fit_the_column_are_unknown() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "STRING"})
    put(table, "1 a | 7 _")
    context = table.context
    (entry,) = context.history.live_entries(context.history.snapshot(1))
    path = context.layout.data_file("", 0, entry.file)
    key, value = table.schema.fields
    # As if the schema of the file said something else than the file.
    wrong = replace(value, type=parse_type("INT"))
    columns = {
        "id": ColumnMapping(read=key, stored=key, changed=False),
        "v": ColumnMapping(read=wrong, stored=wrong, changed=False),
    }

    found = bounded_row_groups(context.store, path, columns)
    assert found is not None
    assert (found.low.to_pylist(), found.high.to_pylist(), found.nulls.to_pylist()) == (
        [{"id": 1, "v": None}],
        [{"id": 7, "v": None}],
        [{"id": 0, "v": 1}],
    )


@pytest.mark.parametrize("nulls", [True, False])
def test_columns_whose_nulls_are_known(*, nulls: bool) -> None:
    table = new_table(COLUMNS)
    table.write([{"id": 1, "v": None, "w": "x", "a": None}, {"id": 2, "v": None, "w": None}])
    context = table.context
    snapshot = context.history.snapshot(1)
    source = TableSource(context=context, snapshot=snapshot, table_schema=table.schema)
    (split,) = source.plan().splits
    (file,) = split.files
    key, *others = table.schema.fields
    added = replace(others[0], id=9, name="added")
    mappings = [
        ColumnMapping(read=key, stored=key, changed=False),
        *(ColumnMapping(read=field, stored=field, changed=False) for field in others),
        ColumnMapping(read=added, stored=None, changed=False),
    ]
    places = Places(
        columns=frozenset({"id", "v", "w", "a", "added"}),
        split=split,
        numbers={file.name: 0},
        nulls=nulls,
    )

    known = places.known_nulls(file, table.schema, mappings)
    if nulls:
        assert known == {"id": False, "v": True, "added": True}
    else:
        assert known == dict.fromkeys(("id", "v", "w", "a", "added"), False)
