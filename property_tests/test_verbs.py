"""Any history of writes, deletes, updates and merges leaves the rows that a dict would hold.

The dict is a model of the clauses of UPDATE and MERGE, which the model of the kit does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.table.handle import Table
    from lakecore.table.verbs.merge_files import MergeInto

Row: TypeAlias = "dict[str, Any]"
Rows: TypeAlias = "dict[int, Row]"
"""The rows of the model, by key."""

COLUMNS = {"id": "INT NOT NULL", "day": "STRING NOT NULL", "n": "INT", "v": "STRING"}
SCHEMA = {"id": pl.Int32, "day": pl.String, "n": pl.Int32, "v": pl.String}
NUMBERS = st.none() | st.integers(0, 4)
TEXTS = st.none() | st.sampled_from("pqr")


@st.composite
def a_row(draw: st.DrawFn) -> Row:
    key = draw(st.integers(0, 9))
    # The day hangs on the key: the key alone says which row it is.
    return {"id": key, "day": "xy"[key % 2], "n": draw(NUMBERS), "v": draw(TEXTS)}


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A condition on a number, for both sides: null does not hold."""

    column: str
    least: int

    def of(self, prefix: str) -> pl.Expr:
        return pl.col(prefix + self.column) >= self.least

    def holds(self, row: Row) -> bool:
        value = row[self.column]
        return value is not None and value >= self.least


TESTS = st.builds(AtLeast, st.sampled_from(["id", "n"]), st.integers(0, 9))


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a merge: what it is called, on which side's row its condition looks, if any."""

    method: str
    side: str | None
    test: AtLeast

    def add_to(self, merge: MergeInto) -> MergeInto:
        condition = None if self.side is None else self.test.of(self.side)
        method = getattr(merge, self.method)
        if self.method in ("when_matched_update", "when_not_matched_by_source_update"):
            return method({"n": pl.col("target.n") + 1}, condition)  # type: ignore[no-any-return]
        if self.method == "when_not_matched_insert":
            values = {"id": pl.col("id"), "day": pl.col("day"), "v": "made"}
            return method(values, condition)  # type: ignore[no-any-return]
        return method(condition)  # type: ignore[no-any-return]

    def applies(self, target: Row | None, source: Row | None) -> bool:
        row = target if self.side == "target." else source
        return self.side is None or (row is not None and self.test.holds(row))

    def result(self, target: Row | None, source: Row | None) -> Row | None:
        """The row that the clause leaves."""
        if "delete" in self.method:
            return None
        if self.method.endswith("_all"):
            assert source is not None
            return {**source, "id": target["id"], "day": target["day"]} if target else source
        if "update" in self.method:
            assert target is not None
            return {**target, "n": None if target["n"] is None else target["n"] + 1}
        assert source is not None
        return {"id": source["id"], "day": source["day"], "n": None, "v": "made"}


@st.composite
def a_clause(draw: st.DrawFn) -> Clause:
    method = draw(
        st.sampled_from(
            [
                "when_matched_update",
                "when_matched_update_all",
                "when_matched_delete",
                "when_not_matched_insert",
                "when_not_matched_insert_all",
                "when_not_matched_by_source_update",
                "when_not_matched_by_source_delete",
            ]
        )
    )
    sides: list[str | None] = [None]
    sides += ["target."] if "not_matched_insert" not in method else []
    sides += ["source."] if "by_source" not in method else []
    return Clause(method, draw(st.sampled_from(sides)), draw(TESTS))


SOURCES = st.lists(a_row(), max_size=6, unique_by=lambda row: row["id"])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.lists(a_row(), min_size=1, max_size=6)),
    st.tuples(st.just("delete"), TESTS),
    st.tuples(st.just("update"), TESTS, st.sampled_from(["n", "v", "both"])),
    st.tuples(
        st.just("merge"),
        SOURCES,
        st.lists(a_clause(), min_size=1, max_size=4),
        st.sampled_from(["columns", "condition", "number"]),
    ),
)
OPTIONS = st.sampled_from(
    [
        {},
        {"bucket": "3"},
        {"bucket": "-1", "dynamic_bucket__target_row_num": "3"},
        {"changelog_producer": "input"},
        {"file__format": "avro"},
    ]
)


@given(st.lists(STEPS, max_size=7), OPTIONS, st.sampled_from([[], ["day"]]))
def test_history_of_verbs_leaves_what_a_dict_holds(
    steps: Sequence[tuple[Any, ...]], options: dict[str, Any], partitions: list[str]
) -> None:
    table = new_table(COLUMNS, keys=["id", "day"], partitions=partitions, **options)
    model: Rows = {}
    for number, (verb, *arguments) in enumerate(steps):
        note(f"{number}: {verb} {arguments}")
        model = VERBS[verb](table, model, *arguments)
        found = table.to_arrow().to_pylist()

        assert sorted(found, key=lambda row: row["id"]) == [model[key] for key in sorted(model)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), SOURCES.filter(bool)),
            st.tuples(st.just("update"), TESTS, st.sampled_from(["down or up", "v"])),
            st.tuples(
                st.just("merge"),
                SOURCES,
                st.lists(
                    a_clause().filter(lambda clause: "delete" not in clause.method),
                    min_size=1,
                    max_size=4,
                ),
                st.sampled_from(["columns", "condition"]),
            ),
        ),
        min_size=3,
        max_size=7,
    ),
    st.sampled_from(["none", "input"]),
    st.sampled_from([[], ["day"]]),
)
def test_rows_that_verbs_give_an_older_sequence_stay_as_they_were(
    steps: Sequence[tuple[Any, ...]], producer: str, partitions: list[str]
) -> None:
    table = new_table(
        COLUMNS,
        keys=["id", "day"],
        partitions=partitions,
        changelog_producer=producer,
        sequence__field="n",
    )
    model: Rows = {}
    for number, (verb, *arguments) in enumerate(steps):
        note(f"{number}: {verb} {arguments}")
        before, model = model, VERBS[verb](table, model, *arguments)
        for key, row in before.items():
            if _sequence(model[key]) < _sequence(row):
                model[key] = row
        found = table.to_arrow().to_pylist()

        assert sorted(found, key=lambda row: row["id"]) == [model[key] for key in sorted(model)]


def _sequence(row: Row) -> int:
    """The place of the row among those of its key; null comes before all numbers."""
    return -1 if row["n"] is None else row["n"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.lists(a_row(), min_size=1, max_size=6)),
            st.tuples(st.sampled_from(["delete", "update"]), TESTS),
        ),
        max_size=7,
    ),
    st.sampled_from([{}, {"bucket": "2", "bucket_key": "id"}]),
    st.sampled_from([[], ["day"]]),
)
def test_history_of_an_append_table_leaves_what_a_list_holds(
    steps: Sequence[tuple[str, Any]], options: dict[str, Any], partitions: list[str]
) -> None:
    table = new_table(COLUMNS, keys=(), partitions=partitions, **options)
    model: list[Row] = []
    for verb, given_step in steps:
        if verb == "write":
            table.write(pl.DataFrame(given_step, SCHEMA))
            model += given_step
        elif verb == "delete":
            left = [row for row in model if not given_step.holds(row)]
            assert table.delete(given_step.of("")).rows_deleted == len(model) - len(left)
            model = left
        else:
            result = table.update({"v": "set", "id": pl.col("id") + 1}, given_step.of(""))
            assert result.rows_updated == sum(map(given_step.holds, model))
            model = [
                {**row, "v": "set", "id": row["id"] + 1} if given_step.holds(row) else row
                for row in model
            ]

        assert sorted(map(str, table.to_arrow().to_pylist())) == sorted(map(str, model))


def write(table: Table, model: Rows, given_rows: Sequence[Row]) -> Rows:
    table.write(pl.DataFrame(given_rows, SCHEMA))
    return {**model, **{row["id"]: row for row in given_rows}}


def delete(table: Table, model: Rows, test: AtLeast) -> Rows:
    result = table.delete(test.of(""))
    left = {key: row for key, row in model.items() if not test.holds(row)}
    assert result.rows_deleted == len(model) - len(left)
    return left


def update(table: Table, model: Rows, test: AtLeast, which: str) -> Rows:
    values: dict[str, object] = {}
    changes: dict[str, Callable[[Row], object]] = {}
    if which in ("n", "both"):
        values["n"] = pl.col("n") * 2 + pl.col("id")
        changes["n"] = lambda row: None if row["n"] is None else row["n"] * 2 + row["id"]
    if which == "down or up":
        values["n"] = 4 - pl.col("n")
        changes["n"] = lambda row: None if row["n"] is None else 4 - row["n"]
    if which in ("v", "both"):
        values["v"] = "set"
        changes["v"] = lambda _: "set"
    result = table.update(values, test.of(""))
    matching = [key for key, row in model.items() if test.holds(row)]
    assert result.rows_updated == len(matching)
    changed = {
        key: {**model[key], **{name: change(model[key]) for name, change in changes.items()}}
        for key in matching
    }
    return {**model, **changed}


def merge(
    table: Table,
    model: Rows,
    source: Sequence[Row],
    clauses: Sequence[Clause],
    how: str,
) -> Rows:
    on: Any = {
        "columns": ["id", "day"],
        "condition": "source.id = target.id",
        "number": ["n"],
    }[how]
    by = "n" if how == "number" else "id"
    stated = table.merge(pl.DataFrame(source, SCHEMA), on=on)
    for clause in clauses:
        stated = clause.add_to(stated)
    wanted = merged(model, source, clauses, by)
    if wanted is None:
        with pytest.raises(InvalidRequest, match=r"several rows|cannot be updated"):
            stated.execute()
        return model
    stated.execute()
    return wanted


def merged(model: Rows, source: Sequence[Row], clauses: Sequence[Clause], by: str) -> Rows | None:
    """What the merge leaves; None if it must be refused."""
    pairs = [
        (target, [row for row in source if row[by] == target[by] and row[by] is not None])
        for target in model.values()
    ]
    matched = [each for each in clauses if each.method.startswith("when_matched")]
    if matched and any(len(partners) > 1 for _, partners in pairs):
        return None
    result = dict(model)
    for target, partners in pairs:
        partner = partners[0] if partners else None
        own = matched if partners else [c for c in clauses if "by_source" in c.method]
        first = next((each for each in own if each.applies(target, partner)), None)
        if first is None:
            continue
        row = first.result(target, partner)
        sets_key = first.method == "when_matched_update_all" and by == "n"
        if sets_key and partner is not None and partner["id"] != target["id"]:
            return None
        if row is None:
            del result[target["id"]]
        else:
            result[target["id"]] = row
    inserts = [c for c in clauses if c.method.startswith("when_not_matched_insert")]
    found = [row for _, partners in pairs for row in partners]
    for row in source:
        first = next((each for each in inserts if each.applies(None, row)), None)
        if row not in found and first is not None:
            made = first.result(None, row)
            assert made is not None
            result[row["id"]] = made
    return result


VERBS: dict[str, Callable[..., Rows]] = {
    "write": write,
    "delete": delete,
    "update": update,
    "merge": merge,
}
