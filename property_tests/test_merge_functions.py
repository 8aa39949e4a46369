"""Merge functions over windows of runs give what the model makes of the same rows one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice, merge_spec, runs_decide
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND
from lakecore.testing.aggregates import Refused
from lakecore.testing.merging import KINDS, Rules, Version, key_of, merge, versions_of
from lakecore.testing.strategies import ENGINES, Merging, mergings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema import TableSchema

NUMBER_MAX = 12


@dataclass(frozen=True, kw_only=True)
class Window:
    """Runs, oldest first, and the table that they are of."""

    merging: Merging
    schema: TableSchema
    runs: tuple[Slice, ...]

    def _repr_pretty_(self, printer: Any, _: bool) -> None:  # noqa: FBT001  as Hypothesis calls it
        """How a failing window is shown."""
        shape = self.merging.shape
        printer.text(f"\n{shape.columns}\n{shape.options}")
        for run in self.runs:
            printer.text(f"\nrun of commit {run.commit_order}, unique: {run.unique}")
            for row in versions_of(run.rows):
                printer.text(f"\n  {row.number} {row.kind} {dict(row.values)}")

    @property
    def rules(self) -> Rules:
        return Rules.of(self.schema)

    @property
    def versions(self) -> list[Version]:
        return [row for run in self.runs for row in versions_of(run.rows, run.commit_order)]

    def spec(self, **how: bool) -> MergeSpec:
        return merge_spec(self.schema, self.schema.parsed_options(), **how)

    def merge(self, runs: Sequence[Slice], **how: bool) -> pa.Table:
        """What lakecore makes of runs."""
        function = MERGE_FUNCTIONS[self.merging.engine]
        schema = runs[0].rows.schema
        tables = list(function(runs, self.spec(**how)))
        for table in tables:
            assert table.schema.equals(schema)
            table.validate(full=True)
        return pa.concat_tables([schema.empty_table(), *tables])

    def comparable(self, rows: Sequence[Version], names: Sequence[str]) -> list[Any]:
        """Rows without what Paimon leaves open, in no order."""
        return sorted(
            (
                (
                    row.kind,
                    row.number,
                    [self.merging.comparable(name, row.values[name]) for name in names],
                )
                for row in rows
            ),
            key=repr,
        )


@st.composite
def windows(draw: st.DrawFn, engine: str, *, regroups: bool = False) -> Window:
    """Windows of a table: runs as of files, with each key once, or as of a write buffer."""
    merging = draw(mergings(engine, regroups=regroups))
    schema = merging.schema
    rules = Rules.of(schema)
    ordered = regroups or draw(st.booleans())
    drawn = draw(st.lists(merging.rows(7), min_size=1, max_size=4))
    places = draw(st.permutations(range(len(drawn))))
    runs = []
    start = 0
    for part, place in zip(drawn, places, strict=True):
        unique = draw(st.integers(0, 3)) > 0
        rows = [Version(kind=kind, values=values) for kind, values in part]
        if unique:
            rows = list({key_of(row.values, rules): row for row in rows}.values())
        if ordered:
            numbers = list(range(start, start + len(rows)))
            start += len(rows)
        else:
            drawn_numbers = st.lists(
                st.integers(0, NUMBER_MAX), min_size=len(rows), max_size=len(rows), unique=True
            )
            numbers = draw(drawn_numbers)
        if unique:
            numbers = draw(st.permutations(numbers))
            rows.sort(key=lambda row: key_of(row.values, rules))
        else:
            numbers = sorted(numbers)
        numbered = [replace(row, number=n) for row, n in zip(rows, numbers, strict=True)]
        runs.append(slice_of(numbered, schema, commit_order=place, unique=unique))
    return Window(merging=merging, schema=schema, runs=tuple(runs))


def slice_of(
    rows: Sequence[Version], schema: TableSchema, *, commit_order: int, unique: bool
) -> Slice:
    """The rows as a run; as an array of two chunks, as a run is where batches of files end."""
    arrow = schema.arrow.append(pa.field(SEQUENCE_NUMBER, pa.int64()))
    arrow = arrow.append(pa.field(VALUE_KIND, pa.int8()))
    system = [{SEQUENCE_NUMBER: row.number, VALUE_KIND: KINDS.index(row.kind)} for row in rows]
    table = pa.Table.from_pylist(
        [{**row.values, **own} for row, own in zip(rows, system, strict=True)], arrow
    )
    half = len(rows) // 2
    table = pa.concat_tables([table.slice(0, half), table.slice(half)])
    return run_of(table, schema, commit_order=commit_order, unique=unique)


def run_of(table: pa.Table, schema: TableSchema, *, commit_order: int, unique: bool) -> Slice:
    numbers = table.column(SEQUENCE_NUMBER).to_pylist()
    return Slice(
        rows=table,
        keys=order_columns([table.column(name) for name in schema.trimmed_primary_keys]),
        sequence_min=min(numbers),
        sequence_max=max(numbers),
        commit_order=commit_order,
        unique=unique,
    )


def by_the_model(window: Window, *, keep_deletions: bool) -> list[Version] | None:
    """The merged rows, or None where Paimon refuses."""
    try:
        return merge(window.versions, window.rules, keep_deletions=keep_deletions)
    except Refused:
        return None


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_window_is_merged_as_row_by_row(engine: str, data: st.DataObject) -> None:
    window = data.draw(windows(engine), "window")
    keep = data.draw(st.booleans(), "keep deletions")
    in_order = data.draw(st.booleans(), "in key order")
    runs = data.draw(st.permutations(window.runs), "runs")
    wanted = by_the_model(window, keep_deletions=keep)
    if wanted is None:
        if not window.merging.removes:
            with pytest.raises(InvalidRequest):
                window.merge(runs, keep_deletions=keep, in_key_order=in_order)
        return

    merged = versions_of(window.merge(runs, keep_deletions=keep, in_key_order=in_order))

    names = window.rules.columns
    assert window.comparable(merged, names) == window.comparable(wanted, names)
    if in_order:
        keys = [key_of(row.values, window.rules) for row in merged]

        assert keys == sorted(keys)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_columns_left_out_change_no_other(engine: str, data: st.DataObject) -> None:
    """Nor do sequence numbers and kinds where they decide nothing."""
    window = data.draw(windows(engine), "window")
    wanted = by_the_model(window, keep_deletions=False)
    if wanted is None:
        return
    asked = data.draw(st.lists(st.sampled_from(window.rules.columns), unique=True), "columns")
    spec = window.spec()
    names = list(spec.columns_for(asked))
    if not runs_decide(window.runs, spec) or data.draw(st.booleans()):
        names.append(SEQUENCE_NUMBER)
    if any(row.kind in ("-U", "-D") for row in window.versions) or data.draw(st.booleans()):
        names.append(VALUE_KIND)
    runs = [replace(run, rows=run.rows.select(names)) for run in window.runs]

    merged = versions_of(window.merge(runs))

    plain = [replace(row, kind="+I", number=0) for row in wanted]
    ours = [replace(row, kind="+I", number=0) for row in merged]
    assert window.comparable(ours, asked) == window.comparable(plain, asked)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_window_may_be_cut_at_any_key(engine: str, data: st.DataObject) -> None:
    window = data.draw(windows(engine), "window")
    if by_the_model(window, keep_deletions=True) is None:
        return
    names = window.rules.columns
    keys = sorted({key_of(row.values, window.rules) for row in window.versions})
    bound = data.draw(st.sampled_from(keys), "bound")
    halves = [
        [cut for run in window.runs if (cut := _part(window, run, bound, below=below)) is not None]
        for below in (True, False)
    ]

    whole = window.merge(window.runs, keep_deletions=True)
    parts = [window.merge(half, keep_deletions=True) for half in halves if half]

    merged = [row for part in parts for row in versions_of(part)]
    assert window.comparable(merged, names) == window.comparable(versions_of(whole), names)


def _part(window: Window, run: Slice, bound: tuple[Any, ...], *, below: bool) -> Slice | None:
    """The rows of a run whose keys lie on one side of a bound."""
    rows = versions_of(run.rows)
    mask = [(key_of(row.values, window.rules) <= bound) == below for row in rows]
    if not any(mask):
        return None
    table = run.rows.filter(pa.array(mask))
    keys = order_columns([table.column(name) for name in window.schema.trimmed_primary_keys])
    return replace(run, rows=table, keys=keys)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_neighbours_may_be_merged_first(engine: str, data: st.DataObject) -> None:
    window = data.draw(windows(engine, regroups=True), "window")
    wanted = by_the_model(window, keep_deletions=False)
    if wanted is None:
        return
    names = window.rules.columns
    runs = list(window.runs)
    for _ in range(data.draw(st.integers(1, 3), "merges")):
        start = data.draw(st.integers(0, len(runs) - 1), "first run")
        end = data.draw(st.integers(start, len(runs) - 1), "last run")
        table = window.merge(runs[start : end + 1], keep_deletions=True, in_key_order=True)
        order = max(run.commit_order for run in runs[start : end + 1])
        merged = (
            [run_of(table, window.schema, commit_order=order, unique=True)]
            if table.num_rows
            else []
        )
        runs[start : end + 1] = merged
        if not runs:
            break

    read = versions_of(window.merge(runs)) if runs else []

    assert window.comparable([replace(row, kind="+I") for row in read], names) == window.comparable(
        [replace(row, kind="+I") for row in wanted], names
    )
