"""Chooses the buckets to compact: partitions by value or condition, buckets by number.

A compaction takes whole buckets, so a condition may use partition keys only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.options import DURATION
from lakecore.table.writes import batch_write

if TYPE_CHECKING:
    import polars as pl

    from lakecore.model.manifest import ManifestEntry
    from lakecore.table.context import TableContext
    from lakecore.table.reads.row_values import holds, parse_condition, setting_of
else:  # loads DuckDB, which only a condition needs
    _ROW_VALUES = "lakecore.table.reads.row_values"
    holds = deferred(_ROW_VALUES, "holds")
    parse_condition = deferred(_ROW_VALUES, "parse_condition")
    setting_of = deferred(_ROW_VALUES, "setting_of")

_MILLISECOND = timedelta(milliseconds=1)


def chosen_entries(
    context: TableContext,
    live: Sequence[ManifestEntry],
    *,
    partitions: Sequence[Mapping[str, object]] | None,
    where: pl.Expr | str | None,
    buckets: Sequence[int] | None,
    idle_ms: int | None = None,
) -> list[ManifestEntry]:
    """The live files of the selected buckets; None selects all.

    `idle_ms` selects partitions whose newest file is at least that old. A file without a creation
    time counts as new.
    """
    found = list({entry.partition: None for entry in live})
    wanted = set(found)
    if partitions is not None:
        _check_list(partitions)
        choose = batch_write.matching(context, partitions)
        wanted = _where_true(found, choose(found))
    if where is not None:
        wanted &= _where_true(found, _matching(context, where, found))
    if idle_ms is not None:
        before_ms = context.ambient.local_wall_clock_ms() - idle_ms
        wanted -= {entry.partition for entry in live if not _is_older(entry, before_ms)}
    numbers = None if buckets is None else _numbers(buckets)
    return [
        entry
        for entry in live
        if entry.partition in wanted and (numbers is None or entry.bucket in numbers)
    ]


def idle_ms(given: timedelta | str | None, order_by: object = None) -> int | None:
    """The idle time of partitions in milliseconds; None if it is not given.

    Raises InvalidRequest if `given` is no time span, and, as in Paimon, if `order_by` is given too.
    """
    if given is None:
        return None
    if order_by:
        raise InvalidRequest("partition_idle_time does not go with a sort", order_by=order_by)
    try:
        idle = DURATION.parse(given) if isinstance(given, str) else given // _MILLISECOND
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            "an idle time is a time span such as '1 d', or a timedelta", given=given
        ) from error
    if idle < 0:
        raise InvalidRequest("an idle time is not negative", given=given)
    return idle


def entries_of_others(
    live: Sequence[ManifestEntry], chosen: Sequence[ManifestEntry], done: Collection[bytes]
) -> list[ManifestEntry]:
    """The live files of partitions that were not chosen, without those in `done`."""
    known = {entry.partition for entry in chosen} | set(done)
    return [entry for entry in live if entry.partition not in known]


def _is_older(entry: ManifestEntry, before_ms: int) -> bool:
    created = entry.file.creation_time_ms
    return created is not None and created <= before_ms


def _check_list(partitions: object) -> None:
    if not isinstance(partitions, Sequence) or isinstance(partitions, str | bytes):
        raise InvalidRequest(
            "partitions is a list of mappings of partition keys to values",
            given=type(partitions).__name__,
        )


def _numbers(buckets: object) -> set[int]:
    if not isinstance(buckets, Iterable) or isinstance(buckets, str | bytes):
        raise InvalidRequest("buckets is a list of numbers", buckets=buckets)
    numbers = set()
    for each in buckets:
        if not isinstance(each, int) or isinstance(each, bool):
            raise InvalidRequest("a bucket is a number", bucket=each)
        numbers.add(each)
    return numbers


def _where_true(partitions: Sequence[bytes], mask: Sequence[bool]) -> set[bytes]:
    return {partition for partition, chosen in zip(partitions, mask, strict=True) if chosen}


def _matching(
    context: TableContext, where: pl.Expr | str, partitions: Sequence[bytes]
) -> Sequence[bool]:
    """For each partition, whether a condition on partition keys is true."""
    condition = parse_condition(where, context.schema, setting_of(context))
    keys = context.schema.partition_keys
    others = [name for name in condition.columns if name not in keys]
    if others:
        raise InvalidRequest(
            "whole partitions are compacted: a condition may name partition keys only",
            columns=others,
            partition_keys=keys,
            table=context.identifier,
        )
    if keys:
        values = pa.Table.from_batches([context.partitions.values(partitions)])
    else:
        # The condition names no column.
        values = pa.table({"": pa.nulls(len(partitions))})
    mask: list[bool] = holds(values, condition.expression).to_pylist()
    return mask
