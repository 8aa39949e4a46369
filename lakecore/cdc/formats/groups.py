"""Collects the rows of many messages by table and schema, and makes batches of changes of them.

A decoder reads the envelopes and adds the rows, as JSON text, to the group of their table. When the
schema of a table changes, its group ends and another begins, so that the order of the rows of a
table is kept.

If rows do not fit, a binary search finds the first such row, and the error names its message. A
caller may choose to continue without this message: it then receives the error, and all rows of the
message are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.formats.json_values import JsonError
from lakecore.cdc.formats.messages import BadMessage, Messages
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = ["Group", "Groups", "OnBad", "Shape"]

OnBad: TypeAlias = Callable[[BadMessage], None]
"""Called with the error of a message that cannot be read; it may raise the error."""


class Shape(Protocol):
    """A *shape*: the conversion of the rows of one schema to columns."""

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows. Raises InvalidRequest or JsonError."""
        ...


@dataclass(slots=True)
class Group:
    """The rows of one table under one schema, in order, each with its kind and message number."""

    table: SourceTable
    shape: Shape
    primary_key: tuple[str, ...]
    raws: list[Any] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, raw: Any, kind: int, index: int) -> None:
        """Add a row in the form that the shape reads, with its kind and its message's number."""
        self.raws.append(raw)
        self.kinds.append(kind)
        self.indexes.append(index)


class Groups:
    """The groups of one list of messages, in the order of their first rows."""

    def __init__(self, messages: Messages, on_bad: OnBad) -> None:
        self._messages = messages
        self._on_bad = on_bad
        self._open: dict[Hashable, tuple[Hashable, Group]] = {}
        self._all: list[Group] = []

    def find(self, table: Hashable, schema: Hashable) -> Group | None:
        """The open group of a table, if it has this schema."""
        found = self._open.get(table)
        return found[1] if found is not None and found[0] == schema else None

    def begin(self, table: Hashable, schema: Hashable, group: Group) -> Group:
        """Make this the open group of the table."""
        self._open[table] = (schema, group)
        self._all.append(group)
        return group

    def batches(self) -> list[ChangeBatch]:
        """The batches of all groups."""
        found = [self._batch(group) for group in self._all]
        return [batch for batch in found if batch is not None and len(batch)]

    def _batch(self, group: Group) -> ChangeBatch | None:
        while group.raws:
            try:
                schema, rows = group.shape.read(group.raws, group.primary_key)
            except (InvalidRequest, JsonError):
                group = self._without_first_bad(group)
                continue
            metadata = self._messages.metadata
            return ChangeBatch(
                table=group.table,
                schema=schema,
                rows=rows,
                kinds=pa.array(np.array(group.kinds, np.int8)),
                metadata=None if metadata is None else metadata.take(pa.array(group.indexes)),
                order=pa.array(group.indexes, pa.int64()),
            )
        return None

    def _without_first_bad(self, group: Group) -> Group:
        """The group without the rows of the first message that cannot be read."""
        low, high = 0, len(group.raws)
        while high - low > 1:
            middle = (low + high) // 2
            if _error_of(group, low, middle) is None:
                low = middle
            else:
                high = middle
        error = _error_of(group, low, high)
        assert error is not None, "rows can be read one by one, but not together"
        bad = group.indexes[low]
        reason = error.message if isinstance(error, InvalidRequest) else str(error)
        facts = error.facts if isinstance(error, InvalidRequest) else {}
        shown = {name: value for name, value in facts.items() if name not in {"value", "number"}}
        if "value" in facts:
            shown["column_value"] = facts["value"]
        self._on_bad(self._messages.bad(bad, reason, **shown))
        kept = [at for at, index in enumerate(group.indexes) if index != bad]
        return replace(
            group,
            raws=[group.raws[at] for at in kept],
            kinds=[group.kinds[at] for at in kept],
            indexes=[group.indexes[at] for at in kept],
        )


def _error_of(group: Group, start: int, stop: int) -> InvalidRequest | JsonError | None:
    try:
        group.shape.read(group.raws[start:stop], group.primary_key)
    except (InvalidRequest, JsonError) as error:
        return error
    return None
