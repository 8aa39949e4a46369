"""Expiry of partitions: old partitions are dropped in ordinary commits.

https://paimon.apache.org/docs/master/maintenance/manage-partitions/

1. The age of a partition is the age of its values (`values-time`, see `plan/partitions.py`),
   or of its newest file (`update-time`). Both are compared with the local wall clock time.
2. Partitions older than `partition.expiration-time` are dropped in the order of their values: at
   most `partition.expiration-max-num` of them, `partition.expiration-batch-size` in each commit.
3. A partition whose values are not a time never expires by `values-time`; a warning names it.

A table object checks for expired partitions after a commit, at most once in each
`partition.expiration-check-interval`. With `end-input.check-partition-expire`, it also checks at
the end of a batch.

INVARIANT: with `update-time`, a partition that gets a file while it is being dropped stays, because
the commit checks the age again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import polars as pl

from lakecore.errors import InvalidRequest
from lakecore.model.retention import ExpiredPartitions
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.options import PartitionExpiry, TableOptions
from lakecore.plan.partitions import PartitionTimes, check_formatter
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.context import TableContext, require_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.history import History
    from lakecore.model.manifest import ManifestEntry

log = logging.getLogger("lakecore.expire")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """Which partitions expire. With `batch_size` None, all are dropped in one commit."""

    age_ms: int
    strategy: PartitionExpiry
    times: PartitionTimes
    count_max: int
    batch_size: int | None

    def __post_init__(self) -> None:
        if self.times.formatter is not None:
            check_formatter(self.times.formatter)


def partition_rule_of(options: TableOptions) -> PartitionRule | None:
    """The rule that the options define; None if partitions do not expire."""
    if options.partition_expiration_time_ms is None:
        return None
    return PartitionRule(
        age_ms=options.partition_expiration_time_ms,
        strategy=options.partition_expiration_strategy,
        times=PartitionTimes(
            pattern=options.partition_timestamp_pattern,
            formatter=options.partition_timestamp_formatter,
        ),
        count_max=options.partition_expiration_max_num,
        batch_size=options.partition_expiration_batch_size,
    )


def expire_partitions(
    context: TableContext, rule: PartitionRule, *, dry_run: bool = False
) -> ExpiredPartitions:
    """Drop the expired partitions. Raises InvalidRequest if the table has no partitions."""
    schema = context.schema
    if not schema.partition_keys:
        raise InvalidRequest("the table has no partitions to expire", table=context.identifier)
    require_table(context)
    before_ms = context.ambient.local_wall_clock_ms() - rule.age_ms
    ages = _Ages(context, rule)
    known = ages.of_live_partitions()
    untimed = tuple(ages.texts(each) for each, time_ms in known.items() if time_ms is None)
    if untimed and not context.options.query_auth_enabled:
        log.warning(
            "partitions never expire, because their values are not a time: correct the option "
            "partition.timestamp-pattern or partition.timestamp-formatter, drop them yourself, "
            "or set partition.expiration-strategy=update-time. table=%s count=%d first=%s",
            context.identifier,
            len(untimed),
            dict(untimed[0]),
        )
    old = [each for each, time_ms in known.items() if time_ms is not None and time_ms < before_ms]
    old.sort(key=lambda partition: ",".join(ages.texts(partition).values()))
    chosen = old[: rule.count_max]
    snapshot_ids: list[int] = []
    if not dry_run and chosen:
        context.options.require_writable(
            primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
        )
        size = rule.batch_size or len(chosen)
        for first in range(0, len(chosen), size):
            snapshot_ids += _drop(context, ages, chosen[first : first + size], before_ms)
        log.info("expired table=%s partitions=%d", context.identifier, len(chosen))
    return ExpiredPartitions(
        partitions=tuple(ages.texts(each) for each in chosen),
        snapshot_ids=tuple(snapshot_ids),
        partitions_without_time=untimed,
        dry_run=dry_run,
    )


def without_expired(
    context: TableContext, entries: Sequence[ManifestEntry]
) -> Sequence[ManifestEntry]:
    """The entries of the partitions that a compaction may take.

    With `compaction.skip-expired-partitions`, expired partitions are left out. As in Paimon, only
    the strategy `values-time` decides which have expired.
    """
    if not context.options.compaction_skip_expired_partitions or not context.schema.partition_keys:
        return entries
    rule = partition_rule_of(context.options)
    if rule is None or rule.strategy is not PartitionExpiry.VALUES_TIME:
        return entries
    before_ms = context.ambient.local_wall_clock_ms() - rule.age_ms
    ages = _Ages(context, rule)
    times = {each: ages.by_values(each) for each in {entry.partition for entry in entries}}
    return [
        entry
        for entry in entries
        if (time_ms := times[entry.partition]) is None or time_ms >= before_ms
    ]


def _drop(
    context: TableContext, ages: _Ages, some: Sequence[bytes], before_ms: int
) -> tuple[int, ...]:
    """Drop the partitions in one commit. Returns the ids of the snapshots that it created."""
    wanted = set(some)

    def choose(partitions: Sequence[bytes]) -> Sequence[bool]:
        now = ages.of_live_partitions()
        old = {each for each in wanted if (now.get(each) or 0) < before_ms}
        return [partition in old for partition in partitions]

    request = CommitRequest(
        messages=(), user=context.ambient.new_uuid(), overwrite=choose, operation="OVERWRITE"
    )
    return commit(context, request).snapshot_ids


@dataclass(frozen=True, slots=True)
class _Ages:
    """The times of the live partitions, as the rule defines them."""

    context: TableContext
    rule: PartitionRule

    def of_live_partitions(self) -> dict[bytes, int | None]:
        """The wall clock time of each partition with rows; None for a partition without a time."""
        history = self.context.history
        latest = history.latest_snapshot()
        if latest is None:
            return {}
        if self.rule.strategy is PartitionExpiry.VALUES_TIME:
            return {each: self.by_values(each) for each in history.live_partitions(latest)}
        partitions, facts = history.live_facts(latest)
        made_ms = pl.col("creation_time_ms")
        newest_ms = pl.when(made_ms.null_count() == 0).then(made_ms.max().clip(lower_bound=0))
        found = facts.group_by("partition", maintain_order=True).agg(newest_ms.alias("newest_ms"))
        return {partitions[number]: each for number, each in found.iter_rows()}

    def by_values(self, partition: bytes) -> int | None:
        """The time that the values of a partition state; None if they are not a time."""
        return self.rule.times.time_ms(self._values(partition))

    def texts(self, partition: bytes) -> Mapping[str, str]:
        """The values of a partition as strings."""
        return self.context.partitions.texts(partition)

    def _values(self, partition: bytes) -> dict[str, str | None]:
        (row,) = self.context.partitions.values([partition]).to_pylist()
        return {
            name: None if row[name] is None else text
            for name, text in self.texts(partition).items()
        }


# --- after a commit -------------------------------------------------------------------------------

_CHECKED_MS: WeakKeyDictionary[History, int] = WeakKeyDictionary()
"""When partitions were last checked, for each open table."""


def expire_partitions_if_due(context: TableContext, identifier: int) -> tuple[int, ...]:
    """Drop expired partitions if the check is due. Returns the new snapshots."""
    rule = partition_rule_of(context.options)
    if rule is None or not context.schema.partition_keys or not _is_due(context, identifier):
        return ()
    return expire_partitions(context, rule).snapshot_ids


def _is_due(context: TableContext, identifier: int) -> bool:
    """Whether the check is due. The first interval is shortened by a random part of it."""
    options, now_ms = context.options, context.ambient.now_ms()
    interval_ms = options.partition_expiration_check_interval_ms
    checked_ms = _CHECKED_MS.get(context.history)
    if checked_ms is None or checked_ms > now_ms:  # the clock went back
        # Short jobs must check sometimes, but not all at the same time.
        checked_ms = now_ms - int(interval_ms * context.ambient.random())
    at_end = options.end_input_check_partition_expire and identifier == BATCH_COMMIT_IDENTIFIER
    due = interval_ms == 0 or now_ms > checked_ms + interval_ms or at_end
    _CHECKED_MS[context.history] = now_ms if due else checked_ms
    return due
