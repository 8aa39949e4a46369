"""Blanks behind a CHAR: ORC has none, whoever wrote it; other formats and partitions have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TEXTS = ("ab", "ab   ", "abcde", "")
WITHOUT = ("ab", "ab", "abcde", "")
OURS = limits.LAKECORE


def table_of(role: str, file_format: str, commits: Sequence[Sequence[str]]) -> Case:
    """A table whose column `c` is a value, a key, or a partition; each text has a number."""
    numbers = iter(range(100))
    kept = {"bucket": "1", "write-only": "true"}
    return Case(
        name=f"blanks of a {role}",
        columns=(
            Column("c", parse_type("CHAR(5) NOT NULL")),
            Column("n", parse_type("INT NOT NULL")),
        ),
        commits=tuple(tuple(("+I", [text, next(numbers)]) for text in texts) for texts in commits),
        primary_keys={"value": ("n",), "key": ("c",), "partition": ()}[role],
        partition_keys=("c",) if role == "partition" else (),
        options={"file.format": file_format, **({} if role == "partition" else kept)},
    )


@pytest.mark.parametrize("writer", [limits.JAVA, limits.JAVA_OLD, OURS])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("role", ["value", "key", "partition"])
@pytest.mark.sampled(3)
def test_engines_see_the_same_blanks(
    role: str,
    file_format: str,
    writer: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    path, case = tmp_path / "db.db" / "t", table_of(role, file_format, [TEXTS])
    by = LakecoreEngine() if writer == OURS else peers(writer)
    by.create(path, case)
    by.write(path, case.commits[0])
    texts = WITHOUT if file_format == "orc" and role != "partition" else TEXTS
    expected = sorted([text, number] for number, text in enumerate(texts))

    for reader in (LakecoreEngine(), peers(limits.JAVA), peers(limits.JAVA_OLD)):
        assert sorted(reader.read(path)) == expected, reader.name


@pytest.mark.parametrize("writer", [limits.JAVA, OURS])
@pytest.mark.parametrize(
    "commits",
    [
        (["ab", "ab   ", "abcde"], ["ab"], ["ab   "]),
        (["ab   "], ["ab"]),
        (["ab", "abc"], ["ab   ", "b"]),
        (["ab   ", "x"], ["x "]),
    ],
    ids=str,
)
def test_keys_that_differ_by_blanks_are_merged_as_java_merges_them(
    commits: Sequence[Sequence[str]],
    writer: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    path, case = tmp_path / "db.db" / "t", table_of("key", "orc", commits)
    java, ours = peers(limits.JAVA), LakecoreEngine()
    by = ours if writer == OURS else java
    by.create(path, case)
    for changes in case.commits:
        by.write(path, changes)
    expected = sorted(java.read(path))

    assert sorted(ours.read(path)) == expected
    numbers = [row[1] for row in expected if row[0] == "ab"]
    found = lc.open_table(path).to_polars(where="c = 'ab'")
    assert sorted(found["n"].to_list()) == numbers

    lc.open_table(path).compact(full=True)
    assert sorted(ours.read(path)) == sorted(java.read(path)) == expected
