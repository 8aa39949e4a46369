"""Paimon's option keys that only other engines use, in lines `key | kind | default | meaning`."""

from __future__ import annotations

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
