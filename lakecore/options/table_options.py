"""The typed options of a table as one value, and what lakecore refuses among them.

INVARIANT: no option is accepted and ignored. A known option with another value than its default
that lakecore cannot honour makes `require_readable` (effect READ) or `require_writable` (READ or
WRITE) raise `Unsupported`. An option with effect MAINTAIN is read by the verb that it concerns.
What is not implemented yet is listed in `LIMITS`, or has `supported=False` in its declaration:
remove that entry once it is implemented.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from lakecore.display import pairs_html, pairs_text
from lakecore.errors import Unsupported
from lakecore.masking import masked_options
from lakecore.options.choices import (
    LINE_FORMATS,
    ChangelogProducer,
    Effect,
    IcebergStorage,
    MergeEngine,
    ScanMode,
    TableType,
)
from lakecore.options.files import BlobOptions, FileOptions, LayoutOptions, LineFileOptions
from lakecore.options.iceberg import IcebergOptions
from lakecore.options.kinds import IGNORE_KEY, READ, WRITE
from lakecore.options.other_keys import OTHER_KEYS, OTHER_PATTERNS, matches
from lakecore.options.retention import RetentionOptions
from lakecore.options.scans import ScanOptions
from lakecore.options.writing import (
    ClusteringOptions,
    CompactionOptions,
    MergeOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.options.kinds import Option


# --- known ---------------------------------------------------------------------------------------
# Every option that lakecore knows, by key: declared attributes, families, and other keys.

SUBJECTS = {
    "Keys, buckets and schema": LayoutOptions,
    "Merging and changelog": MergeOptions,
    "Writing and committing": WriteOptions,
    "Reading and streaming": ScanOptions,
    "Compaction": CompactionOptions,
    "Clustering": ClusteringOptions,
    "Retention, tags and partitions": RetentionOptions,
    "Data files, statistics and indexes": FileOptions,
    "CSV, JSON and text files": LineFileOptions,
    "BLOB columns": BlobOptions,
    "Iceberg metadata": IcebergOptions,
}
"""The classes of declared options by the headings of `docs/options.md`."""

DECLARED: Mapping[str, Option] = {
    part.name: part.metadata["option"] for subject in SUBJECTS.values() for part in fields(subject)
}
SINGLE = {known.key: name for name, known in DECLARED.items() if "#" not in known.key}
FAMILIES = {known.key: name for name, known in DECLARED.items() if "#" in known.key}
NEVER_STORED = frozenset(known.key for known in DECLARED.values() if not known.stored)
"""The options that only the process that uses a table gives."""
RENAMED = {old: known.key for known in DECLARED.values() for old in known.fallbacks}


def option_keys() -> list[str]:
    """The keys of the options that lakecore reads."""
    return [option.key for option in DECLARED.values()]


def find_option(key: str) -> Option | None:
    """The option with that key. The key may be an older one, or belong to a family of keys."""
    if (name := SINGLE.get(RENAMED.get(key, key))) is not None:
        return DECLARED[name]
    if key in OTHER_KEYS:
        return OTHER_KEYS[key]
    if (found := member(key)) is not None:
        return DECLARED[found[0]]
    return next((known for known in OTHER_PATTERNS if matches(known.key, key)), None)


def member(key: str) -> tuple[str, str] | None:
    """The attribute and the column X of a key such as `fields.X.aggregate-function`, or None."""
    for pattern, name in FAMILIES.items():
        before, _, after = pattern.partition("#")
        if key.startswith(before) and key.endswith(after) and len(key) > len(pattern) - 1:
            return name, key[len(before) : len(key) - len(after)]
    return None


# --- table options -------------------------------------------------------------------------------

POSTPONE_BUCKET = -2
"""The bucket of rows that a later compaction distributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(
    LayoutOptions,
    MergeOptions,
    FileOptions,
    LineFileOptions,
    WriteOptions,
    BlobOptions,
    CompactionOptions,
    ClusteringOptions,
    ScanOptions,
    RetentionOptions,
    IcebergOptions,
):
    """The options of a table. `texts` has the options that were set, by current key.

    The name of an attribute is the key with `_` in place of `.` and `-`, and the unit at the end.
    The attribute `fields_NAME` holds all options `fields.X.NAME`, as a mapping from the column X
    (or the sequence columns) to the value.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    table: str = ""

    def __repr__(self) -> str:
        return f"TableOptions({self.shown})"

    def __str__(self) -> str:
        """A line for each option that was set."""
        return pairs_text(self.shown.items()) or "no options are set"

    def _repr_html_(self) -> str:
        return pairs_html("options that were set", self.shown.items())

    @property
    def shown(self) -> dict[str, object]:
        """The options that were set, with their secrets hidden."""
        return masked_options(self.texts)

    def target_file_size(self, *, primary_key: bool) -> int:
        """The target size of a data file in bytes, for a table with or without a primary key."""
        return self.target_file_size_bytes or (128 if primary_key else 256) << 20

    @property
    def level_count(self) -> int:
        """The number of levels of a bucket, including level 0."""
        return self.num_levels or self.num_sorted_run_compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """The number of sorted runs in a bucket at which a writer waits for compaction."""
        trigger = self.num_sorted_run_compaction_trigger
        return max(trigger, self.num_sorted_run_stop_trigger or trigger + 3)

    @property
    def folds_rows(self) -> bool:
        """Whether a merged row combines values of several rows of its key."""
        return self.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)

    @property
    def reads_changes(self) -> bool:
        """Whether a read that names no state returns the changes between two states."""
        return (
            self.incremental_between is not None
            or self.incremental_between_timestamp is not None
            or self.scan_mode is ScanMode.INCREMENTAL
        )

    @property
    def needs_lookup(self) -> bool:
        """Whether every compaction of level 0 looks up the rows of higher levels."""
        return (
            self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.merge_engine is MergeEngine.FIRST_ROW
            or self.force_lookup
        )

    def require_readable(self, *, filters_rows: bool = False) -> None:
        """Raise Unsupported if an option requires a reader to do what lakecore cannot do.

        `filters_rows`: this reader applies the row filters and column masks of the catalog.
        """
        self._require({READ}, "reading")
        if not filters_rows:
            self.require_all_rows()

    def require_all_rows(self) -> None:
        """Raise Unsupported if the catalog may hide rows or values of the table from the reader."""
        if self.query_auth_enabled:
            raise Unsupported(
                "the catalog filters and masks the rows of this table, and this would use or show "
                "rows and values without it",
                option="query-auth.enabled",
                table=self.table,
            )

    def require_writable(
        self,
        *,
        primary_keys: Sequence[str] | None = None,
        partition_keys: Sequence[str] = (),
    ) -> None:
        """Raise Unsupported if an option requires a writer to do what lakecore cannot do.

        With `primary_keys`, also checks that the primary key contains the partition keys, unless
        buckets are dynamic.
        """
        self._require({READ, WRITE}, "writing")
        if primary_keys and self.file_format in LINE_FORMATS:
            way_out = "a table with a primary key has files in parquet, orc or avro"
            raise self._refusal("writing", "file.format", self.file_format, way_out)
        missing = [name for name in partition_keys if name not in (primary_keys or partition_keys)]
        if missing and self.bucket != -1:
            raise Unsupported(
                "writing a table whose primary key lacks partition keys needs dynamic buckets: "
                "bucket=-1",
                missing=missing,
                primary_key=tuple(primary_keys or ()),
                table=self.table,
            )

    def _require(self, effects: set[Effect], verb: str) -> None:
        for key, text in self.texts.items():
            known = find_option(key)
            if known is None or known.effect not in effects or known.supported:
                continue
            if known.kind.parse(text) != known.default:
                out = f"set {IGNORE_KEY}={key} to leave it undone" if known.ignorable else None
                raise self._refusal(verb, key, text, out)
        for limit in LIMITS:
            if limit.effect in effects and limit.holds(self):
                raise self._refusal(verb, limit.key, self.texts.get(limit.key, ""), limit.way_out)

    def _refusal(self, verb: str, key: str, text: str, way_out: str | None) -> Unsupported:
        facts = {"option": key, "value": text, "table": self.table}
        if way_out is not None:
            facts["way_out"] = way_out
        return Unsupported(f"{verb} a table with this option is not supported", **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Values of an option that lakecore does not support yet, and an alternative (`way_out`)."""

    key: str
    effect: Effect
    holds: Callable[[TableOptions], bool]
    way_out: str | None = None


_LAKE_FORMATS = frozenset({"parquet", "orc", "avro"})
_SCAN_MODES_TO_COME = frozenset(
    {
        ScanMode.LATEST_DELTA,
        ScanMode.COMPACTED_FULL,
        ScanMode.FROM_CREATION_TIMESTAMP,
        ScanMode.FROM_FILE_CREATION_TIME,
    }
)

LIMITS = (
    Limit(
        key="type",
        effect=READ,
        holds=lambda o: o.type not in (TableType.TABLE, TableType.MATERIALIZED_TABLE),
    ),
    Limit(
        key="scan.mode",
        effect=READ,
        holds=lambda o: o.scan_mode in _SCAN_MODES_TO_COME,
    ),
    Limit(
        key="scan.creation-time-millis",
        effect=READ,
        holds=lambda o: o.scan_creation_time_millis is not None,
        way_out="table.stream reads from that time",
    ),
    Limit(
        key="scan.file-creation-time-millis",
        effect=READ,
        holds=lambda o: o.scan_file_creation_time_millis is not None,
        way_out="table.stream reads from that time",
    ),
    Limit(
        key="file.format",
        effect=WRITE,
        holds=lambda o: o.file_format not in (*_LAKE_FORMATS, *LINE_FORMATS),
        way_out="lakecore writes parquet, orc and avro, and without a primary key csv, json, text",
    ),
    Limit(
        key="file.format.per.level",
        effect=WRITE,
        holds=lambda o: not _LAKE_FORMATS.issuperset(o.file_format_per_level.values()),
        way_out="lakecore writes parquet, orc and avro",
    ),
    Limit(
        key="changelog-file.format",
        effect=WRITE,
        holds=lambda o: (o.changelog_file_format or "parquet") not in _LAKE_FORMATS,
        way_out="lakecore writes parquet, orc and avro",
    ),
    Limit(
        key="metadata.iceberg.storage",
        effect=WRITE,
        holds=lambda o: (
            o.metadata_iceberg_storage in (IcebergStorage.HIVE_CATALOG, IcebergStorage.REST_CATALOG)
        ),
        way_out="hadoop-catalog and table-location need no catalog; any Iceberg catalog can "
        "register the metadata file; or set lakecore.ignore-options=metadata.iceberg.storage",
    ),
    Limit(
        key="manifest.format",
        effect=READ,
        holds=lambda o: o.manifest_format not in _LAKE_FORMATS,
        way_out="lakecore reads and writes avro, parquet and orc manifests",
    ),
)
