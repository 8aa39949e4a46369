"""Changes of tables that Java Paimon wrote: of every snapshot those that Java's stream gave out.

The lines `changelog` of `expected.json` say what a streaming reader got of a snapshot that had seen
all before it. The changes of one key must come in the same order; keys have none.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.table.changes.starts import retained_changes
from lakecore.testing import apply_changes, assert_same_rows
from tests.golden.test_fixtures import FIXTURES, READ, bag_columns, columns_of, expected, in_bags
from tests.interop import values
from tests.interop.arrow_values import from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import polars as pl

    from lakecore.table.handle import Table
    from tests.interop.columns import Column
    from tests.interop.values import Row

Change = tuple[str, "Row"]

# A compaction brings all that was written into the changelog. (The changes of
# `pk_partial_update_sequence_group` do not add up: Java puts a key's first row into the changelog
# as a merge would leave it, and into the table as it came.)
COMPLETE = [
    *(f"pk_changelog_lookup/{table}" for table in ("table", "table-head")),
    *(f"pk_first_row/{table}" for table in ("table", "table-head")),
    "head_aggregation_remove_on_delete/table-head",
    "head_deletion_vectors_bitmap64/table-head",
    "head_sequence_group_remove/table-head",
]
# So does one to the last level, at the snapshots named.
COMPLETE_AT = {
    "pk_changelog_full_compaction/table": (5,),
    "pk_changelog_full_compaction/table-head": (5,),
    "head_sequence_descending/table-head": (3, 5),
}


def streamed(name: str) -> Iterator[tuple[str, dict[int, tuple[int, list[Any]]]]]:
    """What Java's stream gave out, by branch and snapshot; with the schema of then."""
    found: dict[str, dict[int, tuple[int, list[Any]]]] = {"main": {}}
    branch, schema = "main", 0
    for line in expected(name)["results"]:
        match line["line"]:
            case "step":
                branch = line.get("branch", "main")
                if branch not in found:  # it begins with snapshots of the main branch
                    own = line["snapshots"]
                    found[branch] = {key: each for key, each in found["main"].items() if key in own}
            case "snapshot":
                schema = line["schema"]
                # After a rollback the number is given again.
                found[branch].pop(line["snapshot"], None)
            case "changelog":
                found[branch][line["snapshot"]] = schema, line["rows"]
    yield from found.items()


def rows_of(frame: pl.DataFrame, columns: list[Column], names: Iterable[str]) -> list[Row]:
    return from_arrow(frame.select(names).to_arrow(), columns)


def shared_columns(table: Table, name: str, schema_id: int) -> tuple[list[int], list[str]]:
    """The columns of an older schema that are still there: their places then, their names today."""
    today = {field["id"]: field["name"] for field in fields_of(name, table.schema.id)}
    then = [field["id"] for field in fields_of(name, schema_id)]
    places = [place for place, each in enumerate(then) if each in today]
    return places, [today[then[place]] for place in places]


def fields_of(name: str, schema_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (FIXTURES / name / "schema" / f"schema-{schema_id}").read_text("utf-8")
    )["fields"]
    return found


def by_key(changes: Iterable[Change], columns: list[Column], keys: Iterable[str]) -> dict[str, Any]:
    """The changes of each key in order; without keys, those of each row."""
    at = [number for number, column in enumerate(columns) if column.name in keys]
    found: dict[str, list[Change]] = defaultdict(list)
    for kind, row in changes:
        found[repr([row[each] for each in at] if at else row)].append((kind, row))
    return dict(found)


@pytest.mark.parametrize("name", READ)
def test_changes_of_every_snapshot_are_those_java_streamed(name: str) -> None:
    for branch, snapshots in streamed(name):
        table = lc.open_table(FIXTURES / name, branch=branch)
        retained = retained_changes(table.context)
        assert retained is not None
        left = {each: found for each, found in snapshots.items() if each >= retained.earliest}
        ours = dict(table.stream(retained.earliest, "latest"))

        assert ours.keys() == left.keys(), branch
        for snapshot_id, (schema_id, java) in left.items():
            places, names = shared_columns(table, name, schema_id)
            known = {column.name: column for column in columns_of(name, table.schema.id)}
            columns, bags = [known[each] for each in names], bag_columns(table)
            cut = [[row[place] for place in places] for _, row in java]
            rows = in_bags(values.canonical_rows(cut, columns), columns, bags)
            theirs = list(zip([kind for kind, _ in java], rows, strict=True))
            keys = table.schema.primary_keys
            for frame in (ours[snapshot_id], table.changes(snapshot_id - 1, snapshot_id)):
                changes = frame.collect()
                found = in_bags(rows_of(changes, columns, names), columns, bags)
                own = zip(changes["_row_kind"].to_list(), found, strict=True)

                assert by_key(own, columns, keys) == by_key(theirs, columns, keys), snapshot_id
                later = [each for each in table.schema.names if each not in names]
                assert all(changes[each].null_count() == changes.height for each in later)


@pytest.mark.parametrize("name", [*COMPLETE, *COMPLETE_AT])
def test_changelog_replayed_from_nothing_is_the_table_at_every_snapshot(name: str) -> None:
    table = lc.open_table(FIXTURES / name)
    rows, checked = None, 0
    for snapshot_id, changes in table.stream(1, "latest"):
        rows = apply_changes(changes, table.schema.primary_keys, rows)
        if snapshot_id in COMPLETE_AT.get(name, (snapshot_id,)):
            assert_same_rows(rows, table.to_arrow(snapshot_id=snapshot_id))
            checked += 1

    assert checked


def test_changelog_of_expired_snapshots_is_read_from_what_was_kept() -> None:
    table = lc.open_table(FIXTURES / "tag_branch_consumer_statistics/table")
    assert table.context.history.snapshot_ids() == (3, 4)

    kept: Mapping[int, list[Any]] = {
        number: frame.collect().rows() for number, frame in table.stream(1, "latest")
    }

    assert kept == {1: [("+I", 1, "a", 1)], 2: [("+U", 1, "b", 2)], 4: [("+I", 3, "c", 3)]}
    assert table.changes(end=2).collect().rows() == [*kept[1], *kept[2]]


def test_consumer_of_java_goes_on_where_it_was(tmp_path: Path) -> None:
    path = shutil.copytree(FIXTURES / "tag_branch_consumer_statistics/table", tmp_path / "table")
    table = lc.open_table(path)

    (consumer,) = table.consumers()
    assert (consumer.consumer_id, consumer.next_snapshot) == ("reader", 3)
    stream = table.stream(until="latest", consumer_id="reader")
    assert [(number, frame.collect().rows()) for number, frame in stream] == [
        (4, [("+I", 3, "c", 3)])
    ]


def test_changes_that_have_expired_are_not_found_and_the_earliest_named() -> None:
    table = lc.open_table(FIXTURES / "pk_dedup_delete_avro/table")

    with pytest.raises(lc.NotFound, match=r"expired.* snapshot_id=2 earliest=4 latest=4"):
        table.stream(2, "latest")
    with pytest.raises(lc.NotFound, match=r"expired.* earliest=4"):
        table.changes()
    assert table.changes(3).collect().height == 1
