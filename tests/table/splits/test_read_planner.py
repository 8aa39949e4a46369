"""The decision of how rows are read, as a table of cases; no case touches storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lakecore.format.binary_row import serialize_row
from lakecore.format.layout import Layout
from lakecore.io.files.file_format import RowGroup
from lakecore.memory import Budget
from lakecore.merge.spec import merge_spec
from lakecore.model.evolution import evolve
from lakecore.model.files import DataFile, FileSource, IndexFile, Split, VectorRange
from lakecore.model.rows import ROW_ID_FIELD
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.model.types import parse_type
from lakecore.model.validation import create_schema
from lakecore.options import parse_options
from lakecore.plan.predicate import from_polars
from lakecore.table.file_reader.read_plan import ReadPlan
from lakecore.table.reads.explain import path_text
from lakecore.table.sections.windows import Windows
from lakecore.table.splits.read_planner import (
    Decision,
    EachSplit,
    EngineScan,
    Examined,
    FileFacts,
    FileScan,
    JoinedFiles,
    LateMaterialisation,
    PolarsChunks,
    Reader,
    ReadPath,
    Reason,
    decide,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.schema import TableSchema

COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING"}
ROWS = 100_000
NEWER_RUNS = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A read of one raw file, or of a section of several runs, and how it is decided."""

    path: type[object]
    reason: Reason
    by: Reader = Reader.POLARS
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)
    options: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False
    keyless: bool = False
    """The files of a split of an append table hold columns of the same rows."""
    old: Mapping[str, Any] = field(default_factory=dict)
    """Of the data file of the older run, or of a raw split."""
    new: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    where: pl.Expr | None = None
    vectors: bool = False
    selected: bool = False
    budget_bytes: int = 1 << 30
    facts: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] = field(default_factory=dict)
    few_row_groups: bool = False
    text: str = ""
    """Of the path; checked if there is one."""


RAW: dict[str, Any] = {"raw": True}
ENGINE: dict[str, Any] = {"raw": True, "by": Reader.ENGINE}
COMPACTED: dict[str, Any] = {"level": 5}
R = Reason
CASES = {
    "raw, by an engine": Case(path=EngineScan, reason=R.NO_MERGE, **ENGINE, text="engine scan"),
    "raw": Case(path=PolarsChunks, reason=R.NO_MERGE, **RAW, text="decoded by Polars"),
    "raw with vectors": Case(path=PolarsChunks, reason=R.NO_MERGE, **RAW, vectors=True),
    "section": Case(
        path=LateMaterialisation, reason=R.KEYS_DECIDE, text="late materialisation"
    ),
    "section over the last level": Case(
        path=LateMaterialisation,
        reason=R.NEWER_KEYS_DECIDE,
        old=COMPACTED,
        text="late materialisation with key flags",
    ),
    "first row": Case(
        path=LateMaterialisation,
        reason=R.KEYS_DECIDE,
        old=COMPACTED,
        options={"merge-engine": "first-row"},
    ),
    "section with vectors": Case(
        path=LateMaterialisation, reason=R.KEYS_DECIDE, old=COMPACTED, vectors=True
    ),
    "section, by an engine": Case(
        path=EachSplit, reason=R.MERGED, by=Reader.ENGINE, text="each split"
    ),
    "section with bits, by an engine": Case(
        path=EngineScan, reason=R.NO_MERGE, by=Reader.MARKING, text="engine scan"
    ),
    "section that folds, by an engine": Case(
        path=EachSplit,
        reason=R.FOLDS,
        by=Reader.MARKING,
        options={"merge-engine": "partial-update"},
    ),
    "section of many rows with bits, by an engine": Case(
        path=EachSplit, reason=R.VECTORS, by=Reader.MARKING, budget_bytes=ROWS
    ),
    "columns of rows in several files, by an engine": Case(
        path=EachSplit, reason=R.COLUMN_FILES, by=Reader.MARKING, keyless=True
    ),
    "vectors, by an engine": Case(path=EngineScan, reason=R.NO_MERGE, **ENGINE, vectors=True),
    "vectors of many rows, by an engine": Case(
        path=EachSplit, reason=R.VECTORS, **ENGINE, vectors=True, budget_bytes=ROWS
    ),
    "rows selected by an index, by an engine": Case(
        path=EachSplit, reason=R.INDEXED, **ENGINE, selected=True
    ),
    "rows selected by an index": Case(path=FileScan, reason=R.INDEXED, **RAW, selected=True),
    "few row groups, by an engine": Case(
        path=EachSplit, reason=R.FEW_ROW_GROUPS, **ENGINE, few_row_groups=True
    ),
    "few rows, by an engine": Case(
        path=EngineScan, reason=R.NO_MERGE, **ENGINE, old={"row_count": 1}
    ),
    "own reader": Case(
        path=FileScan, reason=R.OWN_READER, **RAW, by=Reader.OWN, text="file scan"
    ),
    "own reader of a section": Case(
        path=Windows, reason=R.OWN_READER, by=Reader.OWN, text="windows"
    ),
    "few rows": Case(
        path=Windows, reason=R.FEW_ROWS, old={"row_count": 9_000}, new={"row_count": 9_000}
    ),
    "system columns": Case(path=Windows, reason=R.SYSTEM_COLUMNS, plan={"system_columns": True}),
    "large rows": Case(
        path=Windows,
        reason=R.LARGE_ROWS,
        old={"size_bytes": ROWS << 25},
        text="windows, large values read after the merge",
    ),
    "references": Case(path=FileScan, reason=R.REFERENCES, **RAW, plan={"follows": {"v"}}),
    "row ids": Case(
        path=FileScan,
        reason=R.SYSTEM_COLUMNS,
        **RAW,
        columns={**COLUMNS, "_ROW_ID": "BIGINT"},
    ),
    "row ids, by an engine": Case(
        path=EachSplit,
        reason=R.SYSTEM_COLUMNS,
        **ENGINE,
        columns={**COLUMNS, "_ROW_ID": "BIGINT"},
    ),
    "columns of rows in several files": Case(
        path=JoinedFiles,
        reason=R.COLUMN_FILES,
        keyless=True,
        text="files joined by row id",
    ),
    "no column": Case(path=Windows, reason=R.COLUMNS, plan={"columns": ()}),
    "a column twice": Case(path=FileScan, reason=R.COLUMNS, **RAW, plan={"columns": ("v", "v")}),
    "condition on a key": Case(path=Windows, reason=R.CONDITION, where=pl.col("id") == 1),
    "condition on a value of a section": Case(
        path=LateMaterialisation, reason=R.KEYS_DECIDE, where=pl.col("v") == "a"
    ),
    "condition on a raw value": Case(
        path=FileScan, reason=R.CONDITION, **RAW, where=pl.col("v") == "a"
    ),
    "condition, by an engine": Case(
        path=EngineScan, reason=R.NO_MERGE, **ENGINE, where=pl.col("v") == "a"
    ),
    "partial update": Case(
        path=Windows, reason=R.FOLDS, options={"merge-engine": "partial-update"}
    ),
    "ORC": Case(path=Windows, reason=R.FORMAT, new={"name": "b.orc"}),
    "ORC, by an engine": Case(path=EachSplit, reason=R.FORMAT, **ENGINE, old={"name": "a.orc"}),
    "partial files": Case(path=Windows, reason=R.PARTIAL_FILES, new={"write_columns": ("v",)}),
    "two schemas": Case(
        path=Windows,
        reason=R.SCHEMAS,
        change=SchemaChange.add_column("w", "INT"),
        new={"schema_id": 1},
    ),
    "new column": Case(
        path=FileScan, reason=R.COLUMN_CHANGED, **RAW, change=SchemaChange.add_column("w", "INT")
    ),
    "renamed column": Case(
        path=Windows, reason=R.COLUMN_CHANGED, change=SchemaChange.rename_column("v", "w")
    ),
    "changed type": Case(
        path=Windows,
        reason=R.COLUMN_CHANGED,
        change=SchemaChange.update_column_type("v", "INT"),
        text="windows, casts after the merge",
    ),
    "changed type that is not read": Case(
        path=LateMaterialisation,
        reason=R.KEYS_DECIDE,
        change=SchemaChange.update_column_type("v", "INT"),
        plan={"columns": ("id",)},
    ),
    "nested": Case(path=Windows, reason=R.COLUMN_TYPE, columns={**COLUMNS, "v": "ARRAY<INT>"}),
    "nanoseconds": Case(
        path=FileScan, reason=R.COLUMN_TYPE, **RAW, columns={**COLUMNS, "v": "TIMESTAMP(9)"}
    ),
    "nanoseconds decide": Case(
        path=Windows,
        reason=R.COLUMN_TYPE,
        columns={**COLUMNS, "n": "TIMESTAMP(9)"},
        options={"sequence.field": "n"},
        plan={"columns": ("id",)},
    ),
    "old files with a nested column": Case(
        path=Windows,
        reason=R.OLD_FILES,
        columns={**COLUMNS, "n": "ARRAY<INT>"},
        plan={"columns": ("id", "v")},
        old={"file_source": None},
    ),
    "remote": Case(path=Windows, reason=R.NOT_LOCAL, facts={"path": None}),
    "remote, by an engine": Case(
        path=EachSplit, reason=R.NOT_LOCAL, **ENGINE, facts={"path": None}
    ),
    "migrated": Case(
        path=FileScan, reason=R.MISSING_COLUMNS, **RAW, facts={"columns": frozenset({"id"})}
    ),
    "migrated, whole": Case(
        path=PolarsChunks, reason=R.NO_MERGE, **RAW, facts={"columns": frozenset(COLUMNS)}
    ),
    "footer of another file": Case(path=Windows, reason=R.ROW_COUNT, group={"row_count": 7}),
    "LZ4": Case(path=Windows, reason=R.CODEC, group={"codecs": frozenset({"LZ4"})}),
    "LZ4, by an engine": Case(
        path=EngineScan, reason=R.NO_MERGE, **ENGINE, group={"codecs": frozenset({"LZ4"})}
    ),
    "large row groups": Case(
        path=Windows, reason=R.LARGE_ROW_GROUPS, group={"decoded_bytes": 1 << 25}
    ),
    "large keys": Case(
        path=Windows,
        reason=R.LARGE_KEYS,
        columns={"id": "STRING NOT NULL", "v": "STRING"},
        group={"column_bytes": {"id": 1 << 27, "v": 0}},
    ),
    "open runs exceed the budget": Case(
        path=Windows,
        reason=R.FEW_ROWS,
        columns={**COLUMNS, **{f"v{number}": "INT" for number in range(40)}},
        old={"row_count": 10, "size_bytes": 10 << 20},
        new={"row_count": 10, "size_bytes": 10 << 20},
        budget_bytes=1 << 20,
        text="windows, large values read after the merge, in rounds",
    ),
}  # fmt: skip


def schemas_of(case: Case) -> dict[int, TableSchema]:
    keys = () if case.raw or case.keyless else ("id",)
    options = {"bucket": "1", **case.options} if keys else dict(case.options)
    tracked = "_ROW_ID" in case.columns
    columns = {name: text for name, text in case.columns.items() if name != "_ROW_ID"}
    schema = create_schema(columns, primary_keys=keys, options=options, now_ms=0)
    if tracked:
        schema = replace(schema, fields=(*schema.fields, ROW_ID_FIELD))
    if case.change is None:
        return {0: schema}
    return {0: schema, 1: evolve(schema, [case.change], now_ms=1, has_snapshots=True)}


def files_of(case: Case, schema: TableSchema) -> list[DataFile]:
    kind = parse_type(case.columns["id"])
    bounds = [1, ROWS] if str(kind).startswith("BIGINT") else ["a", "z"]
    low, high = (serialize_row([pa.array([bound])], [kind]) for bound in bounds)
    return [
        replace(
            DataFile(
                name=f"{number}.parquet",
                size_bytes=1_000,
                row_count=ROWS,
                key_min=low,
                key_max=high,
                sequence_min=1 + number * ROWS,
                sequence_max=ROWS + number * ROWS,
                schema_id=schema.id,
                delete_row_count=0,
                file_source=FileSource.APPEND,
            ),
            **changes,
        )
        for number, changes in enumerate(
            [case.old] if case.raw else [case.old, *[case.new] * NEWER_RUNS]
        )
    ]


def decided(case: Case) -> Decision:
    schemas = schemas_of(case)
    schema, stored = schemas[max(schemas)], schemas[0]
    files = files_of(case, stored)
    index = IndexFile(index_type="DELETION_VECTORS", name="index-1", size_bytes=9, row_count=1)
    vector = index, VectorRange(data_file=files[0].name, offset=1, length=8, cardinality=1)
    split = Split(
        partition=b"",
        partition_path="",
        bucket=0,
        total_buckets=1,
        runs=tuple((file,) for file in files),
        raw=case.raw,
        commit_order={file.name: number for number, file in enumerate(files)},
        vectors={files[0].name: vector} if case.vectors else {},
        selected={files[0].name: BitMap([1])} if case.selected else {},
    )
    plan = plan_of(schema, schemas)
    where = None if case.where is None else from_polars(case.where, schema.arrow)
    plan = replace(plan, predicate=where, **case.plan)
    budget = Budget(case.budget_bytes)
    asked = [split, split] if case.by is Reader.ENGINE else [split]
    facts = tuple(facts_of(case, file) for each in asked for file in each.files)
    examined = Examined(files=facts, few_row_groups=case.few_row_groups)
    decision = decide(asked, plan, budget, case.by, examined)
    assert decision is not None
    # Without the facts of storage the decision is the same, or there is none.
    assert decide(asked, plan, budget, case.by) in (None, decision)
    return decision


def plan_of(schema: TableSchema, schemas: Mapping[int, TableSchema]) -> ReadPlan:
    options = parse_options(schema.options)
    return ReadPlan(
        layout=Layout(root="/t"),
        schema=schema,
        schemas=schemas,
        columns=schema.names,
        engine=str(options.merge_engine),
        merge=merge_spec(schema, options),
    )


def facts_of(case: Case, file: DataFile) -> FileFacts:
    group = RowGroup(
        index=0,
        first_row=0,
        row_count=file.row_count,
        size_bytes=1_000,
        decoded_bytes=1_000,
        bounds={},
        null_counts={},
        column_bytes=dict.fromkeys(case.columns, 1_000),
        codecs=frozenset({"ZSTD"}),
    )
    facts = FileFacts(path=f"/t/{file.name}", groups=(replace(group, **case.group),))
    return replace(facts, **case.facts)


@pytest.mark.parametrize("name", CASES)
def test_read_is_decided_by_values_alone(name: str) -> None:
    case = CASES[name]
    decision = decided(case)

    assert (type(decision.path), decision.reason) == (case.path, case.reason)
    assert not case.text or path_text(decision.path) == case.text


def test_cases_have_every_path_every_reason_and_every_reader() -> None:
    paths = {EngineScan, EachSplit, PolarsChunks, LateMaterialisation, FileScan}
    paths |= {JoinedFiles, Windows}
    assert {path.__name__ for path in paths} == set(str(ReadPath).split(" | "))
    assert {case.path for case in CASES.values()} == paths
    assert {case.reason for case in CASES.values()} == set(Reason)
    assert {case.by for case in CASES.values()} == set(Reader)


def test_read_of_nothing_is_a_scan_of_no_files() -> None:
    schema = schemas_of(Case(path=EngineScan, reason=R.NO_MERGE, **ENGINE))[0]
    plan = plan_of(schema, {0: schema})
    decision = decide([], plan, Budget(1), Reader.ENGINE, Examined(files=()))

    assert decision == Decision(path=EngineScan(paths=()), reason=Reason.NO_MERGE)
