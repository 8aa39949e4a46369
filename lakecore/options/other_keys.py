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
batch-scan-mode | text | none | Scan as a compaction does.
blob-descriptor-field | names | | BLOB columns that hold references.
blob-external-storage-field | names | | BLOB columns whose values are external.
blob-view-field | names | | BLOB columns that point into other tables.
chain-table.chain-partition-keys | names | | Partition keys that make a chain.
chain-table.enabled | flag | false | The table is a chain of snapshots and deltas.
fields.#.map.storage-layout | text | default | Store a MAP by its keys.
key-value.sequence_number.enabled | flag | false | Show the sequence numbers of rows.
pk-clustering-override | flag | false | Sort files by other columns than the key.
read.changelog | flag | false | Read rows with their kinds.
scan.fallback-delta-branch | text | | Branch of a chain's deltas.
scan.fallback-snapshot-branch | text | | Branch of a chain's snapshots.
scan.partitions | text | | The partitions to read.
stream-scan-mode | text | none | Scan as an internal stream does.
vector.file.format | text | | Format of files of vectors.
"""

_WRITE_TO_COME = """
data-file.external-paths.specific-fs | text | | Scheme of the external path to take.
data-file.external-paths.strategy | text | none | How an external path is chosen.
data-file.external-paths.weights | text | | Shares of the external paths.
fields.#.pk-vector.index.type | text | | Kind of the column's vector index.
global-index.external-path | text | | Where global indexes are stored.
pk-bitmap.index.columns | names | | Columns with a bitmap index.
pk-btree.index.columns | names | | Columns with a B-tree index.
pk-full-text.index.columns | names | | Columns with a full-text index.
pk-multivalue.index.columns | names | | ARRAY columns with an index.
pk-vector.index.columns | names | | VECTOR columns with an index.
"""

_WRITE_IGNORABLE = """
commit.callbacks | names | | Java classes called after a commit.
commit.discard-duplicate-files | flag | false | A commit drops files that are committed already.
commit.strict-mode.last-safe-snapshot | integer | | Later changes of others conflict.
manifest-sort.enabled | flag | false | Sort manifests by partition.
metadata.iceberg.storage | text | disabled | Write Iceberg metadata for each snapshot.
tag.callbacks | names | | Java classes called after a tag is made.
upsert-key | names | | Spark: INSERT replaces rows with the same values.
visibility-callback.enabled | flag | false | A commit waits until its rows are compacted.
"""

_DETAILS = """
blob-compaction.enabled | flag | false | BLOB: compact its files.
blob-descriptor.source-table | text | | BLOB: table whose references are read.
blob-external-storage-path | text | | BLOB: where external values are stored.
blob-view.resolve.enabled | flag | true | BLOB: follow views.
blob-write-null-on-fetch-failure | flag | false | BLOB: null for what cannot be fetched.
blob-write-null-on-missing-file | flag | false | BLOB: null for what is gone.
blob.copy-buffer-size | size | 4 kb | BLOB: buffer of a copy.
blob.split-by-file-size | flag | | BLOB: let it count in splits.
chain-table.split.key-range-enabled | flag | true | Chains: splits by key range.
chain-table.streaming.merge-snapshot | flag | false | Chains: how a stream begins.
data-evolution.compaction.rewrite-row-ids | flag | false | Data evolution: an old switch.
data-evolution.merge-into.file-pruning | flag | true | Data evolution: skip files in MERGE.
data-evolution.merge-into.source-persist | flag | false | Data evolution: keep MERGE's source.
data-evolution.reassign.skip-contiguous-row-count | integer | 1000000000 | Data evolution: ids.
data-evolution.row-id-conflict-rewrite.max-size | size | 256 mb | Data evolution: retries.
data-evolution.row-sidecar.enabled | flag | false | Data evolution: rows next to columns.
data-evolution.row-sidecar.max-selected-rows | integer | 4096 | Data evolution: when used.
data-evolution.row-sidecar.max-selection-ratio | number | 0.05 | Data evolution: when used.
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
metadata.iceberg.storage-location | text | | Iceberg: where its metadata is stored.
metadata.iceberg.table | text | | Iceberg: table in the metastore.
metadata.iceberg.uri | text | | Iceberg: the metastore.
scalar-index.search-mode | text | fast | Scalar index: what it searches.
scan.fallback-branch.read-fail-fast | flag | false | Fail where the fallback branch fails.
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
visibility-callback.check-interval | duration | 10 s | Interval of checks.
visibility-callback.timeout | duration | 30 min | Longest wait of a commit for compaction.
write.data-evolution.update-conflict-retry.max-attempts | integer | 20 | Spark: retries.
write.data-evolution.update-conflict-retry.wait-ms | integer | 10 | Spark: wait between them.
"""

_PARTITION_TIMES = """
partition.timestamp-format.strict | flag | false | Reject partition values that are not times.
"""

_TOTAL_SORT = """
sort-compaction.local-sample.magnification | integer | 1000 | Samples of a sorting compaction.
sort-compaction.range-strategy | text | SIZE | How a sorting compaction cuts ranges.
"""

_MERGED_IN_BUFFER = """
local-merge-buffer-size | size | | Size of rows that are merged before a shuffle.
"""

_PLACE = """
path | text | | Location of the table, as Flink and Spark pass it.
"""

_ALWAYS = """
delete.force-produce-changelog | flag | false | DELETE writes -D rows.
"""

_BY_TYPE = """
vector-field | names | | Columns that are stored as VECTOR.
field.#.vector-dim | integer | | The length of the VECTOR.
"""

_OBSOLETE = """
record-level.time-field-type | text | | Unit of that column up to Paimon 0.9; now its type says it.
fields.#.default-value | text | | Value for null up to Paimon 1.2; now columns have default values.
"""

_DETAIL_FAMILIES = """
commit.callback.#.param | text | | Argument of a commit callback.
fields.#.map.shared-shredding.column-placement-policy | text | | Shredded MAP: where keys go.
fields.#.map.shared-shredding.max-columns | integer | | Shredded MAP: most columns.
fields.#.pk-vector.# | text | | The column's vector index.
tag.callback.#.param | text | | Argument of a tag callback.
"""


_FIXED = {
    *("blob-descriptor-field", "blob-external-storage-field", "blob-external-storage-path"),
    *("blob-view-field", "pk-clustering-override"),
}


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
    *_chapter(_PARTITION_TIMES, Effect.OTHER, "Partitions do not expire yet."),
    *_chapter(
        _TOTAL_SORT, Effect.OTHER, "lakecore sorts all rows of a partition; it cuts no ranges."
    ),
    *_chapter(
        _MERGED_IN_BUFFER, Effect.OTHER, "The buffer of a writer merges rows before it spills them."
    ),
    *_chapter(_PLACE, Effect.OTHER, "A table is where its catalog or its caller says."),
    *_chapter(_ALWAYS, Effect.OTHER, "lakecore always does."),
    *_chapter(
        _BY_TYPE,
        Effect.OTHER,
        "The type says it; a column of another type is refused.",
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
"""Options without an attribute whose key has a free part; the first that matches counts."""


def matches(pattern: str, key: str) -> bool:
    """Whether the key matches the pattern, in which each `#` stands for some non-empty text."""
    return re.fullmatch(re.escape(pattern).replace(r"\#", "(.+)"), key) is not None
