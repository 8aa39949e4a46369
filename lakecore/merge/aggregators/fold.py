"""What an aggregate function is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.merge.groups import is_valid, pick

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
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
class Fold:
    """An aggregate function bound to a column: either `fold` or `choose`.

    `fold` is given values in the order they are to be folded, their groups, and a mask of the
    values to take back (None: none); it gives one value a group, of the type of the values, having
    started from nothing. `choose` takes one of the values as it is: it is given only which of them
    are not null, and gives the position of one a group, or NONE for null.

    `retracts`: whether it can take values back; otherwise it is never given a mask. `commutes`:
    whether the order of the values makes no difference.
    """

    fold: Callable[[pa.Array, Groups, np.ndarray | None], pa.Array] | None = None
    choose: Callable[[np.ndarray, Groups, np.ndarray | None], np.ndarray] | None = None
    retracts: bool = False
    commutes: bool = False

    def __call__(self, values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        """One value a group, whichever of the two the function is."""
        if self.choose is not None:
            return pick(values, self.choose(is_valid(values), groups, retract))
        assert self.fold is not None, "a function folds or chooses"
        return self.fold(values, groups, retract)
