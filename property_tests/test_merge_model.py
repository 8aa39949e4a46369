"""The model of the merge engines gives the rows that Java Paimon gave.

The scenarios of the golden tables are played on the model, batch by batch: a write is merged to a
run, a compaction merges the runs whose files Java's compaction removed. At each snapshot the model
must read what Java read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.model.validation import create_schema
from lakecore.testing.merging import Rules, Version, flush, merge, versions_of
from tests.golden.test_fixtures import FIXTURES, columns_of, expected
from tests.interop import values
from tests.interop.arrow_values import from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.interop.columns import Column
    from tests.interop.values import Row

SCENARIOS = [
    "head_aggregation_remove_on_delete/table-head",
    "head_sequence_descending/table-head",
    "head_sequence_group_remove/table-head",
    "pk_aggregation/table",
    "pk_aggregation/table-head",
    "pk_changelog_input_sequence/table",
    "pk_first_row/table",
    "pk_first_row/table-head",
    "pk_partial_update_sequence_group/table",
    "pk_partial_update_sequence_group/table-head",
]
Name: TypeAlias = "tuple[int, int, int]"
LEVEL_MAX = 5
NEVER = (1 << 31, "", 0, 0)
COUNTED_TWICE = {  # a merge that begins with a retract: Java 2.1 begins from its values
    "pk_partial_update_sequence_group/table-head": (9, "c", 35, 32)
}


@dataclass(frozen=True)
class Run:
    """Rows of a file, and what names the file: its level, its first and its last number."""

    rows: list[Version]
    name: Name

    @property
    def level(self) -> int:
        return self.name[0]


@dataclass
class Tree:
    """The runs of a bucket, oldest first. Each is one file, as Java's are in these scenarios."""

    rules: Rules
    runs: list[Run] = field(default_factory=list)

    def write(self, rows: Sequence[Version], files: set[Name]) -> None:
        """Merge a batch to a run of level 0."""
        (name,) = files - {run.name for run in self.runs}
        start = max((run.name[2] + 1 for run in self.runs), default=0)
        numbered = [replace(row, number=start + index) for index, row in enumerate(rows)]
        self.runs.append(Run(merge(numbered, self.rules, keep_deletions=True), name))

    def compact(self, files: set[Name]) -> None:
        """Merge the runs whose files are gone into the one that came."""
        kept = [run for run in self.runs if run.name in files]
        gone = [run for run in self.runs if run.name not in files]
        came = files - {run.name for run in kept}
        if came:
            (name,) = came
            keeps = name[0] < LEVEL_MAX
            rows = merge(
                (row for run in gone for row in run.rows), self.rules, keep_deletions=keeps
            )
            kept.insert(0, Run(rows, name))
        self.runs = kept

    def read(self) -> list[Version]:
        """The merged rows; of first-row, those that were compacted."""
        levels = 1 if self.rules.engine == "first-row" else 0
        return merge(
            (row for run in self.runs if run.level >= levels for row in run.rows), self.rules
        )


def played(name: str) -> Iterator[tuple[int, list[Row], list[Row], list[Column]]]:
    """Of each snapshot: its id, the rows of the model, the rows Java read."""
    schema = lc.open_table(FIXTURES / name).schema
    columns = columns_of(name, 0)
    content = expected(name)
    tree = Tree(Rules.of(schema))
    steps = content["scenario"]["steps"]
    step: dict[str, Any] = {}
    kind = ""
    for line in content["results"]:
        match line["line"]:
            case "step":
                step = steps[line["step"]]
            case "snapshot":
                kind = line["kind"]
            case "files":
                files = {(file["level"], file["minSeq"], file["maxSeq"]) for file in line["data"]}
                if kind == "APPEND":
                    rows = values.canonical_rows([row for _, row in step["rows"]], columns)
                    kinds = [kind for kind, _ in step["rows"]]
                    given = versions_of(to_arrow(rows, columns, schema.arrow))
                    kinded = zip(given, kinds, strict=True)
                    tree.write([replace(row, kind=kind) for row, kind in kinded], files)
                else:
                    tree.compact(files)
            case "read":
                read = [dict(row.values) for row in tree.read()]
                ours = from_arrow(pa.Table.from_pylist(read, schema.arrow), columns)
                yield line["snapshot"], ours, values.canonical_rows(line["rows"], columns), columns


@pytest.mark.parametrize("name", SCENARIOS)
def test_model_reads_what_java_read(name: str) -> None:
    checked = 0
    for snapshot_id, ours, theirs, columns in played(name):
        since, column, wrong, right = COUNTED_TWICE.get(name, NEVER)
        if snapshot_id >= since:
            index = [each.name for each in columns].index(column)
            (row,) = (row for row in theirs if row[index] == wrong)
            row[index] = right

        assert values.difference(_unordered(ours), _unordered(theirs), columns) == [], snapshot_id
        checked += 1
    assert checked


def _unordered(rows: Sequence[Row]) -> list[Row]:
    """The rows with their arrays sorted: Java's sets and maps come in any order."""
    return [[sorted(v, key=json.dumps) if isinstance(v, list) else v for v in row] for row in rows]


def test_only_values_that_a_function_takes_back_keep_rows_apart() -> None:
    # Java 1.4 stores one row as well, and a row that arrives late is then the first one.
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "sequence.field": "s",
        "fields.a.aggregate-function": "first_value",
        "fields.a.ignore-retract": "true",
    }
    columns = {"k": "INT NOT NULL", "s": "INT", "a": "STRING"}
    rules = Rules.of(create_schema(columns, primary_keys=["k"], options=options, now_ms=0))
    rows = [
        Version(values={"k": 1, "s": s, "a": a}, kind=kind, number=at)
        for at, (kind, s, a) in enumerate([("+I", 1, "a"), ("-U", 2, "b"), ("+U", 9, "c")])
    ]

    written = flush(rows, rules)
    late = Version(values={"k": 1, "s": 5, "a": "late"}, number=3)

    assert [row.values for row in written] == [{"k": 1, "s": 9, "a": "a"}]
    assert merge([*written, late], rules)[0].values == {"k": 1, "s": 9, "a": "late"}
