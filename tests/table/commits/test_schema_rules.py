"""Whether what was written under one schema may be committed under another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import CommitConflict
from lakecore.model.types import parse_type
from lakecore.table.commits.commit_checks import same_rules
from lakecore.table.context import with_schema
from tests.tables import held, new_table, put, reopened, rows, with_options

IGNORING = {"lakecore__ignore_options": "future.*"}


def test_option_that_nobody_knows_stands_against_no_commit() -> None:
    table = new_table(**IGNORING, future__thing="1")  # type: ignore[arg-type]
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a"))
        messages = writer.prepare_commit()
    with_options(table, future__thing="2", snapshot__num_retained__max="30")
    table.commit(messages)

    assert held(reopened(table)) == "1 a"


def test_option_that_nobody_knows_stands_against_no_compaction() -> None:
    table = new_table(**IGNORING, future__thing="1", write_only="true")  # type: ignore[arg-type]
    put(table, "1 a")
    put(table, "1 b")
    with_options(table, future__thing="2")

    assert table.compact(full=True).snapshot_ids == (3,)
    assert held(reopened(table)) == "1 b"


def test_option_of_how_rows_lie_stands_against_the_first_rows() -> None:
    table = new_table(bucket="1")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a"))
        messages = writer.prepare_commit()
    with_options(table, sequence__field="v")

    with pytest.raises(CommitConflict):
        table.commit(messages)


def test_files_of_a_compaction_fit_columns_of_the_same_types() -> None:
    context = new_table().context
    key, value = context.schema.fields
    for fields, fits in (
        ((key, replace(value, name="w")), True),
        ((key,), True),
        ((key, value, replace(value, id=2, name="w")), True),
        ((key, replace(value, type=parse_type("BYTES"))), False),
    ):
        after = with_schema(context, replace(context.schema, id=1, fields=fields))
        assert same_rules(context, after) is fits
