"""The interface of aggregate functions: their parameters, and what they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakecore.merge.keys import NONE, Groups, blended, is_valid, pick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakecore.model.types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """The aggregate function of a column, with its options `fields.COLUMN.*`."""

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
    """A function that selects one value: the last or the first, with or without nulls."""

    last: bool
    nulls: bool

    def __call__(self, valid: np.ndarray, groups: Groups, retract: np.ndarray | None) -> np.ndarray:
        """The position of the chosen value of each group; NONE if it is null or retracted."""
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
    """A function as one operation on arrays: `join` combines states with values to new states.

    `neutral` is the neutral element of `join`, in the type that `join` computes with. `fits` says
    whether joining all given values, in any order, stays within the type.
    """

    neutral: np.generic
    join: np.ufunc
    fits: Callable[[Sequence[np.ndarray]], bool]

    def joined(self, held: np.ndarray, known: np.ndarray, own: np.ndarray) -> np.ndarray:
        """The states combined with the next values, all as integers of the same width.

        A state that is not `known` may hold any value.
        """
        number, nothing = self.neutral.dtype, self.neutral.view(own.dtype)
        left = blended(known, held, nothing)
        joined: np.ndarray = self.join(left.view(number), own.view(number))
        return joined.view(own.dtype)


Kept: TypeAlias = "Callable[[np.ndarray, Groups, np.ndarray], np.ndarray]"
"""Given masks of the non-null and of the retracted values: the retractions to keep."""


def kept_known(valid: np.ndarray, groups: Groups, retract: np.ndarray) -> np.ndarray:
    """Keeps every retraction of a non-null value: the fold has no older value to retract from."""
    del groups
    known: np.ndarray = valid & retract
    return known


def kept_last(valid: np.ndarray, groups: Groups, retract: np.ndarray) -> np.ndarray:
    """The retractions of values after which no other value is added."""
    replaced = np.repeat(groups.last(valid & ~retract), groups.sizes)
    last: np.ndarray = valid & retract & (np.arange(groups.length) > replaced)
    return last


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """An aggregate function bound to a column: either `fold` or `choice`.

    `fold` gets the values in fold order, their groups, and a mask of the values to retract (None:
    none). The fold starts from nothing, and returns one value for each group, in the type of the
    values. `choice` returns one of the values.

    - `step`: the same as `fold` without retractions, where possible.
    - `retracts`: whether values can be retracted; if not, the function never gets a mask;
    - `keeps`: which retractions a fold without the older values of the key would lose: a mask of
      the retractions, given the mask of non-null values; None: the folded value accounts for all;
    - `keeps_added`: the same for added values; None: none;
    - `changes_single`: whether a single added value may become another one.
    - `commutes`: whether the order of the values does not matter.
    - `reverses`: whether a value that is older than the state of its sequence group is folded in
      front of it; if not, values are folded in order of arrival.
    """

    fold: Callable[[pa.Array, Groups, np.ndarray | None], pa.Array] | None = None
    choice: Choice | None = None
    step: Step | None = None
    retracts: bool = False
    keeps: Kept | None = kept_known
    keeps_added: Callable[[pa.Array, Groups], np.ndarray] | None = None
    changes_single: bool = False
    commutes: bool = False
    reverses: bool = True

    @property
    def associates(self) -> bool:
        """Whether neighbouring added values may be folded in any grouping."""
        return self.keeps_added is None

    def __call__(self, values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        if self.choice is not None:
            return pick(values, self.choice(is_valid(values), groups, retract))
        assert self.fold is not None, "a function folds or chooses"
        return self.fold(values, groups, retract)
