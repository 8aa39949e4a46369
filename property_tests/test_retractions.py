"""No batch and no compaction decides what retractions take back.

The truth is one merge of all rows that a key was ever given. However the rows are cut into batches
and commits, and whatever is compacted in between, a read shows the truth, and the changelog sums up
to it. Numbers are exact and rows arrive in order, because rounding and late rows may depend on what
is merged first.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import Uncomputable
from lakecore.testing import apply_changes
from lakecore.testing.aggregates import RETRACTING, Refused
from lakecore.testing.merging import RETRACTS, Rules, Version, merge, versions_of
from lakecore.testing.strategies import CASES, EXACT_TYPES, Case, Merging
from lakecore.testing.table_draws import Shape
from property_tests.test_engines_table import Drawn, _arrow, _bag, _commit, _versions, small_pieces
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = ["small_pieces"]

KEYS = (1, 2, 3)
EXACT = [
    case
    for case in CASES
    if case.function not in ("sum", "product")
    or case.type in (EXACT_TYPES if case.function == "sum" else EXACT_TYPES[:4])
]
HARD = [case for case in EXACT if case.function in RETRACTING]
CHANGING = ("listagg", "nested_update", "nested_partial_update")
"""Functions that change a single row, which only tables with deletion vectors fold."""
SCHEDULES: tuple[Mapping[str, str], ...] = (
    {"write-only": "true"},
    {"num-sorted-run.compaction-trigger": "2"},
    {"num-sorted-run.compaction-trigger": "3", "num-levels": "6"},
    {"compaction.force-up-level-0": "true"},
    {"full-compaction.delta-commits": "3"},
)
PRODUCERS = ("none", "none", "input", "lookup", "full-compaction", "vectors")
LATE = {"compaction.max-size-amplification-percent": "2000000000", "compaction.size-ratio": "0"}
STEPS = st.sampled_from(["write", "write", "write", "minor", "minor", "full"])


@st.composite
def tables(draw: st.DrawFn, engine: str) -> Merging:
    """Tables with functions, each with retractions that it takes back or ignores."""
    drawn = draw(st.lists(st.sampled_from(HARD) | st.sampled_from(EXACT), min_size=1, max_size=3))
    cases = {f"a{index}": case for index, case in enumerate(drawn)}
    columns = {"k": "INT NOT NULL", "s": "INT", **{name: c.type for name, c in cases.items()}}
    options = {"bucket": "1", "merge-engine": engine, **draw(st.sampled_from(SCHEDULES)), **LATE}
    for name, case in cases.items():
        options[f"fields.{name}.aggregate-function"] = case.function
        options |= {f"fields.{name}.{key}": value for key, value in case.options.items()}
        if case.function not in RETRACTING:
            options[f"fields.{name}.ignore-retract"] = "true"
    if engine == "partial-update":
        columns["b"] = "STRING"
        options["fields.s.sequence-group"] = ",".join(["b", *cases])
        removing = {"partial-update.remove-record-on-sequence-group": "s"}
    else:
        removing = {"aggregation.remove-record-on-delete": "true"}
        options |= draw(st.sampled_from([{}, {"sequence.field": "s"}]))
    # A removed record leaves its values, here nulls, to the next row until a compaction drops it.
    begins = any(case.function == "first_value" or _changes_single(case) for case in drawn)
    ignoring = any(option.endswith("ignore-retract") for option in options)
    if not begins and not (ignoring and engine == "aggregation") and draw(st.integers(0, 2)) == 0:
        options |= removing
    producer = draw(st.sampled_from(PRODUCERS))
    if producer == "vectors" and not any(map(_changes_single, drawn)):
        options |= {"deletion-vectors.enabled": "true", "write-only": "false"}
    elif producer != "vectors":
        options["changelog-producer"] = producer
    if producer in ("lookup", "full-compaction", "vectors"):
        options["write-only"] = "false"
    if producer == "lookup":
        options.pop("full-compaction.delta-commits", None)
    return Merging(shape=Shape(columns=columns, primary_keys=("k",), options=options), cases=cases)


def _changes_single(case: Case) -> bool:
    return case.function in CHANGING or case.options.get("distinct") == "true"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
@given(data=st.data())
def test_no_batch_and_no_compaction_loses_a_retraction(engine: str, data: st.DataObject) -> None:
    merging = data.draw(tables(engine), "table")
    options: dict[str, Any] = dict(merging.shape.options)
    budget = data.draw(st.sampled_from([1 << 30, 1000]), "budget")
    table = new_table(merging.shape.columns, keys=("k",), budget_bytes=budget, **options)
    rules, names = Rules.of(table.schema), table.schema.names
    written: list[Version] = []
    truth: list[Any] = []
    steps = data.draw(st.lists(STEPS, min_size=4, max_size=9), "steps")
    for step in ["write", "full", "write", "write", *steps, "full"]:
        batches = data.draw(_batches(merging, written), "batches") if step == "write" else []
        arrow = [_arrow(batch, table) for batch in batches]
        for row in chain.from_iterable(map(_versions, arrow)):
            written.append(replace(row, number=len(written)))
        try:
            truth = _bag(merging, merge(written, rules), names)
            if step == "write":
                _commit(table, arrow)
            else:
                table.compact(full=step == "full")
        except (Refused, Uncomputable):
            return  # an integer product that overflows or takes the factor 0 back

        assert _bag(merging, versions_of(table.to_arrow()), names) == truth
    if options.get("changelog-producer") in ("lookup", "full-compaction"):
        told = apply_changes(table.changes(), ["k"])
        assert _bag(merging, versions_of(told), names) == truth


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
@given(data=st.data())
def test_any_number_of_update_pairs_comes_in_one_write(engine: str, data: st.DataObject) -> None:
    merging = data.draw(tables(engine), "table")
    options: dict[str, Any] = dict(merging.shape.options)
    table = new_table(merging.shape.columns, keys=("k",), **options)
    names, rules = table.schema.names, Rules.of(table.schema)
    values = [values for _, values in data.draw(merging.rows(6), "values")]
    changes = [("+I", values[0])]
    for old, new in pairwise(values):
        changes += [("-U", old), ("+U", new)]
    rows = [(kind, {**held, "k": 1, "s": at}) for at, (kind, held) in enumerate(changes)]
    other = [("+I", {**values[0], "k": 2, "s": len(rows)})]
    cut = data.draw(st.integers(0, min(3, len(rows))), "rows before")
    batches = [rows[:cut], rows[cut:] + other] if cut else [rows + other]
    written: list[Version] = []
    try:
        for batch in batches:
            written += [
                replace(row, number=len(written) + at)
                for at, row in enumerate(_versions(_arrow(batch, table)))
            ]
            truth = _bag(merging, merge(written, rules), names)
            _commit(table, [_arrow(batch, table)])
            assert _bag(merging, versions_of(table.to_arrow()), names) == truth
        for full in (False, True):
            table.compact(full=full)
            assert _bag(merging, versions_of(table.to_arrow()), names) == truth
    except (Refused, Uncomputable):
        return  # an integer product that overflows or takes the factor 0 back
    if options.get("changelog-producer") in ("lookup", "full-compaction"):
        told = apply_changes(table.changes(), ["k"])
        assert _bag(merging, versions_of(told), names) == truth


@st.composite
def _batches(draw: st.DrawFn, merging: Merging, written: Sequence[Version]) -> list[list[Drawn]]:
    """Rows with ascending sequences. The first row of a record is an addition.

    Most retractions take back what an older row of the record has added.
    """
    given: dict[Any, list[Mapping[str, Any]]] = {}
    for row in written:
        given.setdefault(row.values["k"], []).append(row.values)
    removed = {row.values["k"]: merging.removes and row.kind == "-D" for row in written}
    batches: list[list[Drawn]] = []
    at = len(written)
    for drawn in draw(st.lists(merging.rows(4), min_size=1, max_size=3)):
        batches.append([])
        for kind, values in drawn:
            key = draw(st.sampled_from(KEYS))
            given_kind = "+I" if removed.get(key, True) else kind
            removed[key] = merging.removes and given_kind == "-D"
            held = dict.fromkeys(values) if removed[key] else values
            if given_kind in RETRACTS and not removed[key] and draw(st.integers(0, 3)):
                held = draw(st.sampled_from(given[key]))
            given.setdefault(key, []).append(held)
            batches[-1].append((given_kind, {**held, "k": key, "s": at}))
            at += 1
    return batches
