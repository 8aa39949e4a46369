"""The rows that have expired, by the statistics of their files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.model.types import parse_type
from lakecore.table.file_reader.read_plan import RecordExpiry
from tests.tables import new_table, put

COLUMNS = {"id": "INT NOT NULL", "t": "INT"}


@pytest.mark.parametrize(
    ("then", "now", "found"),
    [
        ("INT", "INT", {0, 2}),
        ("INT", "BIGINT", {0, 2}),
        ("INT", "TIMESTAMP(3)", set()),
        ("STRING", "INT", set()),
        ("ARRAY<INT>", "INT", set()),
        ("INT", "ARRAY<INT>", set()),
        (None, "INT", set()),
    ],
)
def test_files_with_an_expired_row_are_those_whose_minimum_is_too_old(
    then: str | None, now: str, found: set[int]
) -> None:
    table = new_table(COLUMNS, write_only="true")
    for line in ("1 50 | 2 150", "3 150 | 4 _", "5 99", "6 100"):
        put(table, line)
    history, key = table.context.history, table.schema.field("id")
    files = [history.live_entries(history.snapshot(4))[at].file for at in range(4)]
    time = table.schema.field("t")
    later = replace(table.schema, id=1, fields=(key, replace(time, type=parse_type(now))))
    other = table.schema
    if then is None:
        other = replace(other, fields=(key,))
    elif then != "INT":
        other = replace(other, fields=(key, replace(time, type=parse_type(then))))
    expiry = RecordExpiry(column="t", cutoff_s=100)

    expected = frozenset(files[at].name for at in found)
    assert expiry.expired_files(files, later, {0: other, 1: later}) == expected
    newer = replace(files[0], name="newer", schema_id=1)
    if now == "INT":
        schemas = {0: other, 1: later}
        assert expiry.expired_files([*files, newer], later, schemas) == expected | {"newer"}
