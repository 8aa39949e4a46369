"""Scenarios with compactions that Java Paimon played, played by lakecore on tables of its own.

Writes compact as Java's did, and compactions in full are asked for where the scenario does. The
snapshots are of the same kinds, and read and stream as Java's. Their files are as many, in the same
levels, of the same rows and sequence numbers, unless sizes decide, which are each engine's own.

What differs, and why (docs/decisions, 0013, 0017 and 0200):

- Java puts the only row of a key into a lookup changelog as the merge function would leave it,
  which is not what it reads: a sequence group whose sequence is null is null there.
- Java 2.1 counts a -U twice that begins a merge.
- Java folds a -D and a later row of one write without the older rows, and loses the removal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.golden.test_changelogs import by_key, rows_of
from tests.golden.test_fixtures import FIXTURES, bag_columns, in_bags
from tests.golden.test_replays import Scenario, play
from tests.interop import values
from tests.interop.arrow_values import from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.table.handle import Table

OF_BOTH = (
    "pk_aggregation",
    "pk_changelog_full_compaction",
    "pk_changelog_input_sequence",
    "pk_changelog_lookup",
    "pk_dynamic_bucket",
    "pk_first_row",
    "pk_partial_update_sequence_group",
)
OF_HEAD = (
    "head_aggregation_remove_on_delete",
    "head_sequence_descending",
    "head_sequence_group_remove",
    "head_thin_mode_dense_stats",
)
PLAYED = [
    *(f"{name}/{file}.json" for name in OF_BOTH for file in ("expected", "expected-head")),
    *(f"{name}/expected-head.json" for name in OF_HEAD),
]
BY_SIZE = (
    "pk_changelog_lookup",
    "pk_partial_update_sequence_group",
    "head_aggregation_remove_on_delete",
)
"""Where sizes of two runs decide whether looking up compacts both, or moves one of them down."""
COUNTED_BY_STREAMS = "full-compaction.delta-commits"
"""Java's batch writer does not count commits, as its streaming sinks do; lakecore's does."""

AS_MERGED, AS_READ = [2, *[None] * 6, "e2"], [2, 1, "x", None, 1, 1, None, "e2"]
NOT_REMOVED, REMOVED = [1, 10, "a,c,z", [["x", 1], ["y", 2]]], [1, 4, "z", None]
COUNTED_TWICE, COUNTED_ONCE = 35, 32
DIFFERENT: dict[str, dict[Any, Any]] = {
    "pk_partial_update_sequence_group/expected.json": {2: (AS_MERGED, AS_READ)},
    "pk_partial_update_sequence_group/expected-head.json": {2: (AS_MERGED, AS_READ)},
    "head_aggregation_remove_on_delete/expected-head.json": dict.fromkeys(
        (5, 6, 7), (NOT_REMOVED, REMOVED)
    ),
}


def created(scenario: Scenario, path: Path) -> Table:
    """A table of our own."""
    schema = scenario.schema
    options = {key: text for key, text in schema["options"].items() if key != COUNTED_BY_STREAMS}
    return lc.open_table(
        path,
        create=True,
        schema={column.name: column.type.text for column in scenario.columns},
        primary_keys=schema["primaryKey"],
        partition_keys=schema["partitionKeys"],
        options=options,
    )


def steps_of(name: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each step, and the lines of what Java saw after it."""
    content = json.loads((FIXTURES / name).read_text("utf-8"))
    lines: list[list[dict[str, Any]]] = []
    for line in content["results"]:
        if line["line"] == "step":
            lines.append([])
        lines[-1].append(line)
    yield from zip(content["scenario"]["steps"], lines, strict=True)


def corrected(name: str, line: dict[str, Any]) -> list[Any]:
    """The rows of a line, without what Java gets wrong."""
    rows = [row for _, row in line["rows"]] if line["line"] == "changelog" else line["rows"]
    wrong, right = DIFFERENT.get(name, {}).get(line["snapshot"], (None, None))
    rows = [right if row == wrong else row for row in rows]
    if name == "pk_partial_update_sequence_group/expected-head.json":
        rows = [[COUNTED_ONCE if each == COUNTED_TWICE else each for each in row] for row in rows]
    return list(rows)


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.sampled(3)
def test_compactions_make_the_snapshots_that_java_made(name: str, tmp_path: Path) -> None:
    scenario = Scenario(name)
    table = created(scenario, tmp_path / "t")
    history = table.context.history
    for step, lines in steps_of(name):
        first = max(history.snapshot_ids(), default=0) + 1
        if step["op"] == "write":
            play(table, step, scenario.columns)
        else:
            table.compact(full=True)
        own = [number for number in history.snapshot_ids() if number >= first]
        java = {line["snapshot"]: line["kind"] for line in lines if line["line"] == "snapshot"}
        kinds = [history.snapshot(number).commit_kind for number in own]
        if step["op"] == "write":
            assert kinds == list(java.values())
        else:
            # All may lie in the last level already, of one or of both.
            assert {*kinds, *java.values()} <= {"COMPACT"}
        numbers = dict(zip(java, own, strict=False))
        for line in lines:
            if line["line"] == "files" and not name.startswith(BY_SIZE):
                assert_files(table, numbers.get(line["snapshot"]), line)
            if line["line"] == "read":
                number = numbers.get(line["snapshot"], history.snapshot_ids()[-1])
                assert_reads(table, number, corrected(name, line), scenario)
            if line["line"] == "changelog" and table.options.changelog_producer != "none":
                told = corrected(name, line)
                kinds_told = [kind for kind, _ in line["rows"]]
                assert_tells(table, numbers[line["snapshot"]], kinds_told, told, scenario)
        for number in own[len(java) :]:
            assert not history.snapshot(number).changelog_record_count


def assert_files(table: Table, number: int | None, line: dict[str, Any]) -> None:
    """The files of a snapshot are as many, in the same levels, of the same rows."""
    if number is None:
        return
    history = table.context.history
    snapshot = history.snapshot(number)
    ours = sorted(
        (
            entry.bucket,
            entry.file.level,
            entry.file.row_count,
            entry.file.delete_row_count,
            entry.file.sequence_min,
            entry.file.sequence_max,
        )
        for entry in history.live_entries(snapshot)
    )
    names = ("bucket", "level", "rows", "deletes", "minSeq", "maxSeq")
    theirs = sorted(tuple(each[name] for name in names) for each in line["data"])
    changelog = history.entries(history.manifest_list(snapshot.changelog_manifest_list))

    assert ours == theirs, number
    assert len(changelog) == len(line["changelog"]), number


def assert_reads(table: Table, number: int, rows: list[Any], scenario: Scenario) -> None:
    columns, bags = scenario.columns, bag_columns(table)
    theirs = in_bags(values.canonical_rows(rows, columns), columns, bags)
    ours = in_bags(from_arrow(table.to_arrow(snapshot_id=number), columns), columns, bags)

    assert values.sort_rows(ours) == values.sort_rows(theirs), number


def assert_tells(
    table: Table, number: int, kinds: list[str], rows: list[Any], scenario: Scenario
) -> None:
    columns, bags = scenario.columns, bag_columns(table)
    theirs = zip(kinds, in_bags(values.canonical_rows(rows, columns), columns, bags), strict=True)
    changes = table.changes(number - 1, number).collect()
    found = in_bags(rows_of(changes, columns, table.schema.names), columns, bags)
    ours = zip(changes["_row_kind"].to_list(), found, strict=True)

    keys = table.schema.primary_keys
    assert by_key(ours, columns, keys) == by_key(theirs, columns, keys), number
