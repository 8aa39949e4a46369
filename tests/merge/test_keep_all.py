"""All rows stay, in the order in which they merge, and are cut where a key ends."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.merge import MERGE_FUNCTIONS, interim_function
from lakecore.merge.deduplicate import KEEP_ALL, whole_keys
from lakecore.merge.spec import MergeSpec
from lakecore.model.rows import RETRACTS
from tests.merge.test_deduplicate import run_of

SPEC = MergeSpec(key=("k",))


def kept(text: str, spec: MergeSpec = SPEC) -> str:
    """All rows of the runs of a line, in their order; see `run_of`."""
    window = [run_of(run, unique=False) for run in text.split("|")]
    tables = KEEP_ALL(window, spec)
    return " ".join(row for table in tables for row in table["text"].to_pylist())


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ("", ""),
        ("b1 a2 b3", "a2 b1 b3"),
        ("a1 a2-D a3 | a4 a5+U", "a1 a2-D a3 a4 a5+U"),
        ("a4 b5 | a1 a3 b2", "a1 a3 a4 b2 b5"),
        ("a1-D b2-U |", "a1-D b2-U"),
    ],
)
def test_rows_come_by_key_and_sequence_number(runs: str, wanted: str) -> None:
    assert kept(runs) == wanted


@pytest.mark.parametrize(
    ("descending", "wanted"),
    [(False, "a3:null a2:1 a1:5 a4:5"), (True, "a3:null a1:5 a4:5 a2:1")],
)
def test_users_sequence_comes_before_the_sequence_number(*, descending: bool, wanted: str) -> None:
    spec = MergeSpec(key=("k",), sequence=("s",), sequence_descending=descending)

    assert kept("a1:5 a2:1 | a3:null a4:5", spec) == wanted


def test_rows_of_ignored_kinds_are_left_out() -> None:
    assert kept("a1 a2-D b3-U", MergeSpec(key=("k",), ignored=RETRACTS)) == "a1"


def test_rows_are_kept_for_engines_that_must_see_all_at_once() -> None:
    keep = {engine for engine, merge in MERGE_FUNCTIONS.items() if not merge.chooses_rows}

    assert keep == {"partial-update", "aggregation"}
    assert {interim_function(MERGE_FUNCTIONS[engine]) for engine in keep} == {KEEP_ALL}
    assert interim_function(KEEP_ALL) is KEEP_ALL


# --- cut between keys ---------------------------------------------------------------------------


def cut(text: str) -> str:
    """Batches of keys of one letter, cut anew."""
    batches = [pa.table({"k": pa.array(list(part), pa.string())}) for part in text.split("/")]
    return "/".join("".join(table["k"].to_pylist()) for table in whole_keys(batches, ["k"]))


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ("", ""),
        ("a", "a"),
        ("ab", "a/b"),
        ("ab/bc", "a/bb/c"),
        ("aa/aa/a", "aaaaa"),
        ("a/b/c", "a/b/c"),
        ("ab/b/b/bcc/d", "a/bbbb/cc/d"),
        ("ab//b/", "a/bb"),
        ("abc/cde", "ab/ccd/e"),
    ],
)
def test_key_ends_before_its_table_does(batches: str, wanted: str) -> None:
    assert cut(batches) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_cutting_loses_no_row_and_splits_no_key(seed: int) -> None:
    chance = random.Random(seed)
    keys = sorted(chance.choice("abcdef") for _ in range(chance.randrange(40)))
    batches = "".join(key + "/" * chance.choice([0, 0, 1, 2]) for key in keys)
    found = cut(batches)

    assert found.replace("/", "") == "".join(keys)
    assert all(set(part).isdisjoint(rest) for part, rest in _pairs(found.split("/")))


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    return [(part, "".join(parts[at + 1 :])) for at, part in enumerate(parts)]


def test_key_with_more_rows_than_may_be_held_is_refused() -> None:
    batches = [pa.table({"k": ["a"] * 10}) for _ in range(5)]
    few = list(whole_keys(batches[:2], ["k"], bytes_max=200))
    with pytest.raises(InvalidRequest, match="several commits") as refused:
        list(whole_keys(batches, ["k"], bytes_max=100))

    assert [table.num_rows for table in few] == [20]
    assert refused.value.facts["key"] == ("a",)
