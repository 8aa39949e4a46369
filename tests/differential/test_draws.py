from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.differential.aggregate_draws import FUNCTIONS
from tests.differential.differences import comparable, may_stream
from tests.differential.draws import draw
from tests.differential.engine_draws import ENGINES
from tests.differential.history import History
from tests.differential.layout_draws import LAYOUTS
from tests.differential.shrink import shrink
from tests.differential.steps import (
    Alter,
    Branch,
    Clear,
    Cluster,
    Compact,
    Delete,
    Expire,
    Index,
    Overwrite,
    Rescale,
    RollBack,
    Tag,
    Untag,
    Update,
    Upsert,
    Where,
    Write,
)
from tests.interop import limits, values
from tests.interop.columns import Column, parse_type
from tests.interop.model import case
from tests.interop.values import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.differential.steps import Step

SEEDS = range(1, 301)
STEPS = (
    *(Write, Overwrite, Clear, Compact, Alter, Rescale, Cluster, Index),
    *(Delete, Update, Upsert, Tag, Untag, Branch, Expire, RollBack),
)


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return [draw(seed) for seed in SEEDS]


def test_a_seed_draws_the_same_history_each_time(histories: list[History]) -> None:
    assert [draw(seed) for seed in SEEDS] == histories


def test_every_engine_function_format_and_kind_of_type_is_drawn(histories: list[History]) -> None:
    options = [history.table.options for history in histories]
    functions = {
        text for each in options for key, text in each.items() if key.endswith("aggregate-function")
    }
    roots = {column.type.root for history in histories for column in history.table.columns}

    assert {history.engine for history in histories} == set(ENGINES)
    assert functions >= set(FUNCTIONS)
    assert {each["file.format"] for each in options} == {"parquet", "orc", "avro"}
    assert roots >= {
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR"),
        *("VARCHAR", "STRING", "BINARY", "VARBINARY", "BYTES", "DATE", "TIME", "TIMESTAMP"),
        *("TIMESTAMP_LTZ", "ARRAY", "MAP", "MULTISET", "ROW"),
    }


@pytest.mark.parametrize(
    "key",
    [
        *("sequence.field", "sequence.field.sort-order", "rowkind.field", "ignore-delete"),
        *("ignore-update-before", "partial-update.remove-record-on-delete"),
        "partial-update.remove-record-on-sequence-group",
        *("aggregation.remove-record-on-delete", "fields.default-aggregate-function"),
        *("changelog-producer", "row-deduplicate", "row-deduplicate-ignore-fields"),
        *("sequence-group", "ignore-retract", "distinct", "list-agg-delimiter", "nested-key"),
    ],
)
def test_every_option_of_merging_is_drawn(histories: list[History], key: str) -> None:
    assert any(each.endswith(key) for history in histories for each in history.table.options)


def test_values_are_in_canonical_form_and_fit_their_types(histories: list[History]) -> None:
    for history in histories:
        for step, shape in zip(history.steps, history.shapes, strict=False):
            for _, row in step.changes if isinstance(step, (Write, Overwrite)) else ():
                for value, column in zip(row, shape.columns, strict=True):
                    assert canonical(value, column.type) == value
                    assert value is not None or column.type.nullable


def test_every_history_is_comparable(histories: list[History]) -> None:
    assert [history.seed for history in histories if not comparable(history)] == []


def test_steps_compact_and_keys_meet_again(histories: list[History]) -> None:
    assert any(isinstance(step, Compact) for history in histories for step in history.steps)
    assert sum(_meets_again(history) for history in histories) > len(histories) // 2


@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
def test_every_step_is_drawn(histories: list[History], kind: type) -> None:
    assert sum(any(isinstance(step, kind) for step in each.steps) for each in histories) >= 3


@pytest.mark.parametrize("verb", ["add", "drop", "rename", "retype", "move", "nullable", "set"])
def test_every_change_of_a_schema_is_drawn(histories: list[History], verb: str) -> None:
    changes = [step.change for each in histories for step in each.steps if isinstance(step, Alter)]

    assert sum(change[0] == verb for change in changes) >= 3


def test_every_kind_of_table_is_drawn(histories: list[History]) -> None:
    keyed = {bool(each.table.primary_keys) for each in histories if not each.table.partition_keys}
    partitioned = {bool(each.table.primary_keys) for each in histories if each.table.partition_keys}
    buckets = {
        (bool(each.table.primary_keys), each.table.options["bucket"] == "-1") for each in histories
    }

    assert keyed == partitioned == {True, False}
    assert len(buckets) == 4
    assert any(each.foreign for each in histories)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_drawn(histories: list[History], layout: str) -> None:
    found = [each for each in histories if each.layout == layout]

    assert len(found) >= 5
    assert any(each.relayed for each in found)


@pytest.mark.parametrize("layout", ["postponed", "across"])
def test_every_engine_is_drawn_of_tables_with_such_buckets(layout: str) -> None:
    found = {each.engine for each in map(draw, range(1, 1000)) if each.layout == layout}

    assert found == set(ENGINES) - {"append"}


def test_java_relays_no_postponed_rows_that_it_cannot_write_to_avro() -> None:
    postponed = [each for each in map(draw, range(1, 400)) if each.layout == "postponed"]
    texts = {
        column.type.text
        for each in postponed
        if each.relayed
        for shape in each.shapes
        for column in shape.columns
    }

    assert {each.relayed for each in postponed} == {True, False}
    assert not any(re.search(r"MULTISET<(?!STRING|VARCHAR|CHAR)", text) for text in texts)


def test_java_streams_no_postponed_rows_that_it_cannot_read_from_avro() -> None:
    postponed = [each for each in map(draw, (*SEEDS, 651)) if each.layout == "postponed"]
    spoilt = [each.seed for each in postponed if not may_stream(each, limits.LAKECORE)]

    assert spoilt == [651]
    assert all(may_stream(each, limits.JAVA) for each in postponed)


def test_binary_keys_have_no_deletion_vectors_which_java_could_not_make() -> None:
    marked = [each for each in histories_of_keys() if "deletion-vectors.enabled" in each[1]]

    assert marked
    assert not any(roots & values.BINARIES for roots, _ in marked)


def histories_of_keys() -> list[tuple[set[str], Mapping[str, str]]]:
    """The roots of the types of each primary key, with the options."""
    return [
        (
            {each.type.root for each in history.table.columns if each.name in keys},
            history.table.options,
        )
        for history in map(draw, SEEDS)
        if (keys := history.table.primary_keys)
    ]


def test_postponed_rows_are_compressed_as_avro_can_and_tell_changes_in_full_compactions() -> None:
    postponed = [each for each in map(draw, range(1, 600)) if each.layout == "postponed"]
    codecs = {each.table.options.get("file.compression") for each in postponed}
    told = {
        step.full
        for each in postponed
        if each.producer == "full-compaction"
        for step in each.steps
        if isinstance(step, Compact)
    }

    assert codecs == {None, "snappy"}
    assert told == {True}


@pytest.mark.parametrize("then", [Overwrite(()), Clear(), Delete(Where("v", "is null"))])
def test_postponed_rows_must_be_moved_before_anything_else(then: Step) -> None:
    history = next(found for seed in SEEDS if (found := draw(seed)).layout == "postponed")
    write = next(step for step in history.steps if isinstance(step, Write))

    assert comparable(history.with_steps([write, write, Compact(full=True), then]))
    assert not comparable(history.with_steps([write, then]))


def test_a_failing_history_shrinks_to_what_makes_it_fail() -> None:
    def fails(history: History) -> bool:
        rows = [step for step in history.steps if isinstance(step, Write)]
        return sum(kind == "-D" for step in rows for kind, _ in step.changes) >= 2

    history = next(found for seed in SEEDS if fails(found := draw(seed, "deduplicate")))

    small = shrink(history, fails, 1000)

    assert sum(len(step.changes) for step in small.steps if isinstance(step, Write)) == 2
    assert {*small.table.primary_keys} == {column.name for column in small.table.columns}


@pytest.mark.parametrize("verb", ["add", "drop", "rename", "move"])
def test_a_history_shrinks_across_changes_of_its_schema(verb: str) -> None:
    def fails(history: History) -> bool:
        for step, shape in zip(history.steps, history.shapes, strict=False):
            changes = step.changes if isinstance(step, (Write, Overwrite)) else ()
            assert all(len(row) == len(shape.columns) for _, row in changes)
        after = [step for step in history.steps if isinstance(step, (Alter, Overwrite))]
        return any(
            isinstance(step, Alter) and step.change[0] == verb and isinstance(after[-1], Overwrite)
            for step in after
        )

    history = next(found for seed in SEEDS if fails(found := draw(seed)))

    small = shrink(history, fails, 1000)

    assert [type(step) for step in small.steps] == [Alter, Overwrite]


def test_the_text_of_a_history_makes_it_again() -> None:
    for history in map(draw, range(1, 30)):
        known = (History, *STEPS, Where, Column, case, parse_type)
        names = {each.__name__: each for each in known}

        assert eval(str(history), names) == history  # noqa: S307 -- text that we wrote ourselves


def _meets_again(history: History) -> bool:
    pairs = zip(history.steps, history.shapes, strict=False)
    writes = [(step, history.keys(shape)) for step, shape in pairs if isinstance(step, Write)]
    seen = [{repr([row[i] for i in keys]) for _, row in step.changes} for step, keys in writes]
    return any(a & b for i, a in enumerate(seen) for b in seen[i + 1 :])
