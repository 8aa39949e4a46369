"""Cuts a bucket by keys: the order of keys, and the condition for rows between two of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import EMPTY_ROW, NO_STATS
from lakecore.plan.predicate import Compare, Op, Predicate, all_of, any_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lakecore.model.files import Split

__all__ = ["Key", "decode_rows", "key_ranks", "keys_between", "without_statistics"]

Key: TypeAlias = tuple[pa.Scalar, ...]


def key_ranks(keys: Sequence[Sequence[pa.Array]]) -> list[np.ndarray]:
    """The rank of each key among the keys of all lists; equal keys have equal ranks.

    Each list of keys has one array per key column.
    """
    return list(shared_codes([order_columns(columns) for columns in keys]))


def keys_between(names: Sequence[str], first: Key | None, end: Key | None) -> Predicate:
    """The condition that a row's key is at or after `first` and before `end`; None is no bound."""
    parts = [] if first is None else [any_of((_beyond(names, first, Op.GT), _equal(names, first)))]
    return all_of(parts if end is None else [*parts, _beyond(names, end, Op.LT)])


def without_statistics(split: Split) -> Split:
    """The split without its files' key bounds, statistics and indexes: tasks need none of them."""
    return replace(
        split,
        runs=tuple(
            tuple(
                replace(
                    file,
                    key_min=EMPTY_ROW,
                    key_max=EMPTY_ROW,
                    key_stats=NO_STATS,
                    value_stats=NO_STATS,
                    extra_files=(),
                    embedded_index=None,
                )
                for file in run
            )
            for run in split.runs
        ),
    )


def _beyond(names: Sequence[str], key: Key, op: Op) -> Predicate:
    """The condition that a row's key is after this one (`op` GT) or before it (LT)."""
    return any_of(
        all_of((_equal(names[:place], key[:place]), Compare(name, op, key[place])))
        for place, name in enumerate(names)
    )


def _equal(names: Sequence[str], key: Key) -> Predicate:
    return all_of(Compare(name, Op.EQ, value) for name, value in zip(names, key, strict=True))
