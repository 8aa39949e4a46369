"""What a compaction changed.

Rows are words: `a5` is key a with value 5, `a5-D` a deletion of it. A window is its runs, each with
its level: `"L0 a2 b1-D | L3 a1"`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.changelog import changed_keys, changelog_rows
from lakecore.merge.keys import NONE, order_columns
from lakecore.merge.spec import MergeSpec, Slice, filter_rows
from lakecore.model.rows import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROW = re.compile(r"([a-z])(\d)([+-][IUD])?")
SPEC = MergeSpec(key=("k",), keep_deletions=True, in_key_order=True)
LOOKUP = replace(SPEC, complete_levels=True)


def rows_of(text: str, first_number: int = 0) -> pa.Table:
    parts = [_ROW.fullmatch(word) for word in text.split()]
    found = [part.groups() for part in parts if part]
    return pa.table(
        {
            "k": pa.array([key for key, _, _ in found], pa.string()),
            "v": pa.array([int(value) for _, value, _ in found], pa.int32()),
            SEQUENCE_NUMBER: pa.array(range(first_number, first_number + len(found)), pa.int64()),
            VALUE_KIND: pa.array([KIND_TEXTS.index(kind or "+I") for *_, kind in found], pa.int8()),
        }
    )


def window_of(text: str) -> list[Slice]:
    """The runs, newest first as in the text; each is older than those before it."""
    runs = [part.split(maxsplit=1) for part in text.split("|")]
    found = []
    for age, (level, words) in enumerate(runs):
        rows = rows_of(words, 100 * (len(runs) - age))
        numbers = rows[SEQUENCE_NUMBER].to_numpy()
        found.append(
            Slice(
                rows=rows,
                keys=order_columns([rows["k"]]),
                sequence_min=int(numbers[0]),
                sequence_max=int(numbers[-1]),
                level=int(level.removeprefix("L")),
            )
        )
    return found


def shown(rows: pa.Table) -> str:
    return " ".join(
        f"{row['k']}{row['v']}{KIND_TEXTS[row[VALUE_KIND]]}" for row in rows.to_pylist()
    )


def told(
    text: str, *, before_level: int | None = None, compared: Sequence[str] | None = None
) -> str:
    """The changelog of merging the window."""
    window, spec = window_of(text), SPEC if before_level else LOOKUP
    merged = pa.concat_tables(MERGE_FUNCTIONS["deduplicate"](window, spec))
    keys = changed_keys(window, spec, before_level)
    assert keys.count == merged.num_rows
    changed = keys.changed
    before = keys.before[changed]
    held = before != NONE
    at = np.where(held, np.cumsum(held) - 1, NONE)
    all_rows = pa.concat_tables([part.rows for part in window])
    was = all_rows.take(pa.array(before[held]))
    return shown(changelog_rows(was, filter_rows(merged, changed), at, compared))


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        ("L0 a1", "a1+I"),
        ("L0 a1-D", ""),
        ("L0 a2 | L3 a1", "a1-U a2+U"),
        ("L0 a1 | L3 a1", "a1-U a1+U"),
        ("L0 a2-D | L3 a1", "a1-D"),
        ("L0 a2-U | L3 a1", "a1-D"),
        ("L0 a2 | L3 a1-D", "a2+I"),
        ("L0 a2-D | L3 a1-D", ""),
        ("L0 a2+U | L3 a1+U", "a1-U a2+U"),
        ("L0 a3 | L0 a2-D | L3 a1", "a1-U a3+U"),
        ("L0 b2 | L3 a1 b1 c1", "b1-U b2+U"),
        ("L0 a3 | L2 a2 | L5 a1", "a2-U a3+U"),
        ("L2 a2 | L5 a1", ""),
        ("L0 a2 c2-D d1 | L1 b1 c1 | L4 c9 e1", "a2+I c1-D d1+I"),
    ],
)
def test_lookup_compares_keys_of_level_0_with_the_lowest_level_above(
    window: str, wanted: str
) -> None:
    assert told(window) == wanted


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        ("L0 a1", "a1+I"),
        ("L0 a1-D", ""),
        ("L0 a2 | L5 a1", "a1-U a2+U"),
        ("L0 a1 | L5 a1", "a1-U a1+U"),
        ("L0 a2-D | L5 a1", "a1-D"),
        ("L3 a2-D | L5 a1", "a1-D"),
        ("L5 a1 b1", ""),
        ("L0 a3 | L3 a2", "a3+I"),
        ("L3 a2", "a2+I"),
        ("L0 a3 | L3 a2 | L5 a1", "a1-U a3+U"),
        ("L0 a3 | L3 a2-D | L5 b1", "a3+I"),
    ],
)
def test_full_compaction_compares_what_has_other_rows_with_the_before_level(
    window: str, wanted: str
) -> None:
    assert told(window, before_level=5) == wanted


@pytest.mark.parametrize("before_level", [None, 5])
def test_equal_rows_are_no_change_where_they_are_compared(before_level: int | None) -> None:
    window = "L0 a1 b2 c3 | L5 a1 b1"

    assert told(window, before_level=before_level, compared=("k", "v")) == "b1-U b2+U c3+I"
    assert told(window, before_level=before_level, compared=("k",)) == "c3+I"


def test_rows_keep_the_numbers_that_they_have_in_the_table() -> None:
    before, after = rows_of("a1", 7), rows_of("a2 b1", 30)

    found = changelog_rows(before, after, np.array([0, NONE]), None)

    assert found[SEQUENCE_NUMBER].to_pylist() == [7, 30, 31]
    assert found[VALUE_KIND].to_pylist() == [
        RowKind.UPDATE_BEFORE,
        RowKind.UPDATE_AFTER,
        RowKind.INSERT,
    ]
    assert found.schema == after.schema


def test_nothing_before_and_nothing_after_is_nothing() -> None:
    none = rows_of("")

    assert changelog_rows(none, none, np.zeros(0, np.int64), None).num_rows == 0
    assert changelog_rows(none, rows_of("a1-D"), np.array([NONE]), None).num_rows == 0


def test_before_level_is_compared_though_a_lower_one_took_it_up() -> None:
    window = window_of("L2 a2 b2 | L5 a1")

    keys = changed_keys(window, LOOKUP, 5)

    assert keys.before.tolist() == [2, NONE]
    assert keys.changed.tolist() == [True, True]


def test_keys_to_look_up_are_those_of_level_0_alone() -> None:
    keys = changed_keys(window_of("L0 a1 b1 d1 | L2 b2 c2"), LOOKUP)

    assert keys.without_before.tolist() == [0, 3]
    assert keys.first[keys.without_before].tolist() == [0, 2]


def test_window_of_ignored_rows_has_no_keys() -> None:
    spec = replace(LOOKUP, ignored=frozenset({RowKind.DELETE}))

    assert changed_keys(window_of("L0 a1-D | L5 b1-D"), spec).count == 0
    # Level 5 has a key, which the ignored row has absorbed.
    assert changed_keys(window_of("L1 a2-D | L5 a1"), spec, 5).count == 0
    keys = changed_keys(window_of("L1 b2-D | L5 a1 b1"), spec, 5)
    assert (keys.before.tolist(), keys.changed.tolist()) == ([1], [False])
