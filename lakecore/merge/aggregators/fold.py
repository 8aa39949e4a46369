"""What an aggregate function is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.merge.groups import NONE, blended, is_valid, pick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakecore.merge.groups import Groups
    from lakecore.model.types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """The function of a column, with the options `fields.COLUMN.*` that it may heed."""

    column: str
    function: str
    type: DataType
    ignore_retract: bool = False
    distinct: bool = False
    delimiter: str = ","
    nested_key: tuple[str, ...] = ()
    nested_key_null_strategy: str | None = None
    nested_sequence_field: tuple[str, ...] = ()
    count_limit: int | None = None
    ts_field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which value of a key is taken as it is: the last or the first; whether nulls count."""

    last: bool
    nulls: bool

    def __call__(self, valid: np.ndarray, groups: Groups, retract: np.ndarray | None) -> np.ndarray:
        """The position of the value of each group; NONE for null, and where it is taken back."""
        if self.nulls:
            at = groups.lasts if self.last else groups.starts
        else:
            at = groups.last(valid) if self.last else groups.first(valid)
        return at if retract is None else np.where((at >= 0) & retract[at], NONE, at)


LAST = Choice(last=True, nulls=True)
LAST_NON_NULL = Choice(last=True, nulls=False)
FIRST = Choice(last=False, nulls=True)
FIRST_NON_NULL = Choice(last=False, nulls=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A function as one operation on arrays: what is held and the next value, key by key.

    `neutral`, of the type that is computed on, changes no value that it is joined with. `fits`:
    whether joining all of these, in whatever order, stays within the type.
    """

    neutral: np.generic
    join: np.ufunc
    fits: Callable[[Sequence[np.ndarray]], bool]

    def joined(self, held: np.ndarray, known: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Values held joined with the next ones, all as integers of the same bits.

        Anything may stand where a value held is not `known`.
        """
        number, nothing = self.neutral.dtype, self.neutral.view(own.dtype)
        left = blended(known, held, nothing)
        joined: np.ndarray = self.join(left.view(number), own.view(number))
        return joined.view(own.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """An aggregate function bound to a column: either `fold` or `choice`.

    `fold` is given values in the order they are to be folded, their groups, and a mask of the
    values to take back (None: none); it gives one value a group, of the type of the values, having
    started from nothing. `choice` takes one of the values as it is.

    `step`: the same as `fold` where nothing is taken back, if it can be done so. `retracts`:
    whether values can be taken back; otherwise the function is never given a mask. `commutes`:
    whether the order of the values makes no difference. `associates`: whether neighbours may be
    folded first, whichever they are.
    """

    fold: Callable[[pa.Array, Groups, np.ndarray | None], pa.Array] | None = None
    choice: Choice | None = None
    step: Step | None = None
    retracts: bool = False
    commutes: bool = False
    associates: bool = True

    def __call__(self, values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        """One value a group, whichever of the two the function is."""
        if self.choice is not None:
            return pick(values, self.choice(is_valid(values), groups, retract))
        assert self.fold is not None, "a function folds or chooses"
        return self.fold(values, groups, retract)
