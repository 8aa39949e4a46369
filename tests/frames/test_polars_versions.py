"""Every supported Polars raises the error of a source, and keeps the height of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from lakecore.errors import CorruptTable
from lakecore.frames.polars_versions import beside, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DERIVED: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "itself": lambda frame: frame,
    "filter": lambda frame: frame.filter(pl.col("a") > 1).select("a"),
    "join": lambda frame: frame.join(pl.LazyFrame({"a": [1]}), on="a"),
    "group": lambda frame: frame.group_by("a").agg(pl.len()).sort("a").head(3),
}
ENDS: dict[str, Callable[[pl.LazyFrame, Path], object]] = {
    "collect": lambda frame, _: frame.collect(),
    "streaming": lambda frame, _: frame.collect(engine="streaming"),
    "batches": lambda frame, _: list(frame.collect_batches()),
    "file": lambda frame, path: frame.sink_parquet(path / "f.parquet"),
}


def failing(*_: object) -> Iterator[pl.DataFrame]:
    yield pl.DataFrame({"a": [1]})
    raise CorruptTable("the file is damaged", path="x")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("derived", DERIVED)
def test_a_query_raises_what_its_source_raises(derived: str, end: str, tmp_path: Path) -> None:
    frame = DERIVED[derived](frame_of(failing, {"a": pl.Int64()}))

    with pytest.raises(CorruptTable, match="the file is damaged"):
        ENDS[end](frame, tmp_path)


def test_an_error_of_the_query_itself_stays_what_it_is() -> None:
    frame = frame_of(lambda *_: iter([pl.DataFrame({"a": ["x"]})]), {"a": pl.String()})

    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion"):
        frame.select(pl.col("a").cast(pl.Int64)).collect()


def test_frames_beside_each_other_have_one_height() -> None:
    left, right = pl.LazyFrame({"a": [1, 2]}), pl.LazyFrame({"b": [1]})

    with pytest.raises(pl.exceptions.ShapeError):
        beside([left, right]).collect()
