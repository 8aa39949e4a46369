"""Aggregate functions: the values of a column, key by key, become one value a key.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/aggregation/

Functions work on whole columns. What cannot: bitmaps and sketches are united by their libraries,
one call for each key that has several (no library unites arrays of sets); products of DECIMALs go
by Python's integers inside NumPy (no Arrow type holds 76 digits); and where the outcome hangs on
the order of steps (an overflow, a product divided, early rows beside rows taken back, `listagg`
whose delimiter overlaps itself), step j takes the j-th row of every key at once.

`AGGREGATORS` is the table of them; adding one is one entry here and its types in
`model/merge_rules.py`. An entry binds the function to a column; what it gives back is a `Fold`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.merge.aggregators import (
    choices,
    collections,
    extremes,
    nested,
    products,
    sketches,
    sums,
    texts,
)
from lakecore.merge.aggregators.fold import Aggregate, Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["AGGREGATORS", "Aggregate", "Fold"]

AGGREGATORS: Mapping[str, Callable[[Aggregate], Fold]] = {
    "sum": sums.sum_of,
    "product": products.product_of,
    "max": extremes.max_of,
    "min": extremes.min_of,
    "bool_and": choices.bool_and,
    "bool_or": choices.bool_or,
    "last_value": choices.last_value,
    "last_non_null_value": choices.last_non_null_value,
    "first_value": choices.first_value,
    "first_non_null_value": choices.first_non_null_value,
    "first_not_null_value": choices.first_non_null_value,
    "listagg": texts.listagg,
    "collect": collections.collect,
    "merge_map": collections.merge_map,
    "merge_map_with_keytime": collections.merge_map_with_keytime,
    "nested_update": nested.nested_update,
    "nested_partial_update": nested.nested_partial_update,
    "rbm32": sketches.rbm32,
    "rbm64": sketches.rbm64,
    "hll_sketch": sketches.hll_sketch,
    "theta_sketch": sketches.theta_sketch,
}
