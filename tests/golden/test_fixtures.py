"""Tables that Java Paimon wrote: lakecore reads at every snapshot the rows that Java read.

`fixtures/NAME/table` is of Paimon 0.9 and `table-head` of 2.1. The `expected` file beside each says
what that Java did, and what it saw after each step. Types and values come to their written form by
the interop suite's own reading of them, so that lakecore does not judge itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import values
from tests.interop.arrow_values import arrow_type, from_arrow
from tests.interop.columns import columns_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.table.handle import Table
    from tests.interop.columns import Column
    from tests.interop.values import Row

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = {"table": "expected.json", "table-head": "expected-head.json"}

READ_FROM_BOTH = (
    "append_all_types_orc",
    "append_all_types_parquet",
    "append_deletion_vectors",
    "append_fixed_bucket",
    "file_indexes",
    "pk_changelog_full_compaction",
    "pk_changelog_input_sequence",
    "pk_changelog_lookup",
    "pk_aggregation",
    "pk_dedup_delete_avro",
    "pk_deletion_vectors",
    "pk_dynamic_bucket",
    "pk_first_row",
    "pk_partial_update_sequence_group",
    "schema_evolution",
    "tag_branch_consumer_statistics",
)
READ_FROM_HEAD = (
    "head_aggregation_remove_on_delete",
    "head_append_dv_bitmap64",
    "head_bucket_mod",
    "head_defaults_orc_parquet",
    "head_deletion_vectors_bitmap64",
    "head_file_indexes",
    "head_file_naming",
    "head_row_tracking",
    "head_sequence_descending",
    "head_sequence_group_remove",
    "head_thin_mode_dense_stats",
)
READ = [
    *(f"{name}/{table}" for name in READ_FROM_BOTH for table in EXPECTED),
    *(f"{name}/table-head" for name in READ_FROM_HEAD),
]

BAGS = {"collect", "nested_update"}
TRAVEL_OPTIONS = {"snapshot_id": "scan.snapshot-id", "tag": "scan.tag-name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What Java saw of one snapshot: its lines `snapshot`, `files` and `read`."""

    schema_id: int
    names: list[str]
    rows: list[Row]
    files: list[dict[str, Any]]


@dataclass(slots=True)
class Branch:
    """The live states of a branch, by snapshot id and by tag."""

    snapshots: dict[int, State] = field(default_factory=dict)
    tags: dict[str, State] = field(default_factory=dict)


def replay(lines: Sequence[Mapping[str, Any]]) -> dict[str, Branch]:
    """The branches as they are after the last step."""
    branches = {"main": Branch()}
    branch = "main"
    schema_id, files = 0, []
    for line in lines:
        match line["line"]:
            case "step":
                branch = line.get("branch", "main")
                if branch not in branches:  # made from the one tag that there is
                    ((tag, kept),) = branches["main"].tags.items()
                    branches[branch] = Branch({line["snapshots"][0]: kept}, {tag: kept})
                _keep(branches[branch], line)
            case "snapshot":
                schema_id = line["schema"]
            case "files":
                files = line["data"]
            case "read":
                branches[branch].snapshots[line["snapshot"]] = State(
                    schema_id=schema_id, names=line["columns"], rows=line["rows"], files=files
                )
    return branches


def _keep(branch: Branch, step: Mapping[str, Any]) -> None:
    """Tags and rollbacks: the tags there are, of the states that were there before."""
    tags: dict[str, int] = step.get("tags", {})
    branch.tags = {
        name: branch.tags.get(name) or branch.snapshots[snapshot] for name, snapshot in tags.items()
    }
    live = step["snapshots"]
    branch.snapshots = {key: state for key, state in branch.snapshots.items() if key in live}


def expected(name: str) -> dict[str, Any]:
    fixture, table = name.split("/")
    content: dict[str, Any] = json.loads((FIXTURES / fixture / EXPECTED[table]).read_text("utf-8"))
    return content


def states(name: str) -> Iterator[tuple[str, dict[str, Any], State]]:
    """Every live state of a table: its branch, what to give `to_arrow`, what Java saw."""
    for branch, content in replay(expected(name)["results"]).items():
        for snapshot_id, state in content.snapshots.items():
            yield branch, {"snapshot_id": snapshot_id}, state
        for tag, state in content.tags.items():
            yield branch, {"tag": tag}, state
        yield branch, {}, content.snapshots[max(content.snapshots)]


def columns_of(name: str, schema_id: int) -> list[Column]:
    """The columns, as the schema file says, read without lakecore."""
    file = FIXTURES / name / "schema" / f"schema-{schema_id}"
    return list(columns_from_json(json.loads(file.read_text("utf-8"))["fields"]))


def test_every_fixture_is_read_or_refused() -> None:
    there = {
        f"{file.parent.parent.name}/{file.parent.name}" for file in FIXTURES.glob("*/*/schema")
    }

    assert sorted(there) == sorted(READ)


@pytest.mark.parametrize("name", READ)
def test_live_snapshots_and_tags_are_those_of_java(name: str) -> None:
    for branch, content in replay(expected(name)["results"]).items():
        folder = FIXTURES / name
        if branch != "main":
            folder = folder / "branch" / f"branch-{branch}"

        assert {file.name for file in folder.glob("snapshot/snapshot-*")} == {
            f"snapshot-{snapshot_id}" for snapshot_id in content.snapshots
        }
        assert {file.name for file in folder.glob("tag/tag-*")} == {
            f"tag-{tag}" for tag in content.tags
        }


def bag_columns(table: Table) -> frozenset[str]:
    """The columns whose function promises no order: what it gathers comes from hash tables."""
    functions = table.options.fields_aggregate_function
    return frozenset(name for name, function in functions.items() if function in BAGS)


def in_bags(rows: list[Row], columns: Sequence[Column], bags: frozenset[str]) -> list[Row]:
    """The rows with the values of these columns in one order."""
    return [
        [
            sorted(value, key=repr) if column.name in bags and isinstance(value, list) else value
            for value, column in zip(row, columns, strict=True)
        ]
        for row in rows
    ]


@pytest.mark.parametrize("name", READ)
def test_rows_are_those_java_read(name: str) -> None:
    for branch, when, state in states(name):
        columns = columns_of(name, state.schema_id)
        source = lc.open_table(FIXTURES / name, branch=branch)
        bags = bag_columns(source)
        rows = in_bags(values.canonical_rows(state.rows, columns), columns, bags)

        table = source.to_arrow(**when)
        read = in_bags(from_arrow(table, columns), columns, bags)

        assert table.column_names == state.names, (branch, when)
        assert values.difference(read, rows, columns) == [], (branch, when)
        assert values.sort_rows(read) == values.sort_rows(rows), (branch, when)
        assert table.schema.types == [arrow_type(column.type) for column in columns], (branch, when)


@pytest.mark.parametrize("name", READ)
def test_files_are_those_java_saw(name: str) -> None:
    java = ["bucket", "level", "rows", "deletes", "schema", "minSeq", "maxSeq", "source", "format"]
    ours = [
        "bucket",
        "level",
        "record_count",
        "deleteRowCount",
        "schema_id",
        "min_sequence_number",
        "max_sequence_number",
        "file_source",
        "file_format",
    ]
    for branch, when, state in states(name):
        travel = {TRAVEL_OPTIONS[key]: str(value) for key, value in when.items()}
        table = lc.open_table(FIXTURES / name, branch=branch).copy(travel)

        files = table.inspect.files()

        assert sorted(files.select(ours).rows()) == sorted(
            tuple(file[key] for key in java) for file in state.files
        ), (branch, when)


@pytest.mark.parametrize("name", READ)
def test_schema_goes_through_a_table_of_our_own(name: str, tmp_path: Path) -> None:
    schema = lc.open_table(FIXTURES / name).schema

    lc.open_table(
        tmp_path / "t",
        create=True,
        schema={column.name: str(column.type) for column in schema.fields},
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        options=schema.options,
    )

    made = json.loads((tmp_path / "t" / "schema" / "schema-0").read_text("utf-8"))
    theirs = json.loads((FIXTURES / name / "schema" / f"schema-{schema.id}").read_text("utf-8"))
    assert columns_from_json(made["fields"]) == columns_from_json(theirs["fields"])
    assert [made[key] for key in ("primaryKeys", "partitionKeys", "options")] == [
        theirs[key] for key in ("primaryKeys", "partitionKeys", "options")
    ]
    if schema.id == 0:
        assert made["fields"] == theirs["fields"]
