"""The numbers of tables and pipelines that operators watch, and the advice that follows from them.

`lakecore ui` shows them; `GET /metrics` and `lakecore metrics` print them in Prometheus's text
format (https://prometheus.io/docs/instrumenting/exposition_formats/).

- What a snapshot decides is computed once: names of manifest lists are never reused. Reading the
  numbers again costs a few small files a table, and a listing of its consumers.
- A table or a pipeline that cannot be read has an error in place of its numbers; the others keep
  theirs.
- If the catalog hides rows of a table from its readers, the table has no numbers of rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakecore.catalog.identifier import (
    SPLITTER,
    SYSTEM_DATABASE,
    Identifier,
    parse_identifier,
    quoted_name,
)
from lakecore.cdc.pipeline import PipelineStatus, statuses
from lakecore.errors import LakecoreError, NotFound
from lakecore.io.cache import Cache
from lakecore.io.parallel import read_all
from lakecore.lsm.packing import PackingPolicy
from lakecore.masking import masked
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.reads.scan import hides_level_0
from lakecore.table.reads.told import told_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from lakecore.catalog.catalog import Catalog
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

    _Sample: TypeAlias = tuple[str, float | None, Mapping[str, str]]

_COUNTED_BYTES, _COUNTED_MAX = 500, 50_000
_SKEW, _SKEW_BYTES_MIN = 4, 64 << 20
_VECTOR_SHARE_MAX = 0.2
_LAG_MAX = 50


# --- numbers of tables ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The numbers of a snapshot's live files.

    `runs_max` and `level0_max` are the most in one bucket, 0 for a table without a key; a level 0
    file is a run, and so is each other level. `small_max` are the most small files in one bucket of
    a table without a key. `skew` is the size of the largest bucket, in times of the average bucket
    of its partition. `vector_share` is the share of stored rows that deletion vectors mark, from 0
    to 1; None if the catalog hides rows.
    """

    files: int = 0
    size_bytes: int = 0
    buckets: int = 0
    runs_max: int = 0
    level0_max: int = 0
    small_max: int = 0
    bucket_bytes_max: int = 0
    skew: float = 1.0
    vector_share: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a consumer is behind: snapshots that it has not read, and the age of the oldest."""

    consumer: str
    next_snapshot: int
    snapshots: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNumbers:
    """The numbers of a table at its newest snapshot (None: nothing was committed yet)."""

    snapshot_id: int | None
    time_ms: int | None
    rows: int | None
    counted: Counted


class Numbers:
    """Reads numbers of tables. What a snapshot decides is kept. Thread-safe."""

    def __init__(self) -> None:
        self._known: Cache[tuple[object, ...], Counted] = Cache(_COUNTED_BYTES, _COUNTED_MAX)

    def of(self, table: Table) -> TableNumbers:
        """The numbers of a table. Raises CorruptTable if its metadata cannot be read."""
        context = table.context
        latest = context.history.latest_snapshot()
        if latest is None:
            return TableNumbers(snapshot_id=None, time_ms=None, rows=None, counted=Counted())
        small_bytes = PackingPolicy.of(context.options).small_file_bytes
        lists = latest.base_manifest_list, latest.delta_manifest_list
        hides = context.options.query_auth_enabled
        key = (context.layout.root, context.layout.branch, *lists, small_bytes, hides)
        counted = self._known.get(key)
        if counted is None:
            counted = _counted(context, latest, small_bytes)
            self._known.put(key, counted, 1)
        return TableNumbers(
            snapshot_id=latest.id,
            time_ms=latest.time_ms,
            rows=told_snapshot(latest, context).total_record_count,
            counted=counted,
        )


def _counted(context: TableContext, snapshot: Snapshot, small_bytes: int) -> Counted:
    _, facts = context.history.live_facts(snapshot)
    if facts.is_empty():
        hides = context.options.query_auth_enabled
        return Counted(vector_share=None if hides else 0.0)
    # NOTE: of a few files, NumPy takes a fifth of the time of a `group_by`.
    names = ("partition", "bucket", "level", "size_bytes", "row_count")
    columns = [facts[name].to_numpy() for name in names]
    order = np.lexsort(columns[2::-1])
    partition, bucket, level, size, rows = (column[order] for column in columns)
    begins = _differ(partition) | _differ(bucket)
    at = np.flatnonzero(begins)
    sizes, owner = np.add.reduceat(size, at), partition[at]
    averages = (np.bincount(owner, sizes) / np.maximum(np.bincount(owner), 1))[owner]
    # A file of level 0 is a run, and so is each other level of a bucket.
    runs = begins | _differ(level) | (level == 0)
    keyed = bool(context.schema.primary_keys)
    vectors = [entry.file.vectors or () for entry in context.history.index_entries(snapshot)]
    deleted = sum(vector.cardinality or 0 for each in vectors for vector in each)
    share = deleted / max(int(rows.sum()), 1)
    return Counted(
        files=len(size),
        size_bytes=int(size.sum()),
        buckets=len(at),
        runs_max=_most(runs, at) if keyed else 0,
        level0_max=_most(level == 0, at) if keyed else 0,
        small_max=0 if keyed else _most(size < small_bytes, at),
        bucket_bytes_max=int(sizes.max()),
        skew=max(float((sizes / np.maximum(averages, 1)).max()), 1.0),
        vector_share=None if context.options.query_auth_enabled else share,
    )


def _differ(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each value is another one than the value before it."""
    return np.append(True, values[1:] != values[:-1])


def _most(marked: NDArray[np.bool_], at: NDArray[np.int64]) -> int:
    """The most marked files in one bucket; the files of each begin `at` these places."""
    return int(np.add.reduceat(marked.astype(np.int64), at).max())


def consumer_lags(context: TableContext, newest: int | None) -> list[Lag]:
    """How far each consumer of a table is behind its newest snapshot."""
    lags = []
    for each in list_consumers(context):
        behind = 0 if newest is None else max(newest + 1 - each.next_snapshot, 0)
        waiting = context.history.snapshot_if_there(each.next_snapshot) if behind else None
        age_ms = 0 if waiting is None else context.ambient.now_ms() - waiting.time_ms
        lags.append(
            Lag(
                consumer=each.consumer_id,
                next_snapshot=each.next_snapshot,
                snapshots=behind,
                seconds=max(age_ms, 0) / 1000,
            )
        )
    return lags


# --- tables of a catalog -------------------------------------------------------------------------

TABLES_AT_ONCE = 32
"""The number of tables read concurrently: the time of a scrape is that of small reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A table with its numbers, and the consumers that read it."""

    table: Table
    numbers: TableNumbers
    lags: list[Lag]


def names_of(catalog: Catalog) -> list[tuple[str, str]]:
    """The databases and names that may be tables, sorted; `watched` tests whether they are."""
    return [
        (database, name)
        for database in catalog.list_databases()
        for name in sorted(catalog.names.near(database))
        if SPLITTER not in name
    ]


def watched(
    catalog: Catalog, numbers: Numbers, names: tuple[str, str]
) -> Watched | LakecoreError | None:
    """A table with its numbers, or the error why it cannot be read; None if it is no table."""
    try:
        table = open_data_table(catalog, quoted_name(*names))
    except NotFound as error:
        place = catalog.names.find(Identifier(database=names[0], table=names[1]))
        return error if place is not None and place.is_listed else None
    except LakecoreError as error:
        return error
    try:
        return watch(table, numbers)
    except LakecoreError as error:
        return error


def watch(table: Table, numbers: Numbers) -> Watched:
    """An opened table with its numbers. Raises LakecoreError if its metadata cannot be read."""
    found = numbers.of(table)
    lags = consumer_lags(table.context, found.snapshot_id)
    return Watched(table=table, numbers=found, lags=lags)


# --- advice --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """What a table needs, and the command that does it."""

    says: str
    command: str


def needs_of(seen: Watched, name: str, warehouse: str) -> list[Advice]:
    """What a table needs; empty if it is healthy.

    `name` and `warehouse` are those that the commands state.
    """
    context = seen.table.context
    return [
        *advice_of(seen.numbers.counted, context, name, warehouse),
        *upkeep_of(context, seen.numbers.snapshot_id, seen.lags, name, warehouse),
    ]


def advice_of(counted: Counted, context: TableContext, name: str, warehouse: str) -> list[Advice]:
    """What the numbers of a table ask for."""
    of, options = f"{quote(name)} -w {quote(masked(warehouse))}", context.options
    found = []
    if counted.level0_max and hides_level_0(context.schema, options):
        says = f"{counted.level0_max} level-0 files in a bucket: reads skip them until a compaction"
        found.append(Advice(says, f"lakecore compact {of}"))
    elif counted.runs_max >= options.num_sorted_run_compaction_trigger:
        says = f"{counted.runs_max} sorted runs in a bucket: each read merges them"
        found.append(Advice(says, f"lakecore compact {of}"))
    if counted.small_max >= max(options.compaction_min_file_num, 2):
        says = f"{counted.small_max} small files in a bucket"
        found.append(Advice(says, f"lakecore compact {of}"))
    if (counted.vector_share or 0) > _VECTOR_SHARE_MAX:
        says = f"{counted.vector_share:.0%} of the stored rows are marked as deleted"
        found.append(Advice(says, f"lakecore compact {of} --full"))
    skewed = counted.skew >= _SKEW and counted.bucket_bytes_max >= _SKEW_BYTES_MIN
    if skewed and options.bucket > 0:
        says = f"the largest bucket has {counted.skew:.1f} times the bytes of the average one"
        more = f"lakecore rescale {of} --bucket-num {2 * options.bucket}"
        found.append(Advice(says, more))
    return found


def upkeep_of(
    context: TableContext, newest: int | None, lags: Iterable[Lag], name: str, warehouse: str
) -> list[Advice]:
    """What old snapshots and slow consumers of a table ask for. `newest`: its newest snapshot."""
    of, options = f"{quote(name)} -w {quote(masked(warehouse))}", context.options
    found = []
    oldest = None if newest is None else context.history.earliest_snapshot_id()
    ids = range(0) if newest is None or oldest is None else range(oldest, newest + 1)
    is_old = False
    if len(ids) - options.snapshot_num_retained_min > options.snapshot_expire_limit:
        first = context.history.snapshot_if_there(ids[0])
        old_ms = context.ambient.now_ms() - options.snapshot_time_retained_ms
        is_old = first is not None and first.time_ms < old_ms
    if is_old or len(ids) > options.snapshot_num_retained_max:
        says = f"{len(ids):,} snapshots are kept, the oldest beyond the time to retain them"
        found.append(Advice(says, f"lakecore expire snapshots {of}"))
    found += [
        Advice(
            f"the consumer {lag.consumer} is {lag.snapshots:,} snapshots behind, and keeps them",
            f"lakecore consumer list {of}",
        )
        for lag in lags
        if lag.snapshots > _LAG_MAX
    ]
    return found


# --- prometheus ----------------------------------------------------------------------------------

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS: Mapping[str, str] = {
    "lakecore_table_readable": "1 if the metadata of the table can be read, else 0",
    "lakecore_table_snapshot_id": "The newest snapshot",
    "lakecore_table_snapshot_age_seconds": "The age of the newest snapshot",
    "lakecore_table_stored_rows": "Rows of the newest snapshot as stored, before a merge",
    "lakecore_table_live_files": "Data files of the newest snapshot",
    "lakecore_table_size_bytes": "Bytes of these files",
    "lakecore_table_buckets": "Buckets with files, over all partitions",
    "lakecore_table_bucket_runs_max": "The most sorted runs in one bucket",
    "lakecore_table_bucket_level0_files_max": "The most level-0 files in one bucket",
    "lakecore_table_bucket_small_files_max": "The most small files in one bucket (no key)",
    "lakecore_table_deleted_rows_ratio": "Share of stored rows that deletion vectors mark",
    "lakecore_consumer_lag_snapshots": "Snapshots that the consumer has not read",
    "lakecore_consumer_lag_seconds": "The age of the oldest snapshot that it has not read",
    "lakecore_cdc_readable": "1 if the states of all pipelines can be read, else 0",
    "lakecore_cdc_lag_seconds": "The age of the newest change that the pipeline has committed",
    "lakecore_cdc_lag_bytes": "The log of the source after the last checkpoint",
    "lakecore_cdc_checkpoint_age_seconds": "The age of its last checkpoint",
    "lakecore_cdc_checkpoint_seconds": "How long its last checkpoint with rows took",
    "lakecore_cdc_quarantine_tables": "Tables that the pipeline has set aside",
    "lakecore_cdc_requested_tables": "Tables that the pipeline has to read again",
    "lakecore_cdc_left_out_tables": "Tables of the source that the pipeline does not mirror",
    "lakecore_cdc_rows": "Rows that the pipeline has committed",
    "lakecore_cdc_rows_left_out": "Rows that did not fit and are in files of dead letters",
    "lakecore_cdc_retries": "Attempts of the run to reach a source that did not answer",
    "lakecore_cdc_checkpoint": "The number of the last checkpoint",
    "lakecore_cdc_rows_per_second": "Rows that it has committed in the last minute, per second",
    "lakecore_cdc_caught_up": "1 if it has caught up since its run started, else 0",
    "lakecore_cdc_source_reachable": "1 if the source answered when it was last needed, else 0",
    "lakecore_cdc_source_unreachable_seconds": "The time since the last contact, 0 if reachable",
    "lakecore_cdc_failed": "1 if the last run ended with an error and none got further, else 0",
    "lakecore_cdc_table_rows": "Rows that the run has committed, by target and kind",
    "lakecore_cdc_step_age_seconds": "The time since the process of the pipeline took a step",
}
"""The metrics, all of them gauges, with what each means."""


def prometheus(catalog: Catalog, numbers: Numbers, *, with_pipelines: bool = True) -> str:
    """The metrics of all tables of a catalog, and of its pipelines, in Prometheus's text format."""
    read = partial(_table_samples, catalog, numbers)
    found = read_all(read, names_of(catalog), TABLES_AT_ONCE)
    samples = [sample for each in found for sample in each]
    if with_pipelines:
        pipelines, error = pipelines_of(catalog)
        samples.append(("lakecore_cdc_readable", int(error is None), {}))
        for each in pipelines:
            samples += _pipeline_metrics(each)
    return _text(samples)


def pipeline_text(status: PipelineStatus | None, pipeline: str, step_seconds: float) -> str:
    """The metrics of a pipeline, as its own process shows them.

    `status`: None before the first checkpoint. `step_seconds`: the time since its last step.
    """
    alive = "lakecore_cdc_step_age_seconds", step_seconds, {"pipeline": pipeline}
    return _text([*(() if status is None else _pipeline_metrics(status)), alive])


def _pipeline_metrics(status: PipelineStatus) -> Iterator[_Sample]:
    labels = {"pipeline": status.name}
    for metric, value in (
        ("lag_seconds", status.lag_seconds),
        ("lag_bytes", status.lag_bytes),
        ("checkpoint_age_seconds", status.age_seconds),
        ("checkpoint_seconds", status.checkpoint_seconds),
        ("quarantine_tables", len(status.quarantine)),
        ("requested_tables", len(status.requested)),
        ("left_out_tables", len(status.left_out)),
        ("rows", status.rows_total),
        ("rows_left_out", status.rows_left_out),
        ("retries", status.retries),
        ("checkpoint", status.checkpoint),
        ("rows_per_second", status.rows_per_second),
        ("caught_up", int(status.caught_up)),
        ("source_reachable", int(status.reachable)),
        ("source_unreachable_seconds", status.unreachable_seconds),
        ("failed", int(status.failed_reason is not None)),
    ):
        yield f"lakecore_cdc_{metric}", value, labels
    for table, kinds in status.tables.items():
        for kind, count in kinds.items():
            yield "lakecore_cdc_table_rows", count, {**labels, "table": table, "kind": kind}


def _text(samples: Iterable[_Sample]) -> str:
    lines: dict[str, list[str]] = defaultdict(list)
    for name, value, labels in samples:
        if value is not None:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            number = value if isinstance(value, int) else round(value, 3)
            lines[name].append(f"{name}{{{shown}}} {number}" if labels else f"{name} {number}")
    text = [
        line
        for name, meaning in METRICS.items()
        if lines[name]
        for line in (f"# HELP {name} {meaning}.", f"# TYPE {name} gauge", *lines[name])
    ]
    return "\n".join([*text, ""])


def _table_samples(catalog: Catalog, numbers: Numbers, names: tuple[str, str]) -> list[_Sample]:
    labels = dict(zip(("database", "table"), names, strict=True))
    seen = watched(catalog, numbers, names)
    if seen is None:
        return []
    if isinstance(seen, LakecoreError):
        return [("lakecore_table_readable", 0, labels)]
    return [(name, value, {**labels, **more}) for name, value, more in _table_metrics(seen)]


def _table_metrics(seen: Watched) -> Iterator[_Sample]:
    table, found = seen.table, seen.numbers
    counted, age_ms = found.counted, None
    if found.time_ms is not None:
        age_ms = max(table.context.ambient.now_ms() - found.time_ms, 0)
    keyed = bool(table.schema.primary_keys)
    for metric, value in (
        ("readable", 1),
        ("snapshot_id", found.snapshot_id),
        ("snapshot_age_seconds", None if age_ms is None else age_ms / 1000),
        ("stored_rows", found.rows),
        ("live_files", counted.files),
        ("size_bytes", counted.size_bytes),
        ("buckets", counted.buckets),
        ("bucket_runs_max", counted.runs_max if keyed else None),
        ("bucket_level0_files_max", counted.level0_max if keyed else None),
        ("bucket_small_files_max", None if keyed else counted.small_max),
        ("deleted_rows_ratio", counted.vector_share),
    ):
        yield f"lakecore_table_{metric}", value, {}
    for lag in seen.lags:
        yield "lakecore_consumer_lag_snapshots", lag.snapshots, {"consumer": lag.consumer}
        yield "lakecore_consumer_lag_seconds", lag.seconds, {"consumer": lag.consumer}


def open_data_table(catalog: Catalog, name: str) -> Table:
    """The table or branch of that name. Raises NotFound for a system table."""
    parsed = parse_identifier(name)
    if parsed.system is not None or parsed.database == SYSTEM_DATABASE:
        raise NotFound("a system table has no numbers and no page", table=name)
    return catalog.get_table(name)


def pipelines_of(catalog: Catalog) -> tuple[list[PipelineStatus], LakecoreError | None]:
    """The pipelines of the warehouse, or the error why their states cannot be read.

    If a server keeps the warehouse, there are none: nobody knows where their states are.
    """
    if catalog.option_texts.get("metastore") == "rest":
        return [], None
    try:
        return statuses(catalog, None, catalog.names.ambient), None
    except LakecoreError as error:
        return [], error


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
