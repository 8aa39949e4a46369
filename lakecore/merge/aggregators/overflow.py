"""The error for an aggregate that is outside the range of its type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.merge.aggregators.fold import Aggregate


def overflow(aggregate: Aggregate) -> InvalidRequest:
    """The error for a result that the column's type cannot hold."""
    return InvalidRequest(
        "the aggregate of a column leaves the range of its type; widen the type",
        column=aggregate.column,
        function=aggregate.function,
        type=aggregate.type,
    )
