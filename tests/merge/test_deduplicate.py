"""The newest row of each key wins.

Runs are lines, oldest first: `"a1 b2 | a3-D"` is a run with key a at sequence number 1 and key b at
2, and a newer one with a deletion of a. `"a1:x"` has the user's sequence x. The rows that survive
are shown as the text they came from.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge import spec as merge_spec
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice, runs_decide
from lakecore.model.rows import (
    KIND_TEXTS,
    RETRACTS,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    RowKind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROW = re.compile(r"([a-z]+)(\d+)(?::(\w+))?([+-][IUD])?")
SPEC = MergeSpec(key=("k",))
FLUSH = MergeSpec(key=("k",), keep_deletions=True, in_key_order=True)


def run_of(text: str, *, unique: bool = True) -> Slice:
    """A run from its line."""
    parts = [_ROW.fullmatch(word) for word in text.split()]
    keys = pa.array([part[1] for part in parts if part], pa.string())
    numbers = [int(part[2]) for part in parts if part]
    user = [None if part[3] in {None, "null"} else int(part[3]) for part in parts if part]
    kinds = [KIND_TEXTS.index(part[4] or "+I") for part in parts if part]
    rows = pa.table(
        {
            "k": keys,
            "s": pa.array(user, pa.int64()),
            "text": pa.array(text.split(), pa.string()),
            SEQUENCE_NUMBER: pa.array(numbers, pa.int64()),
            VALUE_KIND: pa.array(kinds, pa.int8()),
        }
    )
    return Slice(
        rows=rows,
        keys=order_columns([rows["k"]]),
        sequence_min=min(numbers, default=0),
        sequence_max=max(numbers, default=0),
        unique=unique,
    )


def merged(window: Sequence[Slice], spec: MergeSpec = SPEC) -> str:
    """The surviving rows, as a line in key order unless the spec has an order of its own."""
    tables = list(MERGE_FUNCTIONS["deduplicate"](window, spec))
    texts = [text for table in tables for text in table["text"].to_pylist()]
    return " ".join(texts if spec.in_key_order else sorted(texts))


def merge(text: str, spec: MergeSpec = SPEC) -> str:
    return merged([run_of(run) for run in text.split("|")], spec)


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ("a1 b2", "a1 b2"),
        ("a1 b2 | a3 c4", "a3 b2 c4"),
        ("a1 b2 c3 | b4 | a5", "a5 b4 c3"),
        ("a1 | a2 | a3", "a3"),
        ("b1 | a2", "a2 b1"),
        ("a1 b2 c3 d4 | b5", "a1 b5 c3 d4"),
        ("b1 | a2 b3 c4 d5", "a2 b3 c4 d5"),
    ],
)
def test_row_of_the_newest_run_wins(runs: str, wanted: str) -> None:
    assert merge(runs) == wanted


def test_order_of_the_runs_does_not_matter_if_their_numbers_differ() -> None:
    assert merge("a9 b8 | a1 b2 | c5") == "a9 b8 c5"


def test_sequence_number_decides_where_runs_overlap_in_age() -> None:
    assert merge("a1 b9 | a5 b4 c6") == "a5 b9 c6"


def test_later_run_wins_equal_sequence_numbers() -> None:
    assert merge("a3 b3 | a3") == "a3 b3"
    assert merge("a3+I | a3+U") == "a3+U"


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ("a1 | a2-D", ""),
        ("a1 b2 | a3-D", "b2"),
        ("a1-D | a2", "a2"),
        ("a1-D", ""),
        ("a1 | a2-U", ""),
        ("a1 | a2-U | a3+U", "a3+U"),
        ("a1 b9 | a5-D b4-D", "b9"),
    ],
)
def test_key_whose_newest_row_retracts_is_gone(runs: str, wanted: str) -> None:
    assert merge(runs) == wanted


def test_deletions_are_kept_where_asked() -> None:
    keeping = MergeSpec(key=("k",), keep_deletions=True)

    assert merge("a1 b2 | a3-D c4-U", keeping) == "a3-D b2 c4-U"
    assert merge("a1 b9 | a5-D b4-D", keeping) == "a5-D b9"


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ("a1 | a2-D", "a1"),
        ("a1 | a2-D | a3-U", "a1"),
        ("a1-D | b2", "b2"),
        ("a1 b9 | a5-D b4", "a1 b9"),
        ("a1 b2-D c3 | a4-D b5-D c6", "a1 c6"),
    ],
)
def test_rows_of_an_ignored_kind_count_for_nothing(runs: str, wanted: str) -> None:
    assert merge(runs, MergeSpec(key=("k",), ignored=RETRACTS)) == wanted
    ordered = MergeSpec(key=("k",), ignored=RETRACTS, in_key_order=True)
    assert merge(runs, ordered) == wanted


def test_only_the_ignored_kind_is_ignored() -> None:
    spec = MergeSpec(key=("k",), ignored=frozenset({RowKind.UPDATE_BEFORE}))

    assert merge("a1 b2 | a3-U b4-D", spec) == "a1"


@pytest.mark.parametrize(
    ("runs", "ascending", "descending"),
    [
        ("a1:5 | a2:3", "a1:5", "a2:3"),
        ("a1:3 | a2:5", "a2:5", "a1:3"),
        ("a1:5 | a2:5", "a2:5", "a2:5"),
        ("a1:null | a2:0", "a2:0", "a2:0"),
        ("a1:0 | a2:null", "a1:0", "a1:0"),
        ("a1:null | a2:null", "a2:null", "a2:null"),
        ("a1:5 | a2:3-D", "a1:5", ""),
        ("a1:5-D | a2:3", "", "a2:3"),
    ],
)
def test_sequence_of_the_user_goes_before_the_number(
    runs: str, ascending: str, descending: str
) -> None:
    assert merge(runs, MergeSpec(key=("k",), sequence=("s",))) == ascending
    spec = MergeSpec(key=("k",), sequence=("s",), sequence_descending=True)
    assert merge(runs, spec) == descending


def test_write_buffer_becomes_a_run_with_each_key_once() -> None:
    buffer = run_of("b1 a2 b3 c4 a5-D", unique=False)

    assert merged([buffer], FLUSH) == "a5-D b3 c4"


def test_rows_come_in_key_order_where_asked() -> None:
    assert merge("a1 d2 e3 | b4 e5 | c6", FLUSH) == "a1 b4 c6 d2 e5"
    assert merge("a1 d2 e9 | b4 e5 | c6", FLUSH) == "a1 b4 c6 d2 e9"


def test_rows_in_key_order_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_spec, "PIECE_ROWS", 2)
    tables = list(MERGE_FUNCTIONS["deduplicate"]([run_of("b1 d2"), run_of("a3 c4 e5")], FLUSH))

    assert [table["text"].to_pylist() for table in tables] == [["a3", "b1"], ["c4", "d2"], ["e5"]]


def test_empty_runs_are_of_no_account() -> None:
    assert merge("a1 | ", SPEC) == "a1"
    assert merge(" | ", SPEC) == ""
    assert merge(" | a1", FLUSH) == "a1"


def test_columns_that_decide_nothing_need_not_be_there() -> None:
    window = [run_of("a1 b2"), run_of("a3")]
    bare = [
        Slice(
            rows=part.rows.select(["k", "text"]),
            keys=part.keys,
            sequence_min=part.sequence_min,
            sequence_max=part.sequence_max,
        )
        for part in window
    ]

    assert merged(bare) == "a3 b2"


@pytest.mark.parametrize(
    ("runs", "needed"),
    [("a1 b2 | a3", False), ("a3 | a1 b2", False), ("a1 b3 | a2", True), ("a1 | a1", True)],
)
def test_sequence_numbers_are_needed_only_where_ages_overlap(runs: str, *, needed: bool) -> None:
    window = [run_of(run) for run in runs.split("|")]

    assert runs_decide(window, SPEC) is not needed
    assert not runs_decide(window, MergeSpec(key=("k",), sequence=("s",)))


@pytest.mark.parametrize("seed", range(30))
def test_any_runs_give_what_a_dict_gives(seed: int) -> None:
    chance = random.Random(seed)
    ordered, with_user = chance.random() < 0.5, chance.random() < 0.5
    numbers = list(range(40))
    if not ordered:
        chance.shuffle(numbers)
    runs = []
    for _ in range(chance.randint(1, 5)):
        keys = sorted(chance.sample("abcdefgh", chance.randint(0, 8)))
        words = []
        for name in keys:
            user = f":{chance.choice(['null', '1', '2'])}" if with_user else ""
            words.append(f"{name}{numbers.pop(0)}{user}{chance.choice(KIND_TEXTS)}")
        runs.append(" ".join(words))
    spec = MergeSpec(key=("k",), sequence=("s",) if with_user else (), in_key_order=True)
    newest: dict[str, tuple[tuple[int, int], str]] = {}
    for word in " ".join(runs).split():
        match = _ROW.fullmatch(word)
        assert match
        user_number = int(match[3]) if match[3] not in {None, "null"} else -1
        age = (user_number, int(match[2]))
        if match[1] not in newest or age >= newest[match[1]][0]:
            newest[match[1]] = (age, word)
    wanted = [word for _, (_, word) in sorted(newest.items()) if word[-2] == "+"]

    assert merge("|".join(runs), spec) == " ".join(wanted)


@pytest.mark.parametrize("in_key_order", [False, True])
@pytest.mark.parametrize("apart", [1, 3, 6, 8, 30, 1_000, (1 << 63) // 50 - 1])
def test_keys_however_far_apart_give_what_a_dict_gives(apart: int, *, in_key_order: bool) -> None:
    places = random.Random(apart)
    wanted: dict[int, int] = {}
    window = []
    for run in range(4):
        keys = sorted(places.sample(range(-50, 50), 40))
        rows = pa.table(
            {
                "k": pa.array([key * apart for key in keys], pa.int64()),
                "run": pa.array([run] * len(keys), pa.int64()),
                VALUE_KIND: pa.array([3 if run == 2 else 0] * len(keys), pa.int8()),
            }
        )
        columns = order_columns([rows["k"]])
        window.append(Slice(rows=rows, keys=columns, sequence_min=run, sequence_max=run))
        wanted |= dict.fromkeys(rows["k"].to_pylist(), run)
    places.shuffle(window)
    spec = MergeSpec(key=("k",), in_key_order=in_key_order)
    found = pa.concat_tables(MERGE_FUNCTIONS["deduplicate"](window, spec))
    rows_found = list(zip(found["k"].to_pylist(), found["run"].to_pylist(), strict=True))

    left = sorted((key, run) for key, run in wanted.items() if run != 2)
    assert (rows_found if in_key_order else sorted(rows_found)) == left


def test_values_are_not_copied_where_no_row_loses() -> None:
    part = run_of("a1 b2")
    (table,) = MERGE_FUNCTIONS["deduplicate"]([part], SPEC)
    before, after = (t["text"].chunk(0).buffers()[2].address for t in (part.rows, table))

    assert before == after
    assert isinstance(part.keys.columns[0], np.ndarray | pa.Array)
