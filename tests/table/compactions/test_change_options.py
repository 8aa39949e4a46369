"""Options that say how stored files are read do not change under rows that would be read otherwise.

`CHECKED` and `FREE` name every option that reads files and may change after the first snapshot.
"""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange
from lakecore.options import Effect
from lakecore.table.verbs.compaction_job import compact_for_switch
from tests.reference_pages import describe_options
from tests.tables import rolled_back, with_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.table.handle import Table

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"


class Case(NamedTuple):
    """A table's options, and a change of one."""

    options: Mapping[str, str]
    key: str
    value: str | None


AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}
SUM = {**AGGREGATION, "fields.a.aggregate-function": "sum"}
NESTED = {**AGGREGATION, "fields.n.aggregate-function": "nested_update"}
KEYED = {**NESTED, "fields.n.nested-key": "x"}
TIMED = {**AGGREGATION, "fields.m.aggregate-function": "merge_map_with_keytime"}
CHECKED = {
    "sequence.field": Case({}, "sequence.field", "a"),
    "sequence.field.sort-order": Case(
        {"sequence.field": "a"}, "sequence.field.sort-order", "descending"
    ),
    "ignore-delete": Case({}, "ignore-delete", "true"),
    "ignore-update-before": Case({}, "ignore-update-before", "true"),
    "fields.default-aggregate-function": Case(
        AGGREGATION, "fields.default-aggregate-function", "last_value"
    ),
    "fields.#.aggregate-function": Case(SUM, "fields.a.aggregate-function", "max"),
    "fields.#.ignore-retract": Case(SUM, "fields.a.ignore-retract", "true"),
    "fields.#.distinct": Case(
        {**AGGREGATION, "fields.s.aggregate-function": "listagg"}, "fields.s.distinct", "true"
    ),
    "fields.#.list-agg-delimiter": Case(
        {**AGGREGATION, "fields.s.aggregate-function": "listagg"},
        "fields.s.list-agg-delimiter",
        ";",
    ),
    "fields.#.nested-key": Case(NESTED, "fields.n.nested-key", "x"),
    "fields.#.nested-key-null-strategy": Case(KEYED, "fields.n.nested-key-null-strategy", "ignore"),
    "fields.#.nested-sequence-field": Case(KEYED, "fields.n.nested-sequence-field", "y"),
    "fields.#.count-limit": Case(NESTED, "fields.n.count-limit", "2"),
    "fields.#.sequence-group": Case(PARTIAL, "fields.a.sequence-group", "b"),
    "fields.#.ts-field": Case(TIMED, "fields.m.ts-field", "u"),
}
FREE = {
    "blob-as-descriptor": "shows the same values in another form",
    "blob-view.resolve.enabled": "shows views in another form",
    "branch": "names the branch that is opened",
    "deletion-vectors.enabled": "its own tests are below",
    "deletion-vectors.merge-on-read": "both ways of reading are right; one shows rows earlier",
    "incremental-between": "says which snapshots a read takes",
    "incremental-between-scan-mode": "says which files a read takes changes from",
    "incremental-between-tag-to-snapshot": "says which snapshots a read takes",
    "incremental-between-timestamp": "says which snapshots a read takes",
    "orc.timestamp-ltz.legacy.type": "lakecore reads instants in UTC either way",
    "partition.default-name": "its own tests are below",
    "partition.legacy-name": "its own tests are below",
    "query-auth.enabled": "says which rows a reader may see",
    "scan.creation-time-millis": "says which snapshots a read takes",
    "scan.fallback-branch": "says where partitions are read that the branch lacks",
    "scan.file-creation-time-millis": "says which files a read takes",
    "scan.plan-sort-partition": "says in which order a plan gives its splits",
    "scan.mode": "says which snapshots a read takes",
    "scan.snapshot-id": "says which snapshots a read takes",
    "scan.tag-name": "says which snapshots a read takes",
    "scan.timestamp": "says which snapshots a read takes",
    "scan.timestamp-millis": "says which snapshots a read takes",
    "scan.version": "says which snapshots a read takes",
}


def test_every_option_that_reads_files_is_named_here() -> None:
    found = {
        each.key
        for each in describe_options()
        if each.effect is Effect.READ and each.supported and not each.immutable
    }

    assert found == {*CHECKED, *FREE}


def made(path: Path, options: Mapping[str, str], **more: str) -> tuple[lc.Session, Table]:
    session = lc.connect(path / "w", create=True)
    session.create_database("d", ignore_if_exists=True)
    table = session.create_table(
        "d.t",
        {
            "id": "INT NOT NULL",
            "a": "INT",
            "b": "INT",
            "s": "STRING",
            "n": "ARRAY<ROW<x INT, y INT>>",
            "m": "MAP<STRING, ROW<v INT, t STRING, u STRING>>",
        },
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", **options, **more},
    )
    return session, table


def written(table: Table, a: int) -> None:
    row = {"id": 1, "a": a, "b": a, "s": f"s{a}", "n": [{"x": a, "y": a}]}
    table.write([{**row, "m": None}])


@pytest.mark.parametrize("name", CHECKED)
def test_how_rows_merge_changes_only_where_nothing_is_left_to_merge(
    name: str, tmp_path: Path
) -> None:
    case = CHECKED[name]
    session, table = made(tmp_path, case.options)
    change = [SchemaChange.set_option(case.key, str(case.value))]
    written(table, 2)
    written(table, 1)
    before = table.to_polars()

    with pytest.raises(InvalidRequest, match="run a full compaction") as refusal:
        session.alter_table("d.t", change)

    assert refusal.value.facts["buckets"] == 1
    assert case.key in str(refusal.value.facts["options"])
    assert session.get_table("d.t").to_polars().equals(before)
    table.compact(full=True)
    session.alter_table("d.t", change)
    assert session.get_table("d.t").to_polars().equals(before)


@pytest.mark.parametrize("name", CHECKED)
def test_how_rows_merge_changes_freely_in_an_empty_table(name: str, tmp_path: Path) -> None:
    case = CHECKED[name]
    session, _ = made(tmp_path, case.options)
    session.alter_table("d.t", [SchemaChange.set_option(case.key, str(case.value))])

    assert session.get_table("d.t").context.options.texts[case.key] == case.value


def test_option_of_a_new_column_may_come_with_it(tmp_path: Path) -> None:
    session, table = made(tmp_path, SUM)
    written(table, 1)
    written(table, 2)
    session.alter_table(
        "d.t",
        [
            SchemaChange.add_column("c", "INT"),
            SchemaChange.set_option("fields.c.aggregate-function", "max"),
            SchemaChange.rename_column("a", "total"),
            SchemaChange.set_option("write-only", "false"),
        ],
    )

    assert session.get_table("d.t").to_polars(columns=["total", "c"]).rows() == [(3, None)]


def test_options_that_only_write_change_freely(tmp_path: Path) -> None:
    session, table = made(tmp_path, SUM)
    written(table, 1)
    written(table, 2)
    for key, value in {
        "file.format": "orc",
        "data-file.thin-mode": "true",
        "changelog-producer": "input",
        "num-levels": "3",
        "target-file-size": "1 mb",
        "bucket": "4",
    }.items():
        session.alter_table("d.t", [SchemaChange.set_option(key, value)])

        assert session.get_table("d.t").to_polars(columns=["a"]).rows() == [(3,)]


def test_function_of_another_engine_may_be_taken_away(tmp_path: Path) -> None:
    session, table = made(tmp_path, AGGREGATION)
    with_options(table, fields__a__aggregate_function="from_a_plugin")
    session.alter_table("d.t", [SchemaChange.remove_option("fields.a.aggregate-function")])
    written(session.get_table("d.t"), 1)

    assert session.get_table("d.t").to_polars(columns=["a"]).rows() == [(1,)]


# --- deletion vectors -----------------------------------------------------------------------------

SWITCH_ON = [
    SchemaChange.set_option("deletion-vectors.modifiable", "true"),
    SchemaChange.set_option("deletion-vectors.enabled", "true"),
]


def test_deletion_vectors_come_on_after_a_full_compaction(tmp_path: Path) -> None:
    session, table = made(tmp_path, {})
    for a in range(3):
        written(table, a)
    before = table.to_polars()

    with pytest.raises(InvalidRequest, match="keys would be duplicated"):
        table.copy({"deletion-vectors.modifiable": "true"}).copy(
            {"deletion-vectors.modifiable": "true", "deletion-vectors.enabled": "true"}
        )
    with pytest.raises(InvalidRequest, match=r"deletion-vectors\.modifiable"):
        session.alter_table("d.t", SWITCH_ON[1:])
    assert set(table.inspect.files()["level"]) == {0}

    session.alter_table("d.t", SWITCH_ON)
    on = session.get_table("d.t")
    assert on.to_polars().equals(before)
    assert on.explain().merged_files == 0
    assert set(on.inspect.files()["level"]) == {5}


def test_rows_written_between_the_compaction_and_the_switch_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, table = made(tmp_path, {})
    written(table, 1)

    def compact_and_write(*given: Any) -> bool:
        done = compact_for_switch(*given)
        written(session.get_table("d.t"), 2)
        return done

    monkeypatch.setattr("lakecore.catalog.file_tables.compact_for_switch", compact_and_write)
    with pytest.raises(InvalidRequest, match="keys would be duplicated"):
        session.alter_table("d.t", SWITCH_ON)
    assert session.get_table("d.t").options.deletion_vectors_enabled is False


def test_deletion_vectors_come_on_freely_without_a_key(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"a": "INT"})
    for a in range(3):
        table.write(pl.DataFrame({"a": [a]}))
    session.alter_table("d.t", SWITCH_ON)

    assert sorted(session.get_table("d.t").to_polars()["a"]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "snapshot_id"), [("append_deletion_vectors", 3), ("pk_deletion_vectors", 8)]
)
def test_deletion_vectors_go_off_after_a_full_compaction(
    name: str, snapshot_id: int, tmp_path: Path
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    shutil.copytree(FIXTURES / name / "table", tmp_path / "w" / "d.db" / "t")
    rolled_back(session.get_table("d.t"), snapshot_id)
    before = session.get_table("d.t").to_polars().sort("k")
    allow = SchemaChange.set_option("deletion-vectors.modifiable", "true")

    with pytest.raises(InvalidRequest, match="deleted rows would reappear") as refusal:
        session.get_table("d.t").copy({"deletion-vectors.modifiable": "true"}).copy(
            {"deletion-vectors.enabled": "false"}
        )
    assert refusal.value.facts["files"]
    session.alter_table("d.t", [allow, SchemaChange.remove_option("deletion-vectors.enabled")])
    off = session.get_table("d.t")

    assert off.to_polars().sort("k").equals(before)
    assert off.explain().deletion_vectors == 0
    session.alter_table("d.t", [SchemaChange.set_option("deletion-vectors.enabled", "true")])
    assert session.get_table("d.t").to_polars().sort("k").equals(before)


# --- names of partitions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "column", "stored"),
    [
        ("partition.default-name", "none", "STRING", None),
        ("partition.legacy-name", "false", "DATE", date(2026, 1, 2)),
    ],
)
def test_names_of_partitions_that_are_there_stay(
    key: str, value: str, column: str, stored: object, tmp_path: Path
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"p": column, "a": "INT"}, partition_keys=["p"])
    table.write([{"p": stored, "a": 1}])

    with pytest.raises(InvalidRequest, match="directories of stored partitions"):
        session.alter_table("d.t", [SchemaChange.set_option(key, value)])

    assert session.get_table("d.t").to_arrow().num_rows == 1


def test_names_that_no_partition_has_may_change(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"p": "STRING", "a": "INT"}, partition_keys=["p"])
    table.write(pl.DataFrame({"p": ["x"], "a": [1]}))
    session.alter_table("d.t", [SchemaChange.set_option("partition.default-name", "none")])

    assert session.get_table("d.t").to_polars().rows() == [("x", 1)]
