"""The Arrow face: an exact stream in the source's own types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable
from lakecore.frames.filtered import reader
from lakecore.plan.predicate import Compare, Op
from tests.frames.made_rows import HeldRows, MadeRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.plan.predicate import Predicate


def test_a_stream_has_the_types_of_the_source(all_types: pa.Table) -> None:
    source = HeldRows(all_types)

    assert reader(source).read_all().equals(all_types)
    assert reader(source).schema == all_types.schema
    assert reader(source, ["s", "id"]).schema.names == ["s", "id"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (pl.col("id") > 7, [8, 9]),
        (pl.col("id") % 5 == 1, [1, 6]),
        ((pl.col("id") > 7) & (pl.col("half") < 4.5), [8]),
        (pl.lit(value=True), list(range(10))),
        (pl.lit(value=False), []),
        (pl.lit(None), []),
        (pl.col("id", "half") > 4, [9]),
    ],
)
def test_a_stream_holds_the_matching_rows(where: pl.Expr, expected: list[int]) -> None:
    found = reader(MadeRows(10, batch_rows=3), ["id"], where).read_all()

    assert found["id"].to_pylist() == expected
    assert found.schema.names == ["id"]


def test_a_condition_on_other_columns_is_applied_and_pushed() -> None:
    source = MadeRows(10, batch_rows=3)
    found = reader(source, ["text"], pl.col("id") == 4).read_all()

    assert found.to_pylist() == [{"text": "row 4"}]
    assert source.last.columns == ["text", "id"]
    assert source.last.predicate == Compare("id", Op.EQ, pa.scalar(4))


def test_a_limit_ends_the_stream_and_the_source() -> None:
    source = MadeRows(5_000_000)

    assert reader(source, ["id"], limit=5).read_all()["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert source.last.limit == 5
    assert source.last.closed
    assert reader(source, ["id"], limit=0).read_all().num_rows == 0


def test_a_limit_of_matching_rows_ends_the_stream_and_the_source() -> None:
    source = MadeRows(5_000_000)

    assert reader(source, ["id"], pl.col("id") > 9, 2).read_all()["id"].to_pylist() == [10, 11]
    assert source.last.limit is None
    assert source.last.rows == source.batch_rows
    assert source.last.closed


def test_a_dropped_stream_closes_the_source() -> None:
    source = MadeRows(5_000_000)
    stream = reader(source)
    stream.read_next_batch()
    del stream

    assert source.last.closed


def test_a_stream_is_taken_by_what_reads_arrow() -> None:
    assert pl.DataFrame(reader(MadeRows(1000), ["id", "day"])).shape == (1000, 2)


def test_no_columns_are_still_rows() -> None:
    assert reader(MadeRows(10, batch_rows=4), []).read_all().num_rows == 10


def test_an_error_of_the_source_is_raised_as_it_is() -> None:
    class Broken(MadeRows):
        def batches(
            self,
            columns: Sequence[str] | None = None,
            predicate: Predicate | None = None,
            limit: int | None = None,
        ) -> Iterator[pa.RecordBatch]:
            yield from MadeRows(3).batches(columns, predicate, limit)
            raise CorruptTable("a file is short", path="x")

    with pytest.raises(CorruptTable, match="a file is short"):
        reader(Broken(10)).read_all()
