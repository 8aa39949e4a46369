"""Histories of keys, written as lists of values, folded by one aggregate function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.merge.keys import Groups
from lakecore.model.types import arrow_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = "ARRAY<ROW<k INT, s INT, v STRING>>"


@dataclass(frozen=True)
class Back:
    """A value that is taken back."""

    value: Any


def fold(function: str, kind: str, *histories: Sequence[Any], **options: Any) -> list[Any]:
    """One value a history. The values lie in the middle of an array, as a slice of it."""
    data_type = parse_type(kind)
    aggregate = Aggregate(column="x", function=function, type=data_type, **options)
    bound = AGGREGATORS[function](aggregate)
    steps = [step for history in histories for step in history]
    plain = [step.value if isinstance(step, Back) else step for step in steps]
    retract = np.array([isinstance(step, Back) for step in steps], bool)
    around = plain[-1:] + plain[:1]
    values = pa.array([*around, *plain, *around], arrow_type(data_type))
    starts = np.cumsum([0, *map(len, histories)])[:-1].astype(np.int64)
    folded = bound(
        values.slice(len(around), len(plain)),
        Groups(starts, len(plain)),
        retract if retract.any() else None,
    )
    folded.validate(full=True)
    assert folded.type == values.type
    result: list[Any] = folded.to_pylist()
    return result


def rows(*values: tuple[Any, ...] | None) -> list[dict[str, Any] | None]:
    """Values of the type ROWS, a tuple (k, s, v) each."""
    return [None if v is None else dict(zip("ksv", v, strict=True)) for v in values]
