"""The keys of Paimon that no lakecore verb reads: other engines' work, tuning, features to come.

Each line of a chapter is `key | kind | default | meaning`; a chapter says what its options are
needed for, and whether leaving them undone keeps rows right. A `#` in a key stands for any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from lakecore.options.choices import Effect
from lakecore.options.kinds import (
    DURATION,
    FLAG,
    LONG,
    NAMES,
    NUMBER,
    SIZE,
    TEXT,
    Kind,
)
from lakecore.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KINDS: Mapping[str, Kind[object]] = {
    "flag": cast("Kind[object]", FLAG),
    "integer": cast("Kind[object]", LONG),
    "number": cast("Kind[object]", NUMBER),
    "size": cast("Kind[object]", SIZE),
    "duration": cast("Kind[object]", DURATION),
    "names": cast("Kind[object]", NAMES),
    "text": cast("Kind[object]", TEXT),
}

_TUNING = """
async-file-write | flag | true | Write files in the background.
cache-page-size | size | 64 kb | Page of the look-up cache.
cross-partition-upsert.bootstrap-parallelism | integer | 10 | Readers that fill the key index.
dynamic-bucket.assigner-parallelism | integer | | Assigners of dynamic buckets.
file-operation.thread-num | integer | | File operations at once.
file-reader-async-threshold | size | 10 mb | Size from which files are read in the background.
local-kv-db.block-size | size | 4 kb | Block of the local key-value store.
local-merge-buffer-size | size | | Rows merged before they are shuffled.
local-sort.max-num-file-handles | integer | 128 | Files that an external sort merges at once.
lookup.cache-file-retention | duration | 1 h | Age of look-up files on local disk.
lookup.cache-max-disk-size | size | | Local disk for look-up files.
lookup.cache-max-memory-size | size | 256 mb | Memory for look-up files.
lookup.cache-rows | integer | 10000 | Rows that a look-up join holds.
lookup.cache-spill-compression | text | zstd | Compression of look-up files.
lookup.cache.bloom.filter.enabled | flag | true | Bloom filters in look-up files.
lookup.cache.bloom.filter.fpp | number | 0.05 | False positives of those filters.
lookup.cache.high-priority-pool-ratio | number | 0.25 | Cache for indexes and filters.
lookup.continuous.discovery-interval | duration | | Wait of a look-up join between looks.
lookup.hash-load-factor | number | 0.75 | Filling of look-up hash tables.
lookup.merge-buffer-size | size | 8 mb | Buffer of a key being merged.
lookup.merge-records-threshold | integer | 1024 | Rows of a key before they are buffered as bytes.
lookup.remote-file.enabled | flag | false | Keep look-up files beside the table.
lookup.remote-file.level-threshold | integer | -2147483648 | First level with such files.
manifest.merge-optimize.enabled | flag | true | Merge manifests block by block.
page-size | size | 64 kb | Memory page.
row-tracking.partition-group-on-commit | flag | true | Group new files before ids are given.
scan.max-splits-per-task | integer | 10 | Splits that a task holds.
scan.plan-auto-tag-for-read.time-retained | duration | | Age of a tag that guards a read.
sort-compaction.local-sample.magnification | integer | 1000 | Samples of a sorting compaction.
sort-compaction.range-strategy | text | SIZE | How a sorting compaction cuts ranges.
sort-engine | text | loser-tree | How sorted runs are merged.
sort-spill-buffer-size | size | 64 mb | Rows of a sort before it spills.
sort-spill-threshold | integer | | Readers of a sort before it spills.
spill-compression | text | zstd | Compression of spilled rows.
spill-compression.zstd-level | integer | 1 | Level of that compression.
write-buffer-for-append | flag | false | Buffer the rows of append tables.
write-manifest-cache | size | 0 mb | Memory for manifests of a writer.
write-max-writers-to-spill | integer | 10 | Writers of an append before they spill.
write.batch-memory | size | 128 mb | Bytes that a file writer takes at once.
zorder.var-length-contribution | integer | 8 | Bytes of a text that count in a z-order.
"""

_ENGINES = """
changelog.precommit-compact.thread-num | integer | | Flink: threads that join changelog files.
compaction.bucket-distribution-strategy | text | linear | Flink: how compactions are spread.
commit.custom-listeners | names | | Flink: listeners of a commit.
end-input.check-partition-expire | flag | false | Flink: expire partitions at the end.
end-input.watermark | integer | | Flink: watermark at the end of input.
filesystem.job-level-settings.enabled | flag | true | Flink: pass on file system settings.
format-table.commit-hive-sync-url | text | | Format tables: where Hive is told.
format-table.file.compression | text | | Format tables: compression.
format-table.implementation | text | paimon | Format tables: who reads them.
format-table.partition-path-only-value | flag | false | Format tables: folders without names.
format-table.repair.collect-statistics | flag | false | Spark: statistics of a repair.
format-table.scan.list-parallelism | integer | 64 | Format tables: folders listed at once.
format-table.statistics.parallelism | integer | 8 | Spark: requests for statistics at once.
legacy-timestamp-mapping.enabled | flag | false | Spark: TIMESTAMP as an instant.
lookup.async | flag | false | Flink: look up in the background.
lookup.async-thread-number | integer | 16 | Flink: threads of such a look-up.
lookup.blob-as-descriptor | flag | false | Flink: look up blobs by reference.
lookup.bootstrap-parallelism | integer | 4 | Flink: readers that fill a look-up join.
lookup.cache | text | AUTO | Flink: cache of a look-up join.
lookup.dynamic-partition | text | | Flink: partition that a look-up join reads.
lookup.dynamic-partition.refresh-interval | duration | 1 h | Flink: wait between two such looks.
lookup.dynamic-partition.refresh.async | flag | false | Flink: such looks in the background.
lookup.refresh.async | flag | false | Flink: refresh a look-up in the background.
lookup.refresh.async.pending-snapshot-count | integer | 5 | Flink: snapshots before it waits.
lookup.refresh.full-load-threshold | integer | | Flink: snapshots before it loads anew.
lookup.refresh.time-periods-blacklist | text | | Flink: times without a refresh.
materialized-table.definition-query | text | | Flink: the query of a materialized table.
materialized-table.interval-freshness | text | | Flink: how old it may be.
materialized-table.interval-freshness.time-unit | text | | Flink: in what unit.
materialized-table.logical-refresh-mode | text | | Flink: how it is meant to be refreshed.
materialized-table.refresh-handler-bytes | text | | Flink: what refreshes it.
materialized-table.refresh-handler-description | text | | Flink: what refreshes it, in words.
materialized-table.refresh-mode | text | | Flink: how it is refreshed.
materialized-table.refresh-status | text | | Flink: whether it is refreshed.
metastore.partitioned-table | flag | false | Hive: list the partitions in the metastore.
metastore.tag-to-partition | text | | Hive: tags as partitions of this name.
metastore.tag-to-partition.preview | text | none | Hive: show tags before they are made.
paimon.respect.minmaxsplitsize.enabled | flag | false | Hive: its own split sizes.
paimon.split.openfilecost | integer | | Hive: its own cost of opening a file.
partition.end-input-to-done | flag | false | Flink: mark partitions done at the end.
partition.idle-time-to-done | duration | | Flink: quiet time after which a partition is done.
partition.idle-time-to-report-statistic | duration | 0 ms | Flink: quiet time before statistics.
partition.mark-done-action | text | success-file | Flink: how a partition is marked done.
partition.mark-done-action.custom.class | text | | Flink: the class that marks it.
partition.mark-done-action.http.params | text | | Flink: parameters of the request that marks it.
partition.mark-done-action.http.url | text | | Flink: where that request goes.
partition.mark-done-action.mode | text | process-time | Flink: when a partition is marked.
partition.mark-done.recover-from-state | flag | true | Flink: mark after a recovery.
partition.sink-strategy | text | NONE | Flink: how rows are spread over writers.
partition.time-interval | duration | | Flink: the time that a partition covers.
partition.timestamp-format.strict | flag | false | Refuse partition values that are no time.
path | text | | Where the table lies, as Flink and Spark pass it on.
postpone.batch-write-fixed-bucket | flag | true | bucket=-2: write real buckets in a batch.
postpone.batch-write-fixed-bucket.max-parallelism | integer | 2048 | bucket=-2: most such buckets.
postpone.batch-write-fixed-bucket.rescale-load-factor | integer | 32 | bucket=-2: when to add some.
postpone.default-bucket-num | integer | | bucket=-2: buckets of a new partition.
postpone.target-row-num-per-bucket | integer | | bucket=-2: rows of a bucket.
postpone.target-size-per-bucket | size | 1 gb | bucket=-2: bytes of a bucket.
precommit-compact | flag | false | Flink: join small files before a commit.
read.allow.fullScan | flag | true | Spark: let a scan read all partitions.
read.shuffle-bucket-with-partition | flag | true | Flink: spread by partition and bucket.
read.stream.maxBytesPerTrigger | integer | | Spark: bytes of a batch.
read.stream.maxFilesPerTrigger | integer | | Spark: files of a batch.
read.stream.maxRowsPerTrigger | integer | | Spark: rows of a batch.
read.stream.maxTriggerDelayMs | integer | | Spark: wait for a batch.
read.stream.minRowsPerTrigger | integer | | Spark: least rows of a batch.
requiredSparkConfsCheck.enabled | flag | true | Spark: check the session.
scan.bounded | flag | | Flink: whether a consumer ends.
scan.dedicated-split-generation | flag | false | Flink: plan splits while running.
scan.fallback-branch.read-fail-fast | flag | false | Fail where the fallback branch fails.
scan.infer-parallelism | flag | true | Flink: readers by the number of splits.
scan.infer-parallelism.max | integer | 1024 | Flink: most such readers.
scan.max-snapshot.count | integer | -1 | Flink: snapshots between two checkpoints.
scan.parallelism | integer | | Flink: readers of a source.
scan.push-down | flag | true | Flink: push filters and columns down.
scan.remove-normalize | flag | false | Flink: no normalizing after a stream.
scan.split-enumerator.batch-size | integer | 10 | Flink: splits given out at once.
scan.split-enumerator.mode | text | fair | Flink: how splits are given out.
scan.watermark.alignment.group | text | | Flink: sources that align watermarks.
scan.watermark.alignment.max-drift | duration | | Flink: how far apart they may be.
scan.watermark.alignment.update-interval | duration | 1 s | Flink: how often they tell.
scan.watermark.emit.strategy | text | on-event | Flink: when watermarks are given.
scan.watermark.idle-timeout | duration | | Flink: quiet time before a source is idle.
sink.clustering.sample-factor | integer | 100 | Flink: samples of a clustered sink.
sink.clustering.sort-in-cluster | flag | true | Flink: sort within a sink's range.
sink.committer-cpu | number | 1.0 | Flink: cores of the committer.
sink.committer-memory | size | | Flink: memory of the committer.
sink.committer-operator-chaining | flag | true | Flink: committer beside the writer.
sink.coordinator-commit.enabled | flag | false | Flink: commit in the job manager.
sink.cross-partition.managed-memory | size | 256 mb | Flink: memory of the key index.
sink.key-only-deletes.enabled | flag | false | Flink: take deletes of keys alone.
sink.managed.writer-buffer-memory | size | 256 mb | Flink: managed memory of a writer.
sink.operator-uid.suffix | text | | Flink: ends the ids of operators.
sink.parallelism | integer | | Flink: writers of a sink.
sink.process-time-zone | text | | Flink: zone of processing times in tags.
sink.savepoint.auto-tag | flag | false | Flink: a tag for each savepoint.
sink.use-managed-memory-allocator | flag | false | Flink: managed memory for writers.
sink.watermark-time-zone | text | UTC | Flink: zone of watermarks in tags.
sink.writer-coordinator.cache-expire-after-access | duration | | Flink: age of cached manifests.
sink.writer-coordinator.cache-memory | size | 2 gb | Flink: memory for manifests.
sink.writer-coordinator.cache-soft-values | flag | true | Flink: give that memory back.
sink.writer-coordinator.enabled | flag | false | Flink: plan writes in one place.
sink.writer-coordinator.page-size | size | 32 kb | Flink: page of its answers.
sink.writer-coordinator.prefetch-manifests | flag | false | Flink: read manifests first.
sink.writer-cpu | number | 1.0 | Flink: cores of a writer.
sink.writer-memory | size | | Flink: memory of a writer.
sink.writer-refresh-detectors | names | | Flink: options that a running writer takes up.
snapshot.watermark-idle-timeout | duration | | Flink: quiet time before a snapshot is made.
source.checkpoint-align.enabled | flag | false | Flink: checkpoints at snapshots.
source.checkpoint-align.timeout | duration | 30 s | Flink: wait for such a snapshot.
source.operator-uid.suffix | text | | Flink: ends the ids of sources.
source.split.target-size-with-column-pruning | flag | false | Spark: splits by the columns read.
table-read.sequence-number.enabled | flag | false | System tables show sequence numbers.
unaware-bucket.compaction.parallelism | integer | | Flink: compactions at once.
unaware-bucket.no-shuffle | flag | false | Flink: no shuffle before an append.
visibility-callback.check-interval | duration | 10 s | Wait between two looks for compaction.
visibility-callback.enabled | flag | false | A commit waits until its rows are compacted.
visibility-callback.timeout | duration | 30 min | Longest such wait.
write.hive-style-dynamic-partition.enabled | flag | false | Spark: partitions by position.
write.use-v2-write | flag | false | Spark: its newer way of writing.
"""

_READ_TO_COME = """
batch-scan-mode | text | none | Scan as a compaction does.
blob-descriptor-field | names | | BLOB columns that hold references.
blob-external-storage-field | names | | BLOB columns whose values lie elsewhere.
blob-field | names | | Columns to store as BLOB.
blob-view-field | names | | BLOB columns that point into other tables.
chain-table.chain-partition-keys | names | | Partition keys that make a chain.
chain-table.enabled | flag | false | The table is a chain of snapshots and deltas.
data-evolution.enabled | flag | false | Files may hold some of a row's columns.
fields.#.map.storage-layout | text | default | Store a MAP by its keys.
key-value.sequence_number.enabled | flag | false | Show the sequence numbers of rows.
pk-clustering-override | flag | false | Sort files by other columns than the key.
postpone.merge-on-read | flag | false | bucket=-2: read postponed rows too.
query-auth.enabled | flag | false | Ask the catalog what may be read.
read.changelog | flag | false | Read rows with their kinds.
scan.fallback-delta-branch | text | | Branch of a chain's deltas.
scan.fallback-snapshot-branch | text | | Branch of a chain's snapshots.
scan.partitions | text | | The partitions to read.
stream-scan-mode | text | none | Scan as an internal stream does.
vector-field | names | | Columns to store as VECTOR.
vector.file.format | text | | Format of files of vectors.
"""

_WRITE_TO_COME = """
clustering.incremental | flag | false | Compaction clusters rows.
cross-partition-upsert.index-ttl | duration | | Age of keys in the index across partitions.
data-file.external-paths.specific-fs | text | | Scheme of the external path to take.
data-file.external-paths.strategy | text | none | How an external path is chosen.
data-file.external-paths.weights | text | | Shares of the external paths.
fields.#.pk-vector.index.type | text | | Kind of the column's vector index.
global-index.external-path | text | | Where global indexes lie.
pk-bitmap.index.columns | names | | Columns with a bitmap index.
pk-btree.index.columns | names | | Columns with a B-tree index.
pk-full-text.index.columns | names | | Columns with a full-text index.
pk-multivalue.index.columns | names | | ARRAY columns with an index.
pk-vector.index.columns | names | | VECTOR columns with an index.
write.merge-schema | flag | false | A write adds the columns that are missing.
write.merge-schema.explicit-cast | flag | false | Such a write may narrow types.
write.merge-schema.type-widening | flag | false | Such a write may widen types.
"""

_WRITE_IGNORABLE = """
clustering.columns | names | | Columns by which written rows are clustered.
commit.callbacks | names | | Java classes called after a commit.
commit.discard-duplicate-files | flag | false | A commit drops files that are there already.
commit.strict-mode.last-safe-snapshot | integer | | A commit refuses others' changes since then.
file-index.#.columns | names | | Columns with a file index of that type.
manifest-sort.enabled | flag | false | Sort manifests by partition.
metadata.iceberg.storage | text | disabled | Write Iceberg metadata beside each snapshot.
tag.callbacks | names | | Java classes called after a tag is made.
upsert-key | names | | Spark: INSERT takes the place of rows with the same values.
"""

_BESIDE = """
blob-as-descriptor | flag | false | BLOB: write references.
blob-compaction.enabled | flag | false | BLOB: compact its files.
blob-descriptor.source-table | text | | BLOB: table whose references are read.
blob-external-storage-path | text | | BLOB: where values lie that are elsewhere.
blob-view.resolve.enabled | flag | true | BLOB: follow views.
blob-write-null-on-fetch-failure | flag | false | BLOB: null for what cannot be fetched.
blob-write-null-on-missing-file | flag | false | BLOB: null for what is gone.
blob.copy-buffer-size | size | 4 kb | BLOB: buffer of a copy.
blob.split-by-file-size | flag | | BLOB: let it count in splits.
blob.target-file-size | size | | BLOB: size of a file.
chain-table.split.key-range-enabled | flag | true | Chains: splits by key range.
chain-table.streaming.merge-snapshot | flag | false | Chains: how a stream begins.
clustering.history-partition.idle-to-full-sort | duration | | Clustering: when a partition is old.
clustering.history-partition.limit | integer | 5 | Clustering: old partitions at once.
clustering.incremental.mode | text | global-sort | Clustering: how it sorts.
clustering.incremental.optimize-write | flag | false | Clustering: before the write.
clustering.strategy | text | auto | Clustering: order, zorder or hilbert.
data-evolution.compaction.rewrite-row-ids | flag | false | Data evolution: an old switch.
data-evolution.merge-into.file-pruning | flag | true | Data evolution: skip files in MERGE.
data-evolution.merge-into.source-persist | flag | false | Data evolution: keep MERGE's source.
data-evolution.reassign.skip-contiguous-row-count | integer | 1000000000 | Data evolution: ids.
data-evolution.row-id-conflict-rewrite.max-size | size | 256 mb | Data evolution: retries.
data-evolution.row-sidecar.enabled | flag | false | Data evolution: rows beside columns.
data-evolution.row-sidecar.max-selected-rows | integer | 4096 | Data evolution: when used.
data-evolution.row-sidecar.max-selection-ratio | number | 0.05 | Data evolution: when used.
delete.force-produce-changelog | flag | false | DELETE writes -D rows, as lakecore always does.
full-text-index.search-mode | text | fast | Full-text index: what it searches.
global-index.build.max-parallelism | integer | 4096 | Global index: builders at once.
global-index.build.max-shard | integer | 32 | Global index: shards.
global-index.column-update-action | text | THROW_ERROR | Global index: when a column changes.
global-index.enabled | flag | true | Global index: use it.
global-index.row-count-per-shard | integer | 100000 | Global index: rows of a shard.
global-index.search-mode | text | | Global index: what it searches.
global-index.thread-num | integer | 32 | Global index: threads.
manifest-sort.max-rewrite-size | size | 256 mb | Sorted manifests: bytes rewritten at once.
manifest-sort.partition-field | text | | Sorted manifests: the field.
metadata.iceberg.compaction.max.file-num | integer | 50 | Iceberg: manifests before merging.
metadata.iceberg.compaction.min.file-num | integer | 10 | Iceberg: manifests to merge.
metadata.iceberg.database | text | | Iceberg: database in the metastore.
metadata.iceberg.delete-after-commit.enabled | flag | true | Iceberg: delete old metadata.
metadata.iceberg.format-version | integer | 2 | Iceberg: format version.
metadata.iceberg.glue.skip-archive | flag | false | Iceberg: no archive in Glue.
metadata.iceberg.hadoop-conf-dir | text | | Iceberg: configuration.
metadata.iceberg.hive-client-class | text | | Iceberg: client of the metastore.
metadata.iceberg.hive-conf-dir | text | | Iceberg: configuration.
metadata.iceberg.hive-skip-update-stats | flag | false | Iceberg: no statistics in Hive.
metadata.iceberg.manifest-compression | text | snappy | Iceberg: compression.
metadata.iceberg.manifest-legacy-version | flag | false | Iceberg: older manifests.
metadata.iceberg.previous-versions-max | integer | 0 | Iceberg: old metadata kept.
metadata.iceberg.storage-location | text | | Iceberg: where its metadata lies.
metadata.iceberg.table | text | | Iceberg: table in the metastore.
metadata.iceberg.uri | text | | Iceberg: the metastore.
scalar-index.search-mode | text | fast | Scalar index: what it searches.
variant.inferShreddingSchema | flag | false | VARIANT: infer what is shredded.
variant.shredding.adaptive.maxInferBufferRow | integer | 256 | VARIANT: rows looked at later.
variant.shredding.adaptive.retentionRatio | number | 0.05 | VARIANT: paths that stay.
variant.shredding.inferenceMode | text | per-file | VARIANT: how it is inferred.
variant.shredding.maxInferBufferRow | integer | 4096 | VARIANT: rows looked at.
variant.shredding.maxSchemaDepth | integer | 50 | VARIANT: depth.
variant.shredding.maxSchemaWidth | integer | 300 | VARIANT: width.
variant.shredding.minFieldCardinalityRatio | number | 0.1 | VARIANT: paths that are shredded.
variant.shreddingSchema | text | | VARIANT: what is shredded.
vector-index.search-mode | text | fast | VECTOR index: what it searches.
vector-search.distribute.enabled | flag | false | VECTOR: search in parallel.
vector-search.lateral-join.batch-size | integer | 256 | VECTOR: queries at once.
vector-search.lateral-join.parallelism | integer | 16 | Spark: VECTOR searches at once.
vector.target-file-size | size | | VECTOR: size of a file.
write.data-evolution.update-conflict-retry.max-attempts | integer | 20 | Spark: retries.
write.data-evolution.update-conflict-retry.wait-ms | integer | 10 | Spark: wait between them.
"""

_OBSOLETE = """
fields.#.default-value | text | | Paimon to 1.2 read null as this. Now columns have default values.
"""

_PREFIXES = """
avro.# | text | | Passed to the Avro writer of other engines.
commit.callback.#.param | text | | Argument of a commit callback.
fields.#.map.shared-shredding.column-placement-policy | text | | Shredded MAP: where keys go.
fields.#.map.shared-shredding.max-columns | integer | | Shredded MAP: most columns.
fields.#.pk-vector.# | text | | The column's vector index.
file-index.# | text | | Settings of a file index.
kafka.# | text | | Log system of older releases.
log.# | text | | Log system of older releases.
orc.# | text | | Passed to the ORC writer of other engines.
parquet.# | text | | Passed to the Parquet writer of other engines.
schema.# | text | | Flink: computed columns and watermarks.
tag.callback.#.param | text | | Argument of a tag callback.
"""


_FIXED = {
    *("blob-descriptor-field", "blob-external-storage-field", "blob-external-storage-path"),
    *("blob-field", "blob-view-field", "data-evolution.enabled", "pk-clustering-override"),
}


def _chapter(
    text: str, effect: Effect, *, supported: bool = True, ignorable: bool = False
) -> Iterator[Option]:
    for line in text.strip().splitlines():
        key, kind_name, default, meaning = (cell.strip() for cell in line.split("|", 3))
        kind = _KINDS[kind_name]
        yield Option(
            key=key,
            kind=kind,
            default=kind.parse(default) if default else None,
            effect=effect,
            meaning=meaning,
            supported=supported,
            ignorable=ignorable,
            immutable=key in _FIXED,
        )


_ALL = (
    *_chapter(_TUNING, Effect.OTHER),
    *_chapter(_ENGINES, Effect.OTHER),
    *_chapter(_BESIDE, Effect.OTHER),
    *_chapter(_READ_TO_COME, Effect.READ, supported=False),
    *_chapter(_WRITE_TO_COME, Effect.WRITE, supported=False),
    *_chapter(_WRITE_IGNORABLE, Effect.WRITE, supported=False, ignorable=True),
    *_chapter(_OBSOLETE, Effect.NOTHING),
    *_chapter(_PREFIXES, Effect.OTHER),
)

OTHER_KEYS: Mapping[str, Option] = {known.key: known for known in _ALL if "#" not in known.key}
"""Options without an attribute, by key."""

OTHER_PATTERNS: tuple[Option, ...] = tuple(known for known in _ALL if "#" in known.key)
"""Options without an attribute whose key has a free part; the first that matches counts."""


def matches(pattern: str, key: str) -> bool:
    """Whether the key is the pattern with some text, not empty, for each `#`."""
    return re.fullmatch(re.escape(pattern).replace(r"\#", "(.+)"), key) is not None
