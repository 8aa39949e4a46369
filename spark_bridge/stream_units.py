"""Groups the rows of a snapshot into units, and units into tasks.

Splits of changes that may hold rows of the same key are one unit, in the order of the changes. That
unit is usually a bucket. It is a partition if an overwrite may move a key to another bucket, and
the whole table if a key may move to another partition. In a state, and in a table that has neither
a key nor fixed buckets, each split is one unit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.distributed.changes import Replaced
from lakecore.distributed.key_ranges import without_statistics
from spark_bridge.stream_read import ChangeUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.distributed.changes import State, StoredRows, Wanted
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.values import Split
    from spark_bridge.stream_options import Limits

__all__ = ["Size", "packed", "plan_mark", "units_of", "units_of_state"]

TASKS_WANTED = 16


@dataclass(slots=True)
class Size:
    """The size of a batch, in snapshots, files, bytes and rows."""

    snapshots: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0

    def plus(self, units: Sequence[ChangeUnit], *, snapshots: int) -> Size:
        """The size of the batch with these units added."""
        splits = [split for unit in units for rows in unit.rows for split in rows.splits]
        files = [file for split in splits for file in split.files]
        return Size(
            snapshots=self.snapshots + snapshots,
            files=self.files + len(files),
            bytes=self.bytes + sum(file.size_bytes for file in files),
            rows=self.rows + sum(split.row_count for split in splits),
        )

    def within(self, limits: Limits) -> bool:
        """Whether a batch of this size is within the limits."""
        return limits.hold(self.snapshots, self.files, self.bytes, self.rows)


def units_of_state(state: State, wanted: Wanted) -> list[ChangeUnit]:
    """A unit for each split of a state."""
    return [
        ChangeUnit(snapshot_id=state.snapshot.id, rows=(replace(rows, splits=(slim,)),))
        for rows in state.planned(wanted)
        for slim in map(without_statistics, rows.splits)
    ]


def units_of(change: StoredRows | Replaced, wanted: Wanted) -> list[ChangeUnit]:
    """The units of the changes of a snapshot."""
    replaced = isinstance(change, Replaced)
    planned = list(change.planned(wanted))
    groups: dict[object, list[tuple[int, Split]]] = {}
    for number, rows in enumerate(planned):
        for place, split in enumerate(rows.splits):
            key = _together(split, wanted.context, replaced=replaced)
            own = groups.setdefault((number, place) if key is None else key, [])
            own.append((number, without_statistics(split)))
    return [
        ChangeUnit(
            snapshot_id=change.snapshot.id,
            rows=tuple(
                replace(rows, splits=splits)
                for number, rows in enumerate(planned)
                if (splits := tuple(split for each, split in own if each == number))
            ),
        )
        for own in groups.values()
    ]


def _together(split: Split, context: TableContext, *, replaced: bool) -> object:
    """A value that is equal for splits that may share keys; None if no splits can share keys."""
    schema, fixed = context.schema, context.options.bucket > 0
    if not schema.primary_keys:
        return (split.partition, split.bucket) if fixed else None
    if not set(schema.partition_keys) <= set(schema.primary_keys):
        return "table"  # a key may move to another partition
    return split.partition, split.bucket if fixed or not replaced else None


def plan_mark(units: Sequence[ChangeUnit]) -> str:
    """A short hash of the names of the units' files: other units have another hash."""
    text = "\n".join(
        ",".join(file.name for rows in unit.rows for split in rows.splits for file in split.files)
        for unit in units
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def packed(units: Sequence[ChangeUnit], context: TableContext) -> list[tuple[ChangeUnit, ...]]:
    """The units in tasks of about equal weight, in order."""
    options = context.options
    weights = [sum(_weights(unit, options.source_split_open_file_cost_bytes)) for unit in units]
    fair = sum(weights) // TASKS_WANTED
    least = options.source_split_open_file_cost_bytes
    target = min(options.source_split_target_size_bytes, max(least, fair))
    tasks: list[list[ChangeUnit]] = []
    room = 0
    for unit, weight in zip(units, weights, strict=True):
        if not tasks or weight > room:
            tasks.append([])
            room = target
        tasks[-1].append(unit)
        room -= weight
    return [tuple(task) for task in tasks]


def _weights(unit: ChangeUnit, open_cost_bytes: int) -> Iterator[int]:
    for rows in unit.rows:
        for split in rows.splits:
            for file in split.files:
                yield max(file.size_bytes, open_cost_bytes)
