"""What Polars 1 does otherwise than Polars 2. All of it is here.

1. If a source raises an error, Polars 1 ends the query by a ComputeError with the text of the
   error. There, a frame over a source and the frames that are derived from it are `_Frame`s, which
   raise the error itself. NOTE: a query that does not begin with such a frame (`pl.concat`,
   `pl.sql`, a join of another frame), `pl.collect_all`, `collect_async` and a query in the
   background raise the ComputeError.
2. A horizontal `concat` is strict on request only.
3. It has no type of maps: a MAP is a list of structs of `key` and `value`.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import polars as pl
from polars.io.plugins import register_io_source
from polars.lazyframe.group_by import LazyGroupBy

from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Read = Callable[
        [list[str] | None, pl.Expr | None, int | None, int | None], Iterator[pl.DataFrame]
    ]
P = ParamSpec("P")
R = TypeVar("R")
_IS_FIRST = "explain_name" not in signature(register_io_source).parameters
_RAISED: deque[LakecoreError | OSError] = deque(maxlen=8)
"""The newest errors of sources that no query has raised yet. Few: each keeps its traceback."""
HAS_MAPS = hasattr(pl, "Map")
"""Whether Polars has a type of maps."""
if TYPE_CHECKING or HAS_MAPS:
    Map = pl.Map
else:

    class Map(pl.DataType):
        """The type of no column."""


def frame_of(read: Read, schema: pl.Schema | dict[str, pl.DataType]) -> pl.LazyFrame:
    """The rows that `read` gives, as `register_io_source` calls it; plans show "lakecore"."""
    if not _IS_FIRST:
        return register_io_source(read, schema=schema, is_pure=True, explain_name="lakecore")

    def noting(*arguments: object) -> Iterator[pl.DataFrame]:
        try:
            yield from read(*arguments)  # type: ignore[arg-type]
        except (LakecoreError, OSError) as error:
            _RAISED.append(error)
            raise

    return _framed(register_io_source(noting, schema=schema, is_pure=True))


def beside(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """The columns of frames of one height. Their query raises an error if heights differ."""
    return pl.concat(frames, how="horizontal", strict=True if _IS_FIRST else None)


def _raising(call: Callable[P, R]) -> Callable[P, R]:
    @wraps(call)
    def run(*arguments: P.args, **named: P.kwargs) -> R:
        with _errors_of_sources():
            return call(*arguments, **named)

    return run


@contextmanager
def _errors_of_sources() -> Iterator[None]:
    try:
        yield
    except pl.exceptions.ComputeError as error:
        text = str(error)
        found = next((each for each in [*_RAISED] if str(each) and str(each) in text), None)
        if found is None:
            raise
        with suppress(ValueError):
            _RAISED.remove(found)
        raise found from None


class _Frame(pl.LazyFrame):
    """A frame that raises the error of its source."""

    def collect_batches(self, **named: object) -> Iterator[pl.DataFrame]:  # type: ignore[override]
        with _errors_of_sources():
            yield from super().collect_batches(**named)  # type: ignore[arg-type]


def _framed(frame: pl.LazyFrame) -> pl.LazyFrame:
    return _Frame._from_pyldf(frame._ldf)  # noqa: SLF001  as Polars derives a frame from another


class _Groups(LazyGroupBy):
    """The groups of such a frame."""


def _grouped(call: Callable[P, LazyGroupBy]) -> Callable[P, LazyGroupBy]:
    @wraps(call)
    def run(*arguments: P.args, **named: P.kwargs) -> LazyGroupBy:
        groups = call(*arguments, **named)
        groups.__class__ = _Groups
        return groups

    return run


def _derived(call: Callable[P, pl.LazyFrame]) -> Callable[P, pl.LazyFrame]:
    @wraps(call)
    def run(*arguments: P.args, **named: P.kwargs) -> pl.LazyFrame:
        return _framed(call(*arguments, **named))

    return run


if _IS_FIRST:
    for _name in ("collect", *(each for each in dir(pl.LazyFrame) if each.startswith("sink_"))):
        setattr(_Frame, _name, _raising(getattr(pl.LazyFrame, _name)))
    for _name in ("group_by", "group_by_dynamic", "rolling"):
        setattr(_Frame, _name, _grouped(getattr(pl.LazyFrame, _name)))
    for _name in ("agg", "head", "tail", "map_groups"):
        setattr(_Groups, _name, _derived(getattr(LazyGroupBy, _name)))
