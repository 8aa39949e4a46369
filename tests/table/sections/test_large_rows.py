"""Large rows: the same rows as others give, one in memory at a time."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bench.child import PEAK_SHARE_MAX
from bench.large_rows import BUDGET_MIB, CASES, STEPS, VERBS, measured
from lakecore import memory
from lakecore.errors import CorruptTable
from lakecore.io.files.file_format import WriteFormat
from lakecore.io.spill import SpillDirectory
from lakecore.memory import Budget
from lakecore.merge.fold import FoldEngine
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.rows.read_rules_json import StatedRules
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.publication import write_schema
from lakecore.table.reads.source import TableSource
from lakecore.table.sections.merge_runs import merge_runs
from property_tests.profile import pairs, sized
from tests.guarded_tables import ROWS, SHOWN, Access, equal, guarded_table, rows_of, with_rules
from tests.tables import changed, held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lakecore.io.files.data_files import BatchSize
    from lakecore.merge.spec import MergeSpec, Slice
    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.handle import Table

COMMITS = 7
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate, sequence field": {"sequence__field": "n"},
    "first-row": {},
    "partial-update": {},
    "partial-update, sequence group": {"fields__n__sequence_group": "old,v"},
    "aggregation": {"fields__old__aggregate_function": "first_value"},
    "aggregation, text": {"fields__v__aggregate_function": "listagg"},
}
PRODUCERS = {
    "lookup": {"changelog_producer": "lookup"},
    "lookup of what differs": {
        "changelog_producer": "lookup",
        "changelog_producer__row_deduplicate": "true",
        "file__format": "avro",
    },
    "full-compaction": {"changelog_producer": "full-compaction"},
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """A budget under which every row is large."""
    monkeypatch.setattr(memory, "LARGE_LEAST_BYTES", 0)
    return Budget(64)


def some_runs(engine: str, seed: int, **options: str) -> Table:
    """A table of runs of level 0 above a compacted one."""
    name = engine.partition(",")[0]
    columns = {"id": "INT NOT NULL", "old": "STRING", "v": "STRING", "n": "INT"}
    stated: dict[str, Any] = {**ENGINES[engine], **options}
    table = new_table(columns, write_only="true", merge_engine=name, **stated)
    chance = random.Random(seed)
    deletes = engine.startswith("deduplicate")
    for number in range(COMMITS):
        texts = []
        for key in sorted(chance.sample(range(30), chance.randint(1, 20))):
            kind = "-D " if deletes and chance.random() < 0.3 else ""
            old = chance.choice(["_", "x", f"o{chance.randint(1, 9)}"])
            value = chance.choice(["_", "v", f"v{chance.randint(1, 99)}"])
            texts.append(f"{kind}{key} {old} {value} {chance.randint(1, 9)}")
        put(table, " | ".join(texts))
        if number == 1:
            table.compact(full=True)
    return table


def in_full(table: Table, budget: Budget) -> list[pa.Table]:
    """The merged rows of the newest state, as they come."""
    splits, plan = plan_of(table)
    found: list[pa.Table] = []
    for split in splits:
        found += merge_runs(split, plan, table.context.store, budget)
    return found


def plan_of(table: Table) -> tuple[tuple[Split, ...], ReadPlan]:
    context = table.context
    source = TableSource(
        context=context, snapshot=context.history.latest_snapshot(), table_schema=context.schema
    )
    splits = tuple(source.plan().splits)
    return splits, source.read_plan(splits, None)


@pytest.mark.parametrize(("engine", "file_format"), pairs(ENGINES, ["parquet", "orc", "avro"]))
@pytest.mark.parametrize("seed", range(2))
def test_large_rows_are_read_as_others_are(
    tiny: Budget, engine: str, file_format: str, seed: int
) -> None:
    table = some_runs(engine, seed, file__format=file_format)
    small = reopened(table, budget_bytes=tiny.size_bytes)

    assert all(tiny.is_large(split.row_bytes) for split in plan_of(table)[0])
    assert held(small) == held(table)
    assert held(small, columns=["n", "id"]) == held(table, columns=["n", "id"])
    assert held(small, where="id > 11") == held(table, where="id > 11")


def test_large_rows_are_hidden_as_others_are(tiny: Budget) -> None:
    table = guarded_table(Access())
    small = with_rules(reopened(table, budget_bytes=tiny.size_bytes), Access())

    assert all(tiny.is_large(split.row_bytes) for split in plan_of(table)[0])
    assert rows_of(small.to_arrow()) == rows_of(table.to_arrow()) == SHOWN
    bob = StatedRules((equal("owner", "bob"), equal("card", "2222")))
    assert rows_of(with_rules(small, Access(bob)).to_arrow()) == [ROWS[1]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(2))
def test_large_rows_are_compacted_as_others_are(tiny: Budget, engine: str, seed: int) -> None:
    table, like = some_runs(engine, seed), some_runs(engine, seed)
    like.compact(full=True)
    reopened(table, budget_bytes=tiny.size_bytes).compact(full=True)

    assert held(table) == held(like)
    (file,), (wanted,) = (
        [file for split in plan_of(each)[0] for file in split.files] for each in (table, like)
    )
    fields = ("row_count", "key_min", "key_max", "key_stats", "value_stats", "delete_row_count")
    for name in (*fields, "sequence_min", "sequence_max", "level"):
        assert getattr(file, name) == getattr(wanted, name), name


@pytest.mark.parametrize(("engine", "producer"), pairs(ENGINES, [*PRODUCERS]))
@pytest.mark.sampled(2)
def test_changes_of_large_rows_are_told_as_those_of_others(
    tiny: Budget, engine: str, producer: str
) -> None:
    if engine == "first-row" and producer == "full-compaction":
        producer = "lookup"
    stated = {
        "num_sorted_run__compaction_trigger": "3",
        "compaction__max_size_amplification_percent": "2000000000",
        **PRODUCERS[producer],
    }
    table, like = some_runs(engine, 1, **stated), some_runs(engine, 1, **stated)
    small = reopened(table, budget_bytes=tiny.size_bytes)
    for text in ("3 x v 5 | 9 _ v7 6", "3 x v 5 | 7 o _ 4 | 9 _ v7 6", "1 x _ 8"):
        small.compact()
        like.compact()
        put(table, text)
        put(like, text)
    small.compact(full=True)
    like.compact(full=True)

    # Sizes of files say what is compacted first.
    told, wanted = (sorted(changed(each.changes()).split(" | ")) for each in (table, like))
    assert told == wanted != [""]
    assert held(table) == held(like)


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_of_values_that_are_chosen_none_is_merged(
    tiny: Budget, monkeypatch: pytest.MonkeyPatch, engine: str, producer: str
) -> None:
    kinds: set[pa.DataType] = set()
    engine_call = FoldEngine.__call__

    def noted(self: FoldEngine, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        kinds.update(part.rows.schema.field("v").type for part in window)
        return engine_call(self, window, spec)

    monkeypatch.setattr(FoldEngine, "__call__", noted)
    table = some_runs(engine, 1, changelog_producer=producer)
    kinds.clear()
    reopened(table, budget_bytes=tiny.size_bytes).compact(full=True)

    assert kinds == {pa.int64()}


def test_files_of_other_schemas_are_merged(tiny: Budget) -> None:
    table = new_table({"id": "INT NOT NULL", "v": "STRING", "w": "STRING"}, write_only="true")
    put(table, "1 a x | 2 b y | 4 c z")
    changes = [
        SchemaChange.drop_column("w"),
        SchemaChange.add_column("w", "STRING"),
        SchemaChange.rename_column("v", "u"),
    ]
    changed = evolve(table.schema, changes, now_ms=0, has_snapshots=True)
    assert write_schema(table.context.store, table.context.layout, changed)
    table = reopened(table)
    put(table, "2 d new | 3 e _")

    small = reopened(table, budget_bytes=tiny.size_bytes)
    assert held(small) == "1 a _ | 2 d new | 3 e _ | 4 c _"


def test_one_row_comes_at_a_time(tiny: Budget) -> None:
    table = some_runs("deduplicate", 1)
    found = in_full(table, tiny)

    assert {rows.num_rows for rows in found} == {1}
    assert tiny.used_bytes == 0


def test_rows_of_one_row_group_are_decoded_by_one_reading(
    tiny: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=3),
    )
    stored_rows, groups = SplitFiles.stored_rows, list[int]()

    def noted(
        self: SplitFiles,
        file: DataFile,
        fields: Sequence[Field],
        size: BatchSize,
        *,
        row_groups: Iterable[int] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        groups.extend(row_groups or ())
        return stored_rows(self, file, fields, size, row_groups=row_groups)

    monkeypatch.setattr(SplitFiles, "stored_rows", noted)
    table = new_table(write_only="true")
    put(table, " | ".join(f"{key} v{key}" for key in range(8)))
    put(table, "-D 4 _")

    assert len(in_full(table, tiny)) == 7
    assert groups == [0, 1, 2]


def test_large_rows_are_not_spilled_and_the_newest_of_a_key_counts(
    tiny: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spilled(*_: object) -> None:
        raise AssertionError("a large row was spilled")

    monkeypatch.setattr(SpillDirectory, "write", spilled)
    table = new_table(write_only="true")
    small = reopened(table, budget_bytes=tiny.size_bytes)
    texts = ["1 a", "2 b | 3 c", "1 d", "-D 2 _", "4 e"]
    small.write(rows(table.schema, text) for text in texts)

    assert held(table) == "1 d | 3 c | 4 e"
    files_of_all = [file for split in plan_of(table)[0] for file in split.files]
    assert sum(file.row_count for file in files_of_all) == 6


def test_row_that_its_file_no_longer_has_is_missed(
    tiny: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_rows = SplitFiles.stored_rows

    def cut_off(
        self: SplitFiles,
        file: DataFile,
        fields: Sequence[Field],
        size: BatchSize,
        *,
        row_groups: Iterable[int] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        found = stored_rows(self, file, fields, size, row_groups=row_groups)
        return found if row_groups is None else islice(found, 1)

    monkeypatch.setattr(SplitFiles, "stored_rows", cut_off)
    with pytest.raises(CorruptTable, match="fewer rows"):
        in_full(some_runs("deduplicate", 1), tiny)


FEW = [case for case in CASES if case[2] != "none"]
"""One for each type of the column and each changelog producer."""


@pytest.mark.slow
@pytest.mark.parametrize("case", sized(CASES, quick=FEW), ids=", ".join)
@pytest.mark.sampled(2)
def test_rows_of_100_mb_are_handled_under_a_budget_of_512_mib(
    tmp_path: Path, case: tuple[str, str, str]
) -> None:
    took = [measured(step, str(tmp_path / "lake"), *case) for step in STEPS]
    peaks = [each.peak_mib / BUDGET_MIB for each in took]

    assert [each.rows for each in took] == [VERBS[step] for step in STEPS]
    assert max(peaks) <= PEAK_SHARE_MAX, peaks
