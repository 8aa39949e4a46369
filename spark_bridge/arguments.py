"""Checks of arguments that several verbs take: a table or its path, and counts."""

from __future__ import annotations

import os
import sys
import warnings
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from lakecore import InvalidRequest, Table, open_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.distributed import TableContext

SPREAD_BYTES = 256 << 20
"""The driver does the work of a verb itself if the files have at most this many bytes."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def named_arguments(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, which then raises InvalidRequest for an unknown argument, naming the nearest.

    Every public function has this check, because users of Spark's APIs write `retainMax`. A
    function with flags checks lower-case names itself.
    """
    parameters = signature(function).parameters
    takes_flags = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = {name.replace("_", ""): name for name in parameters}

    @wraps(function)
    def checked(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        for name in named.keys() - known.values():
            if takes_flags and name.islower():
                continue
            near = get_close_matches(name.lower().replace("_", ""), known, 1)
            raise InvalidRequest(
                f"{function.__name__} has no such argument",
                argument=name,
                **{"did_you_mean": known[near[0]]} if near else {"known": list(known.values())},
            )
        return function(*given, **named)

    return checked


def opened(table: Table | str | os.PathLike[str]) -> Table:
    """The table itself, or the table at the path. Raises InvalidRequest for anything else."""
    if isinstance(table, str | os.PathLike):
        return open_table(table)
    if not isinstance(table, Table):
        raise InvalidRequest(
            "the table is a lakecore table or its path; the order is write(df, table), "
            "read(spark, table), merge(spark, table, source)",
            given=_kind(table),
        )
    return table


def check_frame(df: object) -> None:
    """Raise InvalidRequest unless `df` is a Spark frame."""
    if not hasattr(df, "sparkSession"):
        raise InvalidRequest(
            "the rows are a Spark frame: spark.createDataFrame(rows) makes one of an Arrow table "
            "(frame.to_arrow() of Polars) or pandas; the table comes after it",
            given=_kind(df),
        )


def check_no_column(**given: object) -> None:
    """Raise InvalidRequest, naming the argument, for a Column of Spark."""
    for name, value in given.items():
        if type(value).__module__.startswith("pyspark."):
            raise InvalidRequest(
                "a Column of Spark is no condition or value here: give SQL or a Polars expression",
                argument=name,
                given=str(value),
            )


def warn(message: str) -> None:
    """Issue a UserWarning for the user's line that called spark_bridge."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  warnings.warn takes only a level
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("spark_bridge."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _kind(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]} {type(value).__name__}"


def overwrites_dynamically(context: TableContext, mode: str = "static") -> bool:
    """Whether INSERT OVERWRITE and `df.write` replace only partitions for which there are rows.

    The option `dynamic-partition-overwrite` decides if it is set, otherwise Spark's own `mode`
    (`spark.sql.sources.partitionOverwriteMode`).
    """
    if "dynamic-partition-overwrite" in context.options.texts:
        return context.options.dynamic_partition_overwrite
    return mode.lower() == "dynamic"


def check_counts(**counts: object) -> None:
    """Raise InvalidRequest, naming the argument, unless each is None or a whole number above 0."""
    for name, count in counts.items():
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidRequest(f"{name} is a whole number above 0", **{name: count})


def check_every(every: object) -> None:
    """Raise InvalidRequest unless `compact_every` is None or a whole number from 0 on."""
    if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 0):
        raise InvalidRequest("compact_every is a whole number from 0 on", compact_every=every)


def check_spread(spread: object) -> None:
    """Raise InvalidRequest unless `spread` is True, False or None."""
    if spread not in (True, False, None):
        raise InvalidRequest("spread is True, False or None", spread=spread)
