"""Aggregate functions: they fold the values of a column to one value for each key.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/aggregation/

Functions work on whole columns, with these exceptions:

- Bitmaps and sketches are united by their libraries, with one call for each key with several rows,
  because no library unites arrays of sets.
- Products of DECIMALs use Python integers in NumPy, because no Arrow type holds 76 digits.
- If the result depends on the order of steps (an overflow, a divided product, early rows together
  with retractions, `listagg` with a delimiter that overlaps itself), step j takes the j-th row of
  every key.

`AGGREGATORS` maps names to functions. A new function needs one entry here, and its types in
`model/merge_rules.py`. An entry binds the function to a column and returns a `Fold`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.merge.aggregators import choices, collections, sketches, sums
from lakecore.merge.aggregators.fold import Aggregate, Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["AGGREGATORS", "Aggregate", "Fold"]

AGGREGATORS: Mapping[str, Callable[[Aggregate], Fold]] = {
    "sum": sums.sum_of,
    "product": sums.product_of,
    "max": choices.max_of,
    "min": choices.min_of,
    "bool_and": choices.bool_and,
    "bool_or": choices.bool_or,
    "last_value": choices.last_value,
    "last_non_null_value": choices.last_non_null_value,
    "first_value": choices.first_value,
    "first_non_null_value": choices.first_non_null_value,
    "first_not_null_value": choices.first_non_null_value,
    "listagg": choices.listagg,
    "collect": collections.collect,
    "merge_map": collections.merge_map,
    "merge_map_with_keytime": collections.merge_map_with_keytime,
    "nested_update": collections.nested_update,
    "nested_partial_update": collections.nested_partial_update,
    "rbm32": sketches.rbm32,
    "rbm64": sketches.rbm64,
    "hll_sketch": sketches.hll_sketch,
    "theta_sketch": sketches.theta_sketch,
}
