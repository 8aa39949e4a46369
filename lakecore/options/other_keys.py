"""Paimon's option keys that no operation of lakecore reads.

Each line of a chapter is `key | kind | default | meaning`. The chapter says what its options are
for, and either why they have no effect here, or that any value other than the default is refused. A
`#` in a key stands for any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from lakecore.options.choices import Effect
from lakecore.options.kinds import DURATION, FLAG, LONG, NAMES, NUMBER, SIZE, TEXT, Kind, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# --- engine keys ---------------------------------------------------------------------------------
# Paimon's option keys that only other engines use, in lines `key | kind | default | meaning`.

TUNING = """
async-file-write | flag | true | Write files in the background.
cache-page-size | size | 64 kb | Page size of the look-up cache.
cross-partition-upsert.bootstrap-parallelism | integer | 10 | Threads that fill the index of keys.
dynamic-bucket.assigner-parallelism | integer | | Number of tasks that assign dynamic buckets.
file-operation.thread-num | integer | | Number of concurrent file operations.
file-reader-async-threshold | size | 10 mb | Files from this size on are read in the background.
local-kv-db.block-size | size | 4 kb | Block size of the local key-value store.
lookup.cache-rows | integer | 10000 | Most rows in the cache of a look-up join.
lookup.cache-spill-compression | text | zstd | Compression of look-up files.
lookup.cache.bloom.filter.enabled | flag | true | Write Bloom filters into look-up files.
lookup.cache.bloom.filter.fpp | number | 0.05 | False-positive rate of the Bloom filters.
lookup.cache.high-priority-pool-ratio | number | 0.25 | Share of the cache for indexes and filters.
lookup.hash-load-factor | number | 0.75 | Load factor of the hash tables of look-ups.
lookup.merge-buffer-size | size | 8 mb | Buffer for merging the rows of one key.
lookup.merge-records-threshold | integer | 1024 | Rows of one key from which they are buffered as bytes.
lookup.remote-file.enabled | flag | false | Store look-up files in the storage of the table.
lookup.remote-file.level-threshold | integer | -2147483648 | Lowest level that gets look-up files.
manifest.merge-optimize.enabled | flag | true | Merge manifests block by block.
page-size | size | 64 kb | Size of a memory page.
row-tracking.partition-group-on-commit | flag | true | Group new files by partition before row ids are assigned.
scan.max-splits-per-task | integer | 10 | Most splits that are planned ahead for a task.
scan.plan-auto-tag-for-read.time-retained | duration | | Lifetime of a temporary tag that keeps the snapshot of a batch read.
sort-engine | text | loser-tree | Algorithm that merges sorted runs.
sort-spill-buffer-size | size | 64 mb | Size of the buffer of a sort, which is spilled when it is full.
sort-spill-threshold | integer | | Number of readers from which a sort spills.
spill-compression | text | zstd | Compression of spilled rows.
spill-compression.zstd-level | integer | 1 | Level of zstd for spilled rows.
write-buffer-for-append | flag | false | Buffer the rows that are written to append tables.
write-manifest-cache | size | 0 mb | Memory of a writer for manifests.
write-max-writers-to-spill | integer | 10 | Number of writers from which a batch write to an append table spills.
write.batch-memory | size | 128 mb | Memory for one batch of a file writer.
"""  # noqa: E501  one line for each option

ENGINES = """
changelog.precommit-compact.thread-num | integer | | Flink: threads that combine small changelog files.
compaction.bucket-distribution-strategy | text | linear | Flink: how buckets to compact are distributed to tasks.
commit.custom-listeners | names | | Flink: listeners that are called after a commit.
end-input.watermark | integer | | Flink: watermark that is set at the end of the input.
filesystem.job-level-settings.enabled | flag | true | Flink: pass the file system settings of the job to tables.
format-table.commit-hive-sync-url | text | | Format tables: URI of the Hive metastore that a commit updates.
format-table.file.compression | text | | Format tables: compression of files.
format-table.implementation | text | paimon | Format tables: whether Paimon or the engine reads them.
format-table.partition-path-only-value | flag | false | Format tables: directories of partitions hold only the value.
format-table.repair.collect-statistics | flag | false | Spark: MSCK REPAIR TABLE also collects statistics.
format-table.scan.list-parallelism | integer | 64 | Format tables: directories that are listed concurrently.
format-table.statistics.parallelism | integer | 8 | Spark: concurrent requests for statistics.
legacy-timestamp-mapping.enabled | flag | false | Spark: map TIMESTAMP to Spark's TIMESTAMP instead of TIMESTAMP_NTZ.
lookup.async | flag | false | Flink: use asynchronous look-up joins.
lookup.async-thread-number | integer | 16 | Flink: threads of an asynchronous look-up.
lookup.blob-as-descriptor | flag | false | Flink: store references to BLOB values in a look-up join.
lookup.bootstrap-parallelism | integer | 4 | Flink: threads that load the table of a look-up join.
lookup.dynamic-partition | text | | Flink: partition that a look-up join reads.
lookup.dynamic-partition.refresh-interval | duration | 1 h | Flink: how often that partition is determined again.
lookup.dynamic-partition.refresh.async | flag | false | Flink: load a new partition of a look-up join in the background.
lookup.refresh.async | flag | false | Flink: refresh the table of a look-up join in the background.
lookup.refresh.async.pending-snapshot-count | integer | 5 | Flink: pending snapshots from which a look-up join waits for the refresh.
lookup.refresh.full-load-threshold | integer | | Flink: pending snapshots from which a look-up join reloads the whole table.
lookup.refresh.time-periods-blacklist | text | | Flink: periods in which a look-up join does not refresh.
materialized-table.definition-query | text | | Flink: the query of a materialized table.
materialized-table.interval-freshness | text | | Flink: largest age of the data of a materialized table.
materialized-table.interval-freshness.time-unit | text | | Flink: unit of `materialized-table.interval-freshness`.
materialized-table.logical-refresh-mode | text | | Flink: refresh mode that the user declared.
materialized-table.refresh-handler-bytes | text | | Flink: serialized refresh job of a materialized table.
materialized-table.refresh-handler-description | text | | Flink: description of the refresh job of a materialized table.
materialized-table.refresh-mode | text | | Flink: actual refresh mode of a materialized table.
materialized-table.refresh-status | text | | Flink: state of the refresh job of a materialized table.
paimon.respect.minmaxsplitsize.enabled | flag | false | Hive: use Hive's settings for the size of splits.
paimon.split.openfilecost | integer | | Hive: overrides `source.split.open-file-cost`.
partition.end-input-to-done | flag | false | Flink: mark partitions as complete at the end of the input.
partition.idle-time-to-done | duration | | Flink: a partition without new rows for this time is marked as complete.
partition.mark-done-action.custom.class | text | | Flink: Java class that marks a partition as complete.
partition.mark-done-action.mode | text | process-time | Flink: whether time or watermark decides that a partition is complete.
partition.mark-done.recover-from-state | flag | true | Flink: mark partitions as complete after a recovery, too.
partition.sink-strategy | text | NONE | Flink: how rows are distributed to writers by partition.
partition.time-interval | duration | | Flink: the period that a partition covers.
precommit-compact | flag | false | Flink: combine small files before a commit.
read.allow.fullScan | flag | true | Spark: allow reads of all partitions.
read.shuffle-bucket-with-partition | flag | true | Flink: distribute splits by partition and bucket.
read.stream.maxBytesPerTrigger | integer | | Spark: most bytes of a micro-batch.
read.stream.maxFilesPerTrigger | integer | | Spark: most files of a micro-batch.
read.stream.maxRowsPerTrigger | integer | | Spark: most rows of a micro-batch.
read.stream.maxTriggerDelayMs | integer | | Spark: longest wait for the least rows of a micro-batch.
read.stream.minRowsPerTrigger | integer | | Spark: least rows of a micro-batch.
requiredSparkConfsCheck.enabled | flag | true | Spark: check that the session has the required settings.
scan.bounded | flag | | Flink: whether the source is bounded.
scan.dedicated-split-generation | flag | false | Flink: plan splits in a task instead of the JobManager.
scan.infer-parallelism | flag | true | Flink: derive the number of readers from splits or buckets.
scan.infer-parallelism.max | integer | 1024 | Flink: largest derived number of readers.
scan.max-snapshot.count | integer | -1 | Flink: most snapshots that are read between two checkpoints.
scan.parallelism | integer | | Flink: number of readers of a source.
scan.push-down | flag | true | Flink: push filters and columns down.
scan.remove-normalize | flag | false | Flink: leave out the ChangelogNormalize step of a streaming read.
scan.split-enumerator.batch-size | integer | 10 | Flink: splits that are assigned to a task at once.
scan.split-enumerator.mode | text | fair | Flink: how splits are assigned to tasks.
scan.watermark.alignment.group | text | | Flink: group of sources whose watermarks are aligned.
scan.watermark.alignment.max-drift | duration | | Flink: largest difference between the watermarks of such a group.
scan.watermark.alignment.update-interval | duration | 1 s | Flink: how often the sources of such a group report watermarks.
scan.watermark.emit.strategy | text | on-event | Flink: whether watermarks are emitted for each row or periodically.
scan.watermark.idle-timeout | duration | | Flink: time without rows after which a source counts as idle.
sink.clustering.sample-factor | integer | 100 | Flink: number of samples per writer of a clustered sink.
sink.clustering.sort-in-cluster | flag | true | Flink: also sort the rows within each writer of a clustered sink.
sink.committer-cpu | number | 1.0 | Flink: CPU cores of the committer.
sink.committer-memory | size | | Flink: memory of the committer.
sink.committer-operator-chaining | flag | true | Flink: chain the committer to the writer.
sink.coordinator-commit.enabled | flag | false | Flink: run the committer in the JobManager.
sink.cross-partition.managed-memory | size | 256 mb | Flink: weight of the key index in managed memory.
sink.key-only-deletes.enabled | flag | false | Flink: accept deletions that hold only the key.
sink.managed.writer-buffer-memory | size | 256 mb | Flink: weight of the buffer of a writer in managed memory.
sink.operator-uid.suffix | text | | Flink: suffix of the ids of operators of a sink.
sink.parallelism | integer | | Flink: number of writers of a sink.
sink.savepoint.auto-tag | flag | false | Flink: create a tag for each savepoint.
sink.use-managed-memory-allocator | flag | false | Flink: writers use managed memory.
sink.writer-coordinator.cache-expire-after-access | duration | | Flink: idle time after which the coordinator drops a cached manifest.
sink.writer-coordinator.cache-memory | size | 2 gb | Flink: memory of the coordinator for manifests.
sink.writer-coordinator.cache-soft-values | flag | true | Flink: Java may free the manifests that the coordinator has cached.
sink.writer-coordinator.enabled | flag | false | Flink: plan the files of writers in the JobManager.
sink.writer-coordinator.page-size | size | 32 kb | Flink: size of one reply of the coordinator.
sink.writer-coordinator.prefetch-manifests | flag | false | Flink: the coordinator reads all manifests in advance.
sink.writer-cpu | number | 1.0 | Flink: CPU cores of a writer.
sink.writer-memory | size | | Flink: memory of a writer.
sink.writer-refresh-detectors | names | | Flink: groups of options whose changes a running writer applies.
snapshot.watermark-idle-timeout | duration | | Flink: idle time after which a snapshot is created.
source.checkpoint-align.enabled | flag | false | Flink: make a checkpoint only after a snapshot was read.
source.checkpoint-align.timeout | duration | 30 s | Flink: longest wait of a checkpoint for a snapshot.
source.operator-uid.suffix | text | | Flink: suffix of the ids of operators of a source.
source.split.target-size-with-column-pruning | flag | false | Spark: compute the size of splits from the columns that are read.
unaware-bucket.compaction.parallelism | integer | | Flink: number of tasks that compact tables without buckets.
unaware-bucket.no-shuffle | flag | false | Flink: CDC writes to append tables without a shuffle.
write.hive-style-dynamic-partition.enabled | flag | false | Spark: INSERT by position uses Hive's order of columns.
write.use-v2-write | flag | false | Spark: write by Spark's DataSource V2 interface.
"""  # noqa: E501  one line for each option

ENGINE_FAMILIES = """
avro.# | text | | Passed to the Avro writer of other engines.
orc.# | text | | Passed to the ORC writer of other engines.
parquet.# | text | | Passed to the Parquet writer of other engines.
schema.# | text | | Flink: definitions of computed columns and watermarks.
"""

LOG_FAMILIES = """
kafka.# | text | | Settings of the log system of older releases.
log.# | text | | Settings of the log system of older releases.
"""


# --- other keys ----------------------------------------------------------------------------------

_KINDS: Mapping[str, Kind[object]] = {
    "flag": cast("Kind[object]", FLAG),
    "integer": cast("Kind[object]", LONG),
    "number": cast("Kind[object]", NUMBER),
    "size": cast("Kind[object]", SIZE),
    "duration": cast("Kind[object]", DURATION),
    "names": cast("Kind[object]", NAMES),
    "text": cast("Kind[object]", TEXT),
}

_READ_TO_COME = """
batch-scan-mode | text | none | Internal: a batch read plans its files as a compaction does.
chain-table.chain-partition-keys | names | | Partition keys that form a chain.
chain-table.enabled | flag | false | The table is a chain of snapshots and deltas.
fields.#.map.storage-layout | text | default | How the entries of a MAP column are stored.
key-value.sequence_number.enabled | flag | false | Show the sequence numbers of rows.
pk-clustering-override | flag | false | Sort files by `clustering.columns` instead of the primary key.
read.changelog | flag | false | Read rows with their kinds.
scan.fallback-delta-branch | text | | Branch with the deltas of a chain table.
scan.fallback-snapshot-branch | text | | Branch with the snapshots of a chain table.
scan.partitions | text | | The partitions to read.
stream-scan-mode | text | none | Internal: a stream plans its files as Paimon's own jobs do.
vector.file.format | text | | Format of the files of VECTOR columns.
"""  # noqa: E501  one line for each option

_WRITE_TO_COME = """
blob-descriptor.source-table | text | | Table through whose storage descriptors are read.
data-file.external-paths.specific-fs | text | | Scheme of the external path to use.
data-file.external-paths.strategy | text | none | How an external path is chosen.
data-file.external-paths.weights | text | | Weights of the external paths.
fields.#.pk-vector.index.type | text | | Type of the column's vector index.
global-index.external-path | text | | Where global indexes are stored.
pk-bitmap.index.columns | names | | Columns with a bitmap index.
pk-btree.index.columns | names | | Columns with a B-tree index.
pk-full-text.index.columns | names | | Columns with a full-text index.
pk-multivalue.index.columns | names | | ARRAY columns with an index.
pk-vector.index.columns | names | | VECTOR columns with an index.
"""

_WRITE_IGNORABLE = """
commit.callbacks | names | | Java classes called after a commit.
commit.discard-duplicate-files | flag | false | A commit leaves out files that are committed already.
commit.strict-mode.last-safe-snapshot | integer | | A commit fails if another user has committed changes after this snapshot.
manifest-sort.enabled | flag | false | Sort manifests by partition.
metadata.iceberg.glue.skip-archive | flag | false | Iceberg: AWS Glue keeps no old versions of the table; lakecore calls no Glue.
metadata.iceberg.hadoop-conf-dir | text | | Iceberg: directory of the Hadoop configuration.
metadata.iceberg.hive-client-class | text | org.apache.hadoop.hive.metastore.HiveMetaStoreClient | Iceberg: Java class of the client of the Hive metastore.
metadata.iceberg.hive-conf-dir | text | | Iceberg: directory of the Hive configuration.
tag.callbacks | names | | Java classes called after a tag is created.
upsert-key | names | | Spark: INSERT replaces rows with the same values in these columns.
visibility-callback.enabled | flag | false | A commit waits until its rows are compacted.
"""  # noqa: E501  one line for each option

_DETAILS = """
blob-compaction.enabled | flag | false | BLOB: compaction also rewrites BLOB files.
blob.copy-buffer-size | size | 4 kb | BLOB: size of the buffer for copying values.
blob.split-by-file-size | flag | | BLOB: the size of BLOB files counts when splits are planned.
chain-table.split.key-range-enabled | flag | true | Chain tables: divide a bucket into splits by key range.
chain-table.streaming.merge-snapshot | flag | false | Chain tables: a stream begins with merged snapshots and deltas.
data-evolution.compaction.rewrite-row-ids | flag | false | Data evolution: option of older releases.
data-evolution.merge-into.file-pruning | flag | true | Data evolution: MERGE first finds the files that it changes.
data-evolution.merge-into.source-persist | flag | false | Data evolution: MERGE stores its source temporarily.
data-evolution.reassign.skip-contiguous-row-count | integer | 1000000000 | Data evolution: longer runs of contiguous row ids are not reassigned.
data-evolution.row-id-conflict-rewrite.max-size | size | 256 mb | Data evolution: largest size of files to adapt an update to after a conflict.
data-evolution.row-sidecar.enabled | flag | false | Data evolution: also write row-oriented files, for reads of few rows.
data-evolution.row-sidecar.max-selected-rows | integer | 4096 | Data evolution: most rows to read from a row-oriented file.
data-evolution.row-sidecar.max-selection-ratio | number | 0.05 | Data evolution: largest share of rows to read from a row-oriented file.
full-text-index.search-mode | text | fast | Full-text index: whether rows without an index are searched.
global-index.build.max-parallelism | integer | 4096 | Global index: most tasks that build it.
global-index.build.max-shard | integer | 32 | Global index: preferred largest number of shards.
global-index.column-update-action | text | THROW_ERROR | Global index: what an update of an indexed column does.
global-index.enabled | flag | true | Global index: reads use it.
global-index.row-count-per-shard | integer | 100000 | Global index: number of rows of a shard.
global-index.search-mode | text | | Global index: whether rows without an index are searched.
global-index.thread-num | integer | 32 | Global index: number of threads that read and write it.
manifest-sort.max-rewrite-size | size | 256 mb | Sorted manifests: most bytes that one commit rewrites.
manifest-sort.partition-field | text | | Sorted manifests: partition key to sort by.
scalar-index.search-mode | text | fast | Scalar index: whether rows without an index are searched.
scan.fallback-branch.read-fail-fast | flag | false | A read fails if the fallback branch cannot be read.
variant.inferShreddingSchema | flag | false | VARIANT: infer which fields are shredded.
variant.shredding.adaptive.maxInferBufferRow | integer | 256 | VARIANT: rows that are examined in each file after the first.
variant.shredding.adaptive.retentionRatio | number | 0.05 | VARIANT: share of rows for which a shredded field stays shredded.
variant.shredding.inferenceMode | text | per-file | VARIANT: whether each file is examined independently.
variant.shredding.maxInferBufferRow | integer | 4096 | VARIANT: rows that are examined to infer shredded fields.
variant.shredding.maxSchemaDepth | integer | 50 | VARIANT: deepest nesting that is examined.
variant.shredding.maxSchemaWidth | integer | 300 | VARIANT: most fields that are shredded.
variant.shredding.minFieldCardinalityRatio | number | 0.1 | VARIANT: share of rows that must hold a field to shred it.
variant.shreddingSchema | text | | VARIANT: schema of the shredded fields.
vector-index.search-mode | text | fast | VECTOR index: whether rows without an index are searched.
vector-search.distribute.enabled | flag | false | VECTOR: distribute a search to several tasks.
vector-search.lateral-join.batch-size | integer | 256 | VECTOR: query vectors of one batch of a lateral join.
vector-search.lateral-join.parallelism | integer | 16 | Spark: number of tasks of a lateral join with a vector search.
vector.target-file-size | size | | VECTOR: target size of a file of vectors.
visibility-callback.check-interval | duration | 10 s | How often a waiting commit checks whether its rows are compacted.
visibility-callback.timeout | duration | 30 min | Longest wait of a commit for the compaction of its rows.
write.data-evolution.update-conflict-retry.max-attempts | integer | 20 | Spark: attempts of an UPDATE that conflicts with others.
write.data-evolution.update-conflict-retry.wait-ms | integer | 10 | Spark: wait between two attempts of such an UPDATE.
"""  # noqa: E501  one line for each option

_PARTITION_TIMES = """
partition.timestamp-format.strict | flag | false | A write fails if a partition value is not a time.
"""

_TOTAL_SORT = """
sort-compaction.local-sample.magnification | integer | 1000 | Number of samples per task of a sorting compaction.
sort-compaction.range-strategy | text | SIZE | Whether a sorting compaction divides rows by size or by number.
"""  # noqa: E501  one line for each option

_MERGED_IN_BUFFER = """
local-merge-buffer-size | size | | Buffer that merges the rows of a key before a shuffle.
"""

_PLACE = """
path | text | | Location of the table, as Flink and Spark pass it.
"""

_ALWAYS = """
delete.force-produce-changelog | flag | false | DELETE writes rows of kind -D.
"""

_BY_TYPE = """
vector-field | names | | ARRAY columns that are stored as VECTOR.
field.#.vector-dim | integer | | Length of the VECTOR.
"""

_OBSOLETE = """
record-level.time-field-type | text | | Unit of `record-level.time-field` up to Paimon 0.9.
fields.#.default-value | text | | Value in place of null up to Paimon 1.2; now columns have default values.
"""  # noqa: E501  one line for each option

_DETAIL_FAMILIES = """
commit.callback.#.param | text | | Argument of a class of `commit.callbacks`.
fields.#.map.shared-shredding.column-placement-policy | text | | Shredded MAP: how keys are assigned to columns.
fields.#.map.shared-shredding.max-columns | integer | | Shredded MAP: most columns.
fields.#.pk-vector.# | text | | Setting of the column's vector index.
tag.callback.#.param | text | | Argument of a class of `tag.callbacks`.
"""  # noqa: E501  one line for each option


_FIXED = {"pk-clustering-override"}


def _chapter(
    text: str,
    effect: Effect,
    no_effect: str = "",
    *,
    supported: bool = True,
    ignorable: bool = False,
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
            no_effect=no_effect,
            immutable=key in _FIXED,
        )


_DETAIL = "Detail of a feature that lakecore refuses or lacks."
_ALL = (
    *_chapter(TUNING, Effect.OTHER, "Tuning of parts that lakecore does not have."),
    *_chapter(ENGINES, Effect.OTHER, "Work of another engine."),
    *_chapter(_DETAILS, Effect.OTHER, _DETAIL),
    *_chapter(
        _PARTITION_TIMES,
        Effect.OTHER,
        "lakecore writes such values; values-time never expires these partitions.",
    ),
    *_chapter(_TOTAL_SORT, Effect.OTHER, "lakecore sorts all rows of a partition together."),
    *_chapter(
        _MERGED_IN_BUFFER, Effect.OTHER, "The buffer of a writer merges rows before it spills them."
    ),
    *_chapter(_PLACE, Effect.OTHER, "The catalog, or the caller, states the location."),
    *_chapter(_ALWAYS, Effect.OTHER, "lakecore always writes them."),
    *_chapter(
        _BY_TYPE,
        Effect.OTHER,
        "The type of the column decides; a column of another type is refused.",
    ),
    *_chapter(_READ_TO_COME, Effect.READ, supported=False),
    *_chapter(_WRITE_TO_COME, Effect.WRITE, supported=False),
    *_chapter(_WRITE_IGNORABLE, Effect.WRITE, supported=False, ignorable=True),
    *_chapter(_OBSOLETE, Effect.NOTHING, "No release of Paimon reads it any more."),
    *_chapter(ENGINE_FAMILIES, Effect.OTHER, "Work of another engine."),
    *_chapter(_DETAIL_FAMILIES, Effect.OTHER, _DETAIL),
    *_chapter(LOG_FAMILIES, Effect.NOTHING, "No release of Paimon reads it any more."),
)

OTHER_KEYS: Mapping[str, Option] = {known.key: known for known in _ALL if "#" not in known.key}
"""Options without an attribute, by key."""

OTHER_PATTERNS: tuple[Option, ...] = tuple(known for known in _ALL if "#" in known.key)
"""Options without an attribute; `#` stands for a variable part of a key. The first match counts."""


def matches(pattern: str, key: str) -> bool:
    """Whether the key matches the pattern, in which each `#` stands for some non-empty text."""
    return re.fullmatch(re.escape(pattern).replace(r"\#", "(.+)"), key) is not None
