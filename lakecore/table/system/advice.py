"""Which options of a table to change, and what each change saves, from its own history.

1. Read the snapshots of the last week (at most `_SNAPSHOTS`), the changes of the newest ones (at
   most `_SAMPLED` snapshots or `_ENTRIES` entries), and columns of the live files, as one plan.
2. Summarise what was read as `Facts`: how often, how much and into how many buckets the table
   commits.
3. Each rule of `RULES` simulates the table as it is and with one change (`plan/simulation.py`), and
   advises the change if it saves enough.

INVARIANT: the module only reads. Every advice has a figure; a table that has too little history, or
nothing to change, gets no advice. The rules are pure functions of the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log2
from statistics import median
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from lakecore.display import ShownFacts, show_bytes
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.parallel import read_all
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitKind, Snapshot, stated_identifier
from lakecore.plan.retention import end_of_snapshots
from lakecore.plan.simulation import PRICES, UNITS, Load, Outcome, Prices, SimulatedTable
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.maintenance.expire_snapshots import retention_of
from lakecore.table.maintenance.reachable import KEY, entry_frame, live_files, tags_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext

_WEEK_MS = 7 * 86_400_000
_SNAPSHOTS, _SAMPLED, _ENTRIES, _TAGS = 2_000, 100, 200_000, 8
_STORES = {"s3": "s3", "s3a": "s3", "oss": "s3", "gs": "gcs"}
_COMMITS_MIN = 10
"""With fewer commits, the load of a table is unknown."""
_JOB_S = 600
"""Seconds between two runs of an advised compaction job."""
_SMALL, _BEST, _LARGE = 200 << 20, 512 << 20, 1 << 30
"""Sizes of a bucket: the smallest that is advised, the target, and the largest."""
_SMALL_FILE, _TARGET, _MANIFESTS, _RUNS, _VECTORS_S = 4 << 20, 128 << 20, 60, 8, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change, what it changes in figures, and the dollars a month that it saves (0: no price).

    `change`: an option and its new value, or a command; empty if it is a change of the writer.
    """

    subject: str
    change: str
    now: str
    then: str
    dollars: float = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableAdvice(ShownFacts):
    """The advice for a table, and the load from which it was derived."""

    _title: ClassVar[str] = "Advice"

    table: str
    commits: int
    interval_seconds: float | None
    buckets_of_a_commit: float
    bytes_of_a_commit: float
    files: int
    bytes: int
    advice: tuple[Advice, ...] = ()

    def _shown(self) -> list[tuple[str, object]]:
        load = f"{self.commits} in the last week"
        if self.interval_seconds is not None:
            load += (
                f", one each {self.interval_seconds:.0f} s: "
                f"{show_bytes(int(self.bytes_of_a_commit))}, {self.buckets_of_a_commit:.1f} buckets"
            )
        lines: list[tuple[str, object]] = [
            ("table", self.table),
            ("files", f"{self.files} ({show_bytes(self.bytes)})"),
            ("commits", load),
        ]
        for each in self.advice:
            saves = f"; saves ${each.dollars:,.0f} a month" if each.dollars >= 1 else ""
            lines += [
                (each.subject, each.change),
                ("  now", each.now),
                ("  then", each.then + saves),
            ]
        return lines if self.advice else [*lines, ("advice", "nothing to change")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules know about a table.

    - `prices`: of its storage; `fixed`: whether it has a fixed number of buckets;
    - `snapshots`, `due`: the number of snapshots, and of snapshots that should have expired;
    - `commits`, `compactions`: of the last week; `interval_s`: the usual time between two commits;
    - `writers`: writers that number their commits, such as streams;
    - `touched`, `flushed`: buckets of a commit, and bytes that it adds to each;
    - `amplification`: bytes written for each byte received, in the newest commits;
    - `kept_bytes`, `tag_bytes`: bytes of files that only older snapshots have, and of files that
      only the `tags` have;
    - `bucket_bytes`: the bytes of each bucket, in order of size; `partition_bytes`: the bytes of
      the usual partition;
    - `key_bytes`: the largest level of the usual bucket that commits write to; `runs`: its runs;
    - `merged`: the share of all bytes that a read merges; `file_bytes`: the usual size of a file
      above level 0, or of any file in a table without a key.
    """

    options: TableOptions
    prices: Prices
    keyed: bool
    fixed: bool
    snapshots: int
    due: int
    commits: int
    compactions: int
    interval_s: float | None
    writers: int
    touched: float
    flushed: float
    amplification: float
    kept_bytes: float
    tags: int
    tag_bytes: int
    files: int
    bytes: int
    bucket_bytes: Sequence[int]
    partition_bytes: float
    key_bytes: float
    runs: float
    merged: float
    file_bytes: float
    manifests: int
    manifest_bytes: int
    vectors: int

    def simulated(
        self, *, times: float = 1, every: int | None = None, **options: object
    ) -> Outcome:
        """The table under its load with other options.

        `times`: how many commits (or buckets) become one; `every`: the number of commits between
        two compaction jobs, by default as in the history.
        """
        if every is None:
            every = 1 if not self.options.write_only else 0
            if self.options.write_only and self.compactions:
                every = max(2, round(self.commits / self.compactions))
        load = Load(
            commit_bytes=self.flushed * times,
            key_bytes=max(self.key_bytes, self.flushed * times),
            buckets=max(1, round(self.touched)),
        )
        interval_s = (self.interval_s or 60) * times
        ratio = max(self.key_bytes, load.commit_bytes) / load.commit_bytes
        commits = int(min(max(3 * ratio, 90), 1_000))
        # Snapshots expire in the commits that are counted, as they do later in the table.
        steady = {
            "snapshot_time_retained_ms": int(
                min(self.options.snapshot_time_retained_ms, 250 * interval_s * commits)
            ),
            "snapshot_num_retained_min": min(self.options.snapshot_num_retained_min, commits // 4),
        }
        if not self.keyed:  # writes do not merge runs
            steady["num_sorted_run_compaction_trigger"] = 1_000_000
        table = SimulatedTable(
            [load],
            replace(self.options, **steady, **options),  # type: ignore[arg-type]
            interval_s=interval_s,
            compact_every=every,
        )
        return table.run(commits)


def advice_of(context: TableContext, store: str | None = None) -> TableAdvice:
    """The advice for a table, for the prices of `store` (a key of `PRICES`), most dollars first.

    Without `store`, the table's path decides the prices; a local table has none.
    """
    context.options.require_all_rows()
    if store is None:
        store = _STORES.get(context.layout.root.partition("://")[0], "local")
    if store not in PRICES:
        raise InvalidRequest("no prices are known of this storage", given=store, known=[*PRICES])
    facts = facts_of(context, PRICES[store])
    found = [each for rule in RULES if (each := rule(facts)) is not None]
    return TableAdvice(
        table=context.identifier,
        commits=facts.commits,
        interval_seconds=facts.interval_s,
        buckets_of_a_commit=facts.touched,
        bytes_of_a_commit=facts.flushed * facts.touched,
        files=facts.files,
        bytes=facts.bytes,
        advice=tuple(sorted(found, key=lambda each: -each.dollars)),
    )


# --- facts ---------------------------------------------------------------------------------------


def facts_of(context: TableContext, prices: Prices) -> Facts:
    """The facts about a table."""
    history, options = context.history, context.options
    ids = history.snapshot_ids()
    now_ms = context.ambient.now_ms()
    read = read_all(history.snapshot_if_there, ids[-_SNAPSHOTS:])
    there = [each for each in read if each is not None]
    recent = [each for each in there if each.time_ms >= now_ms - _WEEK_MS]
    commits = [each for each in recent if each.commit_kind is not CommitKind.COMPACT]
    gaps = [(b.time_ms - a.time_ms) / 1000 for a, b in pairwise(commits)]
    changes = _changes(context, recent)
    added = changes.filter(pl.col("_KIND") == FileKind.ADD)
    flushed = added.filter(~pl.col("compacts"))
    # The median: a load differs from the usual commit.
    usual = _median(flushed["_FILE_SIZE"])
    compacted = int(added["_FILE_SIZE"].sum()) - int(flushed["_FILE_SIZE"].sum())
    dropped = changes.filter(pl.col("_KIND") == FileKind.DELETE)["_FILE_SIZE"].sum()
    sampled = max(1, changes["snapshot"].n_unique())
    live = _live(context, there[-1] if there else None)
    buckets = live.group_by("partition", "bucket").agg(
        bytes=pl.col("size_bytes").sum(),
        runs=(pl.col("level") == 0).sum() + pl.col("level").filter(pl.col("level") > 0).n_unique(),
        largest=pl.col("size_bytes").filter(pl.col("level") == pl.col("level").max()).sum(),
    )
    several = (
        buckets.filter(pl.col("runs") > 1)["bytes"].sum() if context.schema.primary_keys else 0
    )
    settled = live.filter(pl.col("level") > 0) if context.schema.primary_keys else live
    manifests = history.manifests(there[-1]) if there else ()
    tags, tag_bytes = _kept_by_tags(context, there)
    return Facts(
        options=options,
        prices=prices,
        keyed=bool(context.schema.primary_keys),
        fixed=options.bucket > 0,
        snapshots=len(ids),
        due=_due(context, ids, there),
        commits=len(commits),
        compactions=len(recent) - len(commits),
        interval_s=max(0.001, median(gaps)) if len(gaps) + 1 >= _COMMITS_MIN else None,
        writers=len(
            {
                each.commit_user
                for each in commits
                if stated_identifier(each.commit_identifier) is not None
            }
        ),
        touched=flushed.height / max(1, flushed["snapshot"].n_unique()),
        flushed=usual,
        amplification=1 + compacted / max(1, usual * flushed.height),
        kept_bytes=float(dropped) / sampled * len(ids),
        tags=tags,
        tag_bytes=tag_bytes,
        files=live.height,
        bytes=int(live["size_bytes"].sum()),
        bucket_bytes=tuple(sorted(buckets["bytes"].to_list())),
        partition_bytes=_median(buckets.group_by("partition").agg(pl.col("bytes").sum())["bytes"]),
        key_bytes=_median(buckets["largest"]),
        runs=_median(buckets["runs"]),
        merged=int(several) / max(1, int(live["size_bytes"].sum())),
        file_bytes=_median(settled["size_bytes"]),
        manifests=len(manifests),
        manifest_bytes=sum(each.size_bytes for each in manifests),
        vectors=sum(
            len(each.file.vectors or ())
            for each in history.index_entries(there[-1] if there else None)
        ),
    )


def _median(numbers: pl.Series) -> float:
    return float(numbers.median() or 0)  # type: ignore[arg-type]


def _changes(context: TableContext, recent: Sequence[Snapshot]) -> pl.DataFrame:
    """The entries of the newest snapshots, with the number of the snapshot."""
    history, count = context.history, 0
    columns = ("_KIND", "_FILE_SIZE")
    frames = [
        pl.DataFrame(
            schema={
                "_KIND": pl.Int32,
                "_FILE_SIZE": pl.Int64,
                "snapshot": pl.Int64,
                "compacts": pl.Boolean,
            }
        )
    ]
    for snapshot in reversed(recent[-_SAMPLED:]):
        try:
            frame = entry_frame(history, history.delta_manifests(snapshot)).select(columns)
        except NotFound:  # it has expired meanwhile
            break
        frames.append(
            frame.with_columns(
                snapshot=pl.lit(snapshot.id, pl.Int64),
                compacts=pl.lit(snapshot.commit_kind is CommitKind.COMPACT),
            )
        )
        count += frame.height
        if count > _ENTRIES:
            break
    return pl.concat(frames)


def _live(context: TableContext, latest: Snapshot | None) -> pl.DataFrame:
    schema = {"partition": pl.Int64, "bucket": pl.Int64, "level": pl.Int64, "size_bytes": pl.Int64}
    if latest is None:
        return pl.DataFrame(schema=schema)
    return context.history.live_facts(latest)[1].select(
        pl.col(n).cast(t) for n, t in schema.items()
    )


def _due(context: TableContext, ids: Sequence[int], there: Sequence[Snapshot]) -> int:
    """How many snapshots the options of the table would expire by now."""
    if not there:
        return 0
    times = {each.id: each.time_ms for each in there}
    keep = replace(retention_of(context), max_deletes=len(ids))
    # Snapshots that were not read are older than all others.
    consumed = min((each.next_snapshot for each in list_consumers(context)), default=None)
    end = end_of_snapshots(
        ids[0], there[-1].id, keep, consumed, lambda some: [times.get(each, 0) for each in some]
    )
    return end - ids[0]


def _kept_by_tags(context: TableContext, there: Sequence[Snapshot]) -> tuple[int, int]:
    """How many of the oldest tags were read, and the bytes of files that no snapshot has."""
    history = context.history
    tags = [each for each in tags_of(history) if not there or each.snapshot.id < there[0].id]
    tags = sorted(tags, key=lambda each: each.snapshot.id)[:_TAGS]
    if not tags or not there:
        return 0, 0
    # Later snapshots only show files of the first one and files that are newer than all tags.
    kept = live_files(entry_frame(history, history.manifests(there[0]))).select(KEY)
    found = pl.concat(
        live_files(entry_frame(history, history.manifests(each.snapshot))).select(
            *KEY, "_FILE_SIZE"
        )
        for each in tags
    )
    alone = found.unique(KEY).join(kept, on=KEY, how="anti")
    return len(tags), int(alone["_FILE_SIZE"].sum())


# --- rules ---------------------------------------------------------------------------------------


def _bucket_count(facts: Facts) -> Advice | None:
    """Buckets of 200 MB to 1 GB: larger ones take long to compact, smaller ones cost requests."""
    if not facts.fixed or not facts.bucket_bytes:
        return None
    usual, largest = median(facts.bucket_bytes), facts.bucket_bytes[-1]
    now = facts.options.bucket
    best = max(1, ceil(facts.partition_bytes / _BEST))
    is_large = usual > _LARGE and best > now
    if is_large or (usual < _SMALL and best < now and facts.interval_s is not None):
        before = facts.simulated()
        share = max(1, round(facts.touched * best / now))
        after = replace(
            facts,
            touched=share,
            flushed=facts.flushed * facts.touched / share,
            key_bytes=facts.key_bytes * now / best,
        ).simulated()
        saved = _saved(facts, before, after)
        return Advice(
            subject="buckets",
            change=f"lakecore rescale --bucket-num {best}",
            now=f"{now} of {show_bytes(int(usual))}, each compacted by one core; "
            f"{before.requests['PUT']:.1f} PUT a commit",
            then=f"{best} of {show_bytes(int(usual * now / best))}, "
            f"{after.requests['PUT']:.1f} PUT a commit",
            dollars=max(0, saved),
        )
    if largest > _LARGE and largest > 4 * usual:
        return Advice(
            subject="skew",
            change="a primary key or bucket-key that spreads rows evenly",
            now=f"a bucket of {show_bytes(largest)}, which one core compacts alone",
            then=f"the usual bucket has {show_bytes(int(usual))}, {largest / max(1, usual):.0f} "
            "times less",
        )
    return None


def _trigger(facts: Facts) -> Advice | None:
    """A higher trigger, if commits are small for their bucket."""
    now = facts.options.num_sorted_run_compaction_trigger
    if not _compacts_itself(facts):
        return None
    best = ceil(log2(2 * max(1, facts.key_bytes / facts.flushed)) - 1)
    if best <= now:
        return None
    before = facts.simulated()
    after = facts.simulated(num_sorted_run_compaction_trigger=best)
    # Files that are moved and not rewritten, as those of keys in order, show in the history.
    real = min(before.write_amplification, facts.amplification)
    if real < 1.5 * after.write_amplification:
        return None
    return Advice(
        subject="compaction",
        change=f"num-sorted-run.compaction-trigger={best}",
        now=f"{before.write_amplification:.1f} bytes written for each byte received "
        f"({facts.amplification:.1f} in the newest commits), {before.runs:.1f} runs to merge",
        then=f"{after.write_amplification:.1f} bytes, {after.runs:.1f} runs",
    )


def _job(facts: Facts) -> Advice | None:
    """One compaction job, if commits are frequent or have several writers, or if none compacts."""
    if not facts.keyed or facts.interval_s is None or not facts.flushed:
        return None
    every = max(2, ceil(_JOB_S / facts.interval_s))
    if facts.options.write_only:
        trigger = facts.options.num_sorted_run_compaction_trigger
        if facts.compactions or facts.runs <= 2 * trigger:
            return None
        after = facts.simulated(every=every)
        return Advice(
            subject="compaction",
            change=f"lakecore compact --watch --interval {_JOB_S}",
            now=f"a read merges {facts.runs:.0f} runs of each bucket, and no job compacts them",
            then=f"{after.runs:.0f} runs on average, "
            f"{after.write_amplification:.1f} bytes written for each byte received",
        )
    if facts.interval_s >= _JOB_S or (facts.writers < 2 and facts.interval_s > 60):
        return None
    before, after = facts.simulated(), facts.simulated(every=every)
    saved = _saved(facts, before, after)
    if facts.writers < 2 and saved < 1:
        return None
    return Advice(
        subject="job",
        change=f"write-only=true and lakecore compact --watch --interval {_JOB_S}",
        now=f"{'each commit' if facts.writers < 2 else f'each of {facts.writers} writers'} "
        f"compacts: {_sent(before)} a commit, "
        f"{before.write_amplification:.1f} bytes written for each byte received",
        then=f"{_sent(after)}, {after.write_amplification:.1f} bytes, {after.runs:.0f} runs",
        dollars=saved,
    )


def _interval(facts: Facts) -> Advice | None:
    """Rarer commits, if they write small files often."""
    if facts.interval_s is None or not 0 < facts.flushed < _SMALL_FILE or facts.interval_s > 60:
        return None
    times = ceil(max(60 / facts.interval_s, 2))
    before, after = facts.simulated(), facts.simulated(times=times)
    saved = _saved(facts, before, after)
    if saved < 1:
        return None
    return Advice(
        subject="interval",
        change=f"a commit each {facts.interval_s * times:.0f} s",
        now=f"a commit each {facts.interval_s:.0f} s writes {facts.touched:.1f} files of "
        f"{show_bytes(int(facts.flushed))}, {_sent(before)}",
        then=f"1/{times} of the commits, files of {show_bytes(int(facts.flushed * times))}",
        dollars=saved,
    )


def _snapshots(facts: Facts) -> Advice | None:
    """Fewer old snapshots, if they keep more than half as many bytes as the table has."""
    kept, count = facts.kept_bytes, facts.snapshots
    if facts.due > max(50, count // 2):
        share = facts.due / count
        return Advice(
            subject="retention",
            change="lakecore expire snapshots",
            now=f"{count} snapshots keep {show_bytes(int(kept))}, and {facts.due} should have "
            "expired: no writer or job expires them",
            then=f"{count - facts.due} snapshots, {show_bytes(int(kept * (1 - share)))}",
            dollars=facts.prices.stored(kept * share),
        )
    hours = facts.options.snapshot_time_retained_ms / 3_600_000
    least = facts.options.snapshot_num_retained_min
    if kept < facts.bytes / 2 or not facts.bytes or (hours <= 1 and least <= 10):
        return None
    fits = 3600 / facts.interval_s * (count / max(1, facts.commits)) if facts.interval_s else 10
    left = min(count, max(10, fits))
    if left > count / 2:
        return None
    change = "snapshot.time-retained=1h" if hours > 1 else "snapshot.num-retained.min=10"
    return Advice(
        subject="retention",
        change=change,
        now=f"{count} snapshots keep {show_bytes(int(kept))} in addition to "
        f"{show_bytes(facts.bytes)} of the latest one",
        then=f"{left:.0f} snapshots, {show_bytes(int(kept * left / count))}",
        dollars=facts.prices.stored(kept * (1 - left / count)),
    )


def _tags(facts: Facts) -> Advice | None:
    """Fewer tags, if the oldest keep more than half as much as the table has."""
    if not facts.bytes or facts.tag_bytes < facts.bytes / 2:
        return None
    return Advice(
        subject="tags",
        change="tag.default-time-retained, or lakecore tag delete",
        now=f"the {facts.tags} oldest tags alone keep {show_bytes(facts.tag_bytes)} in addition to "
        f"{show_bytes(facts.bytes)}",
        then="0 B without them",
        dollars=facts.prices.stored(facts.tag_bytes),
    )


def _vectors(facts: Facts) -> Advice | None:
    """Deletion vectors, if reads merge many runs; a full compaction, if there are many vectors."""
    seconds = facts.vectors * UNITS.vector_us / 1e6
    if seconds > _VECTORS_S:
        return Advice(
            subject="vectors",
            change="lakecore compact --full",
            now=f"each commit that marks rows writes {facts.vectors:,} vectors again: "
            f"{seconds:.1f} s, {show_bytes(32 * facts.vectors)}",
            then="0 s: a full compaction drops them",
        )
    if facts.options.needs_lookup or facts.runs < _RUNS or not _compacts_itself(facts):
        return None
    before, after = facts.simulated(), facts.simulated(deletion_vectors_enabled=True)
    if after.write_amplification > 2 * before.write_amplification:
        return None
    return Advice(
        subject="vectors",
        change="deletion-vectors.enabled=true, with deletion-vectors.modifiable=true",
        now=f"a read merges {facts.merged:.0%} of all bytes, {facts.runs:.0f} runs of a bucket; "
        f"{before.write_amplification:.1f} bytes written for each byte received",
        then=f"it merges 0 %; {after.write_amplification:.1f} bytes written, and the vectors",
    )


def _manifests(facts: Facts) -> Advice | None:
    """Larger manifests, if a plan opens many."""
    target = 8 << 20 if facts.manifest_bytes <= 100 * (8 << 20) else 32 << 20
    most = ceil(facts.manifest_bytes / target) + 29
    if facts.manifests < max(_MANIFESTS, 2 * most):
        return None
    small = facts.options.manifest_target_file_size_bytes < target
    if not small and facts.options.manifest_merge_min_count <= 30:
        return None
    change = (
        f"manifest.target-file-size={target >> 20}mb" if small else "manifest.merge-min-count=30"
    )
    return Advice(
        subject="manifests",
        change=change,
        now=f"a first plan reads {facts.manifests} manifests of "
        f"{show_bytes(facts.manifest_bytes // facts.manifests)}",
        then=f"at most {most}",
    )


def _target_size(facts: Facts) -> Advice | None:
    """Larger files, if the target size of files makes them small."""
    target = facts.options.target_file_size(primary_key=facts.keyed)
    if target >= _TARGET // 4 or facts.file_bytes < 0.7 * target:
        return None
    then = max(1, ceil(facts.files * facts.file_bytes / _TARGET))
    if facts.files < 4 * then:
        return None
    return Advice(
        subject="files",
        change=f"target-file-size={_TARGET >> 20}mb",
        now=f"a full read opens {facts.files} files of {show_bytes(int(facts.file_bytes))}",
        then=f"{then}",
    )


def _compacts_itself(facts: Facts) -> bool:
    return (
        facts.keyed
        and not facts.options.write_only
        and facts.interval_s is not None
        and facts.flushed > 0
    )


def _saved(facts: Facts, before: Outcome, after: Outcome) -> float:
    """Dollars a month that fewer requests save."""
    month = facts.prices.month
    return month(before.requests, before.interval_s) - month(after.requests, after.interval_s)


def _sent(outcome: Outcome) -> str:
    each = outcome.requests
    return ", ".join(
        f"{each[kind]:.0f} {kind}" for kind in ("PUT", "LIST", "GET") if each.get(kind)
    )


RULES: tuple[Callable[[Facts], Advice | None], ...] = (
    _bucket_count,
    _trigger,
    _job,
    _interval,
    _snapshots,
    _tags,
    _vectors,
    _manifests,
    _target_size,
)
"""Each rule returns its advice, or None."""
