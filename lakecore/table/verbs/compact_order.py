"""Checks the `order_strategy` and `order_by` of a compaction, and converts them to a sort order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.curves import Ordering
from lakecore.model.types import Atomic
from lakecore.options import OrderStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.context import TableContext

_NONE = "none"


def sort_ordering(
    context: TableContext, strategy: object, columns: Sequence[str] | str | None
) -> Ordering | None:
    """The order in which a compaction sorts rows; None if it does not sort.

    Raises InvalidRequest for an unknown strategy or column, and for a table with incremental
    clustering or with buckets; Unsupported for a table with a primary key or data evolution.
    """
    schema, options = context.schema, context.options
    names = _names(columns)
    if strategy is None or strategy == _NONE:
        if names:
            raise InvalidRequest(
                "order_by needs an order_strategy", order_by=names, known=[*OrderStrategy]
            )
        return None
    if not isinstance(strategy, str) or strategy.lower() not in [*OrderStrategy]:
        raise InvalidRequest(
            "unknown order_strategy", order_strategy=strategy, known=[*OrderStrategy]
        )
    facts = {"table": context.identifier}
    _require_sortable(context)
    chosen = OrderStrategy(strategy.lower())
    if not names:
        raise InvalidRequest("order_by needs at least one column", order_strategy=chosen, **facts)
    if chosen is OrderStrategy.HILBERT and len(names) == 1:
        raise InvalidRequest("a Hilbert order needs at least two columns", order_by=names, **facts)
    for name in names:
        if name in schema.partition_keys:
            raise InvalidRequest(
                "order_by names a partition key, which is equal in all rows of a partition",
                column=name,
                **facts,
            )
        field = schema.field(name)
        if not isinstance(field.type, Atomic):
            raise InvalidRequest(
                "rows cannot be sorted by a nested column", column=name, type=field.type, **facts
            )
    return Ordering(
        strategy=chosen, columns=names, var_bytes=options.zorder_var_length_contribution
    )


def _require_sortable(context: TableContext) -> None:
    """Raise an error if the rows of the table cannot be sorted."""
    options = context.options
    facts = {"table": context.identifier}
    if context.schema.primary_keys:
        raise Unsupported(
            "sorting the rows of a table with a primary key is not supported", **facts
        )
    if options.data_evolution_enabled:
        # As in Paimon. Files with columns of the same rows must have the rows in the same order.
        raise Unsupported("the rows of a table with data evolution are not sorted", **facts)
    if options.bucket != -1:
        raise InvalidRequest("only tables with bucket=-1 can be sorted", **facts)
    if options.clustering_incremental:
        raise InvalidRequest(
            "the table clusters incrementally: compact it without order_strategy, or set "
            "clustering.incremental=false",
            **facts,
        )


def _names(columns: object) -> tuple[str, ...]:
    if columns is None:
        return ()
    parts = columns.split(",") if isinstance(columns, str) else columns
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        raise InvalidRequest("order_by is a list of columns", order_by=columns)
    names = [part.strip() for part in parts]
    wrong = [name for name in names if not name or names.count(name) > 1]
    if wrong:
        raise InvalidRequest("order_by names a column twice, or none", order_by=columns)
    return tuple(names)
