"""Paimon's option keys that only other engines use, in lines `key | kind | default | meaning`."""

from __future__ import annotations

TUNING = """
async-file-write | flag | true | Write files in the background.
cache-page-size | size | 64 kb | Page of the look-up cache.
cross-partition-upsert.bootstrap-parallelism | integer | 10 | Readers that fill the key index.
dynamic-bucket.assigner-parallelism | integer | | Assigners of dynamic buckets.
file-operation.thread-num | integer | | File operations at once.
file-reader-async-threshold | size | 10 mb | Size from which files are read in the background.
local-kv-db.block-size | size | 4 kb | Block of the local key-value store.
lookup.cache-rows | integer | 10000 | Rows that a look-up join holds.
lookup.cache-spill-compression | text | zstd | Compression of look-up files.
lookup.cache.bloom.filter.enabled | flag | true | Bloom filters in look-up files.
lookup.cache.bloom.filter.fpp | number | 0.05 | False-positive rate of the Bloom filters.
lookup.cache.high-priority-pool-ratio | number | 0.25 | Cache for indexes and filters.
lookup.hash-load-factor | number | 0.75 | Filling of look-up hash tables.
lookup.merge-buffer-size | size | 8 mb | Buffer of a key being merged.
lookup.merge-records-threshold | integer | 1024 | Rows of a key before they are buffered as bytes.
lookup.remote-file.enabled | flag | false | Keep look-up files with the table.
lookup.remote-file.level-threshold | integer | -2147483648 | First level with look-up files.
manifest.merge-optimize.enabled | flag | true | Merge manifests block by block.
page-size | size | 64 kb | Memory page.
row-tracking.partition-group-on-commit | flag | true | Group new files before ids are given.
scan.max-splits-per-task | integer | 10 | Splits that a task holds.
scan.plan-auto-tag-for-read.time-retained | duration | | Age of a tag that guards a read.
sort-engine | text | loser-tree | How sorted runs are merged.
sort-spill-buffer-size | size | 64 mb | Rows of a sort before it spills.
sort-spill-threshold | integer | | Readers of a sort before it spills.
spill-compression | text | zstd | Compression of spilled rows.
spill-compression.zstd-level | integer | 1 | Level of zstd for spilled rows.
write-buffer-for-append | flag | false | Buffer the rows of append tables.
write-manifest-cache | size | 0 mb | Memory for manifests of a writer.
write-max-writers-to-spill | integer | 10 | Writers of an append before they spill.
write.batch-memory | size | 128 mb | Bytes that a file writer takes at once.
"""

ENGINES = """
changelog.precommit-compact.thread-num | integer | | Flink: threads that join changelog files.
compaction.bucket-distribution-strategy | text | linear | Flink: how compactions are spread.
commit.custom-listeners | names | | Flink: listeners of a commit.
end-input.watermark | integer | | Flink: watermark at the end of input.
filesystem.job-level-settings.enabled | flag | true | Flink: pass on file system settings.
format-table.commit-hive-sync-url | text | | Format tables: address for Hive's updates.
format-table.file.compression | text | | Format tables: compression.
format-table.implementation | text | paimon | Format tables: who reads them.
format-table.partition-path-only-value | flag | false | Format tables: folders without names.
format-table.repair.collect-statistics | flag | false | Spark: statistics of a repair.
format-table.scan.list-parallelism | integer | 64 | Format tables: folders listed at once.
format-table.statistics.parallelism | integer | 8 | Spark: requests for statistics at once.
legacy-timestamp-mapping.enabled | flag | false | Spark: TIMESTAMP as an instant.
lookup.async | flag | false | Flink: look up in the background.
lookup.async-thread-number | integer | 16 | Flink: threads of an asynchronous look-up.
lookup.blob-as-descriptor | flag | false | Flink: look up blobs by reference.
lookup.bootstrap-parallelism | integer | 4 | Flink: readers that fill a look-up join.
lookup.dynamic-partition | text | | Flink: partition that a look-up join reads.
lookup.dynamic-partition.refresh-interval | duration | 1 h | Flink: refresh interval.
lookup.dynamic-partition.refresh.async | flag | false | Flink: refresh in the background.
lookup.refresh.async | flag | false | Flink: refresh a look-up in the background.
lookup.refresh.async.pending-snapshot-count | integer | 5 | Flink: snapshots before it waits.
lookup.refresh.full-load-threshold | integer | | Flink: snapshots before a full reload.
lookup.refresh.time-periods-blacklist | text | | Flink: times without a refresh.
materialized-table.definition-query | text | | Flink: the query of a materialized table.
materialized-table.interval-freshness | text | | Flink: how old it may be.
materialized-table.interval-freshness.time-unit | text | | Flink: in what unit.
materialized-table.logical-refresh-mode | text | | Flink: how it is meant to be refreshed.
materialized-table.refresh-handler-bytes | text | | Flink: what refreshes it.
materialized-table.refresh-handler-description | text | | Flink: what refreshes it, in words.
materialized-table.refresh-mode | text | | Flink: how it is refreshed.
materialized-table.refresh-status | text | | Flink: whether it is refreshed.
paimon.respect.minmaxsplitsize.enabled | flag | false | Hive: its own split sizes.
paimon.split.openfilecost | integer | | Hive: its own cost of opening a file.
partition.end-input-to-done | flag | false | Flink: mark partitions done at the end.
partition.idle-time-to-done | duration | | Flink: quiet time after which a partition is done.
partition.mark-done-action.custom.class | text | | Flink: the class that marks it.
partition.mark-done-action.mode | text | process-time | Flink: when a partition is marked.
partition.mark-done.recover-from-state | flag | true | Flink: mark after a recovery.
partition.sink-strategy | text | NONE | Flink: how rows are spread over writers.
partition.time-interval | duration | | Flink: the time that a partition covers.
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
scan.watermark.alignment.update-interval | duration | 1 s | Flink: how often they report.
scan.watermark.emit.strategy | text | on-event | Flink: when watermarks are given.
scan.watermark.idle-timeout | duration | | Flink: quiet time before a source is idle.
sink.clustering.sample-factor | integer | 100 | Flink: samples of a clustered sink.
sink.clustering.sort-in-cluster | flag | true | Flink: sort within a sink's range.
sink.committer-cpu | number | 1.0 | Flink: cores of the committer.
sink.committer-memory | size | | Flink: memory of the committer.
sink.committer-operator-chaining | flag | true | Flink: committer chained to the writer.
sink.coordinator-commit.enabled | flag | false | Flink: commit in the job manager.
sink.cross-partition.managed-memory | size | 256 mb | Flink: memory of the key index.
sink.key-only-deletes.enabled | flag | false | Flink: take deletes of keys alone.
sink.managed.writer-buffer-memory | size | 256 mb | Flink: managed memory of a writer.
sink.operator-uid.suffix | text | | Flink: ends the ids of operators.
sink.parallelism | integer | | Flink: writers of a sink.
sink.savepoint.auto-tag | flag | false | Flink: a tag for each savepoint.
sink.use-managed-memory-allocator | flag | false | Flink: managed memory for writers.
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
unaware-bucket.compaction.parallelism | integer | | Flink: compactions at once.
unaware-bucket.no-shuffle | flag | false | Flink: no shuffle before an append.
write.hive-style-dynamic-partition.enabled | flag | false | Spark: partitions by position.
write.use-v2-write | flag | false | Spark: its newer way of writing.
"""

ENGINE_FAMILIES = """
avro.# | text | | Passed to the Avro writer of other engines.
orc.# | text | | Passed to the ORC writer of other engines.
parquet.# | text | | Passed to the Parquet writer of other engines.
schema.# | text | | Flink: computed columns and watermarks.
"""

LOG_FAMILIES = """
kafka.# | text | | Log system of older releases.
log.# | text | | Log system of older releases.
"""
