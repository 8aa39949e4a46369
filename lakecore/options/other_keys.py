"""Paimon's option keys that no operation of lakecore reads.

Each line of a chapter is `key | kind | default | meaning`. The chapter says what its options are
for, and either why they have no effect here, or that any value other than the default is refused. A
`#` in a key stands for any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from lakecore.options.choices import Effect
from lakecore.options.engine_keys import ENGINE_FAMILIES, ENGINES, LOG_FAMILIES, TUNING
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
metadata.iceberg.storage | text | disabled | Write Iceberg metadata for each snapshot.
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
metadata.iceberg.compaction.max.file-num | integer | 50 | Iceberg: number of small manifests from which they are always merged.
metadata.iceberg.compaction.min.file-num | integer | 10 | Iceberg: least number of manifests to merge.
metadata.iceberg.database | text | | Iceberg: name of the database in the metastore.
metadata.iceberg.delete-after-commit.enabled | flag | true | Iceberg: delete old metadata files after a commit.
metadata.iceberg.format-version | integer | 2 | Iceberg: version of the format.
metadata.iceberg.glue.skip-archive | flag | false | Iceberg: AWS Glue keeps no old versions of the table.
metadata.iceberg.hadoop-conf-dir | text | | Iceberg: directory of the Hadoop configuration.
metadata.iceberg.hive-client-class | text | | Iceberg: Java class of the client of the Hive metastore.
metadata.iceberg.hive-conf-dir | text | | Iceberg: directory of the Hive configuration.
metadata.iceberg.hive-skip-update-stats | flag | false | Iceberg: do not update statistics in Hive.
metadata.iceberg.manifest-compression | text | snappy | Iceberg: compression of manifests.
metadata.iceberg.manifest-legacy-version | flag | false | Iceberg: write manifests of Iceberg 1.4.
metadata.iceberg.previous-versions-max | integer | 0 | Iceberg: number of old metadata files to keep.
metadata.iceberg.storage-location | text | | Iceberg: where its metadata is stored.
metadata.iceberg.table | text | | Iceberg: name of the table in the metastore.
metadata.iceberg.uri | text | | Iceberg: URI of the Hive metastore.
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
