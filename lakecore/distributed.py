"""The internal names that distributed code, such as the Spark bridge, may import.

In distributed code, a driver plans a read or commits a write, and tasks on other machines read
splits or write buckets. It may import these names and the public ones; `tests/test_tidy.py` holds
this. Each name is imported from its module when it is first used, so that a task loads only what
it needs. Names are internal, and public only here, for these reasons:

- a third of them are the types of columns and the parts of a schema: another engine maps each type
  to its own, so it must see all of them;
- values that tasks are sent (`Split`, `ReadPlan`, `WriteStart`, `Condition`) are named where they
  are annotated;
- steps between which the other engine does its own work stay separate: bucket and hash of a row (it
  shuffles by them), the state to read and the splits (it shows and caches them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.deferred import named

if TYPE_CHECKING:
    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.options import is_access_option
    from lakecore.catalog.registry import open_catalog
    from lakecore.cdc.actions import (
        COMMON_FLAGS,
        DATABASE_FLAGS,
        TABLE_FLAGS,
        Arguments,
        database_rules,
        table_rules,
    )
    from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
    from lakecore.cdc.formats.decoder import Decoder, Messages
    from lakecore.cdc.formats.registry import decoder_for
    from lakecore.cdc.kafka import MESSAGE_METADATA
    from lakecore.cdc.pipeline import state_store
    from lakecore.cdc.sink_parts import (
        TargetRows,
        does_not_fit,
        fitting,
        in_order,
        needed_changes,
        shaped,
    )
    from lakecore.cdc.state import DeadLetters, StateFiles
    from lakecore.cdc.target_rules import TargetRules
    from lakecore.descriptor import TableDescriptor, anchored, describe
    from lakecore.errors import check_flags
    from lakecore.format.binary_row import decode_rows, hash_rows
    from lakecore.format.layout import BUCKET_PREFIX, MAIN_BRANCH, MANAGED_BLOB_SUFFIX, Layout
    from lakecore.frames.filtered import FilteredSource, reader
    from lakecore.frames.source import BatchSource, checked_limit
    from lakecore.io.ambient import JOB_ID_LENGTH, SYSTEM, of_job
    from lakecore.io.files.data_files import row_group_bounds
    from lakecore.io.parallel import IN_THREADS, read_all
    from lakecore.io.stores.guarded import unguarded
    from lakecore.io.stores.store import FileStatus, MemoryStore, Store
    from lakecore.memory import Budget, Share
    from lakecore.merge.keys import common_ranks
    from lakecore.model.arrow_arrays import retype, with_offsets
    from lakecore.model.data_types import (
        BINARIES,
        INTEGERS,
        LENGTH_MAX,
        STRINGS,
        TIMESTAMPS,
        Array,
        Atomic,
        DataType,
        Field,
        Map,
        Multiset,
        Root,
        Row,
        with_nullable,
    )
    from lakecore.model.files import HASH_INDEX, DataFile, Split
    from lakecore.model.rows import KIND_TEXTS, RETRACTS, ROW_KIND, VALUE_KIND, RowKind
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
    from lakecore.model.times import Time, is_time_text, wall_time
    from lakecore.model.types import arrow_type
    from lakecore.options.choices import BucketFunction, OptionValue, option_texts
    from lakecore.options.table_options import POSTPONE_BUCKET
    from lakecore.plan.bucketing import BUCKETS_MAX, bucket_ids
    from lakecore.plan.partitions import bucket_key_fields
    from lakecore.plan.predicate.language import Key, Predicate, all_of, condition_on, keys_between
    from lakecore.plan.predicate.polars_form import to_polars
    from lakecore.plan.row_changes import Verb
    from lakecore.plan.splits import without_statistics
    from lakecore.rows.conform import KindRule, conform
    from lakecore.rows.evolution import map_fields
    from lakecore.rows.fit import check_once
    from lakecore.scalar.syntax import Sql
    from lakecore.session import engine_over
    from lakecore.sql.parse import parse
    from lakecore.sql.run_rows import merge_into, names_of_insert
    from lakecore.sql.statements import (
        Analyze,
        Call,
        CreateTable,
        Delete,
        Describe,
        Insert,
        Merge,
        MergeClause,
        Query,
        Show,
        Statement,
        TableStatement,
        Truncate,
        Update,
    )
    from lakecore.sql.tokens import Kind, Token, split, tokenize
    from lakecore.table.changes.between import changes_between, changes_of_options
    from lakecore.table.changes.changes import KIND_COLUMN, Replaced, State, StoredRows
    from lakecore.table.changes.follow import START_OPTIONS, Follower, Found, Nothing
    from lakecore.table.changes.starts import retained_changes
    from lakecore.table.changes.stream import (
        StreamRequest,
        begin,
        commit_mark,
        follow_from,
        streamed,
        without_delay,
    )
    from lakecore.table.changes.wanted import PlannedRows, Wanted
    from lakecore.table.commits.commit_change import (
        EncodedEntries,
        EncodedFiles,
        check_files_are_there,
        delete_files,
        encode_files,
        last_committed,
    )
    from lakecore.table.compactions.compact_plan import BucketCompaction
    from lakecore.table.compactions.compact_work import Failures, Tally, Work, do_work
    from lakecore.table.context import TableContext, crosses_partitions, reload_context
    from lakecore.table.file_reader.blob_resolution import followed
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.file_reader.split_files import SplitFiles, check_size, missing_is_corrupt
    from lakecore.table.maintenance.consumers import write_consumer
    from lakecore.table.reads.row_values import Condition, parse_condition, setting_of
    from lakecore.table.reads.scan import hides_level_0
    from lakecore.table.reads.source import TableSource
    from lakecore.table.reads.time_travel import Travel, as_of, resolve
    from lakecore.table.sections.windows import batch_size
    from lakecore.table.splits.read import read_split
    from lakecore.table.system.system_columns import (
        SYSTEM_TABLES,
        UNSUPPORTED_SYSTEM_TABLES,
        SystemTable,
    )
    from lakecore.table.verbs.change_rows import Assignment, assigned, assigning, deleted, deletion
    from lakecore.table.verbs.compact_choice import idle_ms
    from lakecore.table.verbs.compaction import CompactionRequest, compact_table
    from lakecore.table.verbs.merge_files import (
        MergeInto,
        MergeRequest,
        inserted,
        merged,
        merging,
        source_plan,
    )
    from lakecore.table.verbs.merge_plan import SOURCE, TARGET, Match, MergePlan
    from lakecore.table.verbs.rescale import (
        RescalePart,
        RescaleRequest,
        one_by_one,
        rescale_part,
        rescale_table,
    )
    from lakecore.table.verbs.row_writer import Changed, as_verbs_read, commit_changes
    from lakecore.table.verbs.statistics_verbs import ColumnSketch, analyze, measured
    from lakecore.table.writes.batch_write import (
        Author,
        Evolution,
        at_last_level,
        author,
        batch_writer,
        commit_append,
        commit_overwrite,
        committed_before,
        evolution_for,
        spec_values,
        type_changes_of,
    )
    from lakecore.table.writes.cross_partition import read_hashes
    from lakecore.table.writes.write import TableWrite
    from lakecore.table.writes.write_start import WriteStart, read_base, read_start

HOMES = {
    "lakecore.catalog.catalog": "Catalog",
    "lakecore.catalog.options": "is_access_option",
    "lakecore.catalog.registry": "open_catalog",
    "lakecore.cdc.actions": (
        "Arguments COMMON_FLAGS DATABASE_FLAGS TABLE_FLAGS database_rules table_rules"
    ),
    "lakecore.cdc.events": "ChangeBatch SourceSchema SourceTable",
    "lakecore.cdc.formats.decoder": "Decoder Messages",
    "lakecore.cdc.formats.registry": "decoder_for",
    "lakecore.cdc.kafka": "MESSAGE_METADATA",
    "lakecore.cdc.pipeline": "state_store",
    "lakecore.cdc.sink_parts": "TargetRows does_not_fit fitting in_order needed_changes shaped",
    "lakecore.cdc.state": "DeadLetters StateFiles",
    "lakecore.cdc.target_rules": "TargetRules",
    "lakecore.descriptor": "TableDescriptor anchored describe",
    "lakecore.format.binary_row": "decode_rows hash_rows",
    "lakecore.format.layout": "BUCKET_PREFIX Layout MAIN_BRANCH MANAGED_BLOB_SUFFIX",
    "lakecore.frames.filtered": "FilteredSource reader",
    "lakecore.frames.source": "BatchSource checked_limit",
    "lakecore.io.ambient": "JOB_ID_LENGTH SYSTEM of_job",
    "lakecore.io.files.data_files": "row_group_bounds",
    "lakecore.io.parallel": "IN_THREADS read_all",
    "lakecore.io.stores.guarded": "unguarded",
    "lakecore.io.stores.store": "FileStatus MemoryStore Store",
    "lakecore.memory": "Budget Share",
    "lakecore.merge.keys": "common_ranks",
    "lakecore.errors": "check_flags",
    "lakecore.model.arrow_arrays": "retype with_offsets",
    "lakecore.model.data_types": (
        "Array Atomic BINARIES DataType Field INTEGERS LENGTH_MAX Map Multiset Root Row STRINGS "
        "TIMESTAMPS with_nullable"
    ),
    "lakecore.model.files": "DataFile HASH_INDEX Split",
    "lakecore.model.rows": "KIND_TEXTS RETRACTS ROW_KIND RowKind VALUE_KIND",
    "lakecore.model.schema": "TableSchema",
    "lakecore.model.snapshot": "BATCH_COMMIT_IDENTIFIER Snapshot",
    "lakecore.model.times": "Time is_time_text wall_time",
    "lakecore.model.types": "arrow_type",
    "lakecore.options.choices": "BucketFunction OptionValue option_texts",
    "lakecore.options.table_options": "POSTPONE_BUCKET",
    "lakecore.plan.bucketing": "BUCKETS_MAX bucket_ids",
    "lakecore.plan.partitions": "bucket_key_fields",
    "lakecore.plan.predicate.language": "Key Predicate all_of condition_on keys_between",
    "lakecore.plan.predicate.polars_form": "to_polars",
    "lakecore.plan.row_changes": "Verb",
    "lakecore.plan.splits": "without_statistics",
    "lakecore.rows.conform": "KindRule conform",
    "lakecore.rows.evolution": "map_fields",
    "lakecore.rows.fit": "check_once",
    "lakecore.scalar.syntax": "Sql",
    "lakecore.session": "engine_over",
    "lakecore.sql.parse": "parse",
    "lakecore.sql.run_rows": "merge_into names_of_insert",
    "lakecore.sql.statements": (
        "Analyze Call CreateTable Delete Describe Insert Merge MergeClause Query Show Statement "
        "TableStatement Truncate Update"
    ),
    "lakecore.sql.tokens": "Kind Token split tokenize",
    "lakecore.table.changes.between": "changes_between changes_of_options",
    "lakecore.table.changes.changes": "KIND_COLUMN Replaced State StoredRows",
    "lakecore.table.changes.follow": "Follower Found Nothing START_OPTIONS",
    "lakecore.table.changes.starts": "retained_changes",
    "lakecore.table.changes.stream": (
        "StreamRequest begin commit_mark follow_from streamed without_delay"
    ),
    "lakecore.table.changes.wanted": "PlannedRows Wanted",
    "lakecore.table.commits.commit_change": (
        "EncodedEntries EncodedFiles check_files_are_there delete_files encode_files last_committed"
    ),
    "lakecore.table.compactions.compact_plan": "BucketCompaction",
    "lakecore.table.compactions.compact_work": "Failures Tally Work do_work",
    "lakecore.table.context": "TableContext crosses_partitions reload_context",
    "lakecore.table.maintenance.consumers": "write_consumer",
    "lakecore.table.reads.row_values": "Condition parse_condition setting_of",
    "lakecore.table.reads.scan": "hides_level_0",
    "lakecore.table.reads.source": "TableSource",
    "lakecore.table.reads.time_travel": "Travel as_of resolve",
    "lakecore.table.sections.windows": "batch_size",
    "lakecore.table.splits.read": "read_split",
    "lakecore.table.file_reader.blob_resolution": "followed",
    "lakecore.table.file_reader.read_plan": "ReadPlan",
    "lakecore.table.file_reader.split_files": "SplitFiles check_size missing_is_corrupt",
    "lakecore.table.system.system_columns": "SYSTEM_TABLES SystemTable UNSUPPORTED_SYSTEM_TABLES",
    "lakecore.table.verbs.change_rows": "Assignment assigned assigning deleted deletion",
    "lakecore.table.verbs.compact_choice": "idle_ms",
    "lakecore.table.verbs.compaction": "CompactionRequest compact_table",
    "lakecore.table.verbs.merge_files": (
        "MergeInto MergeRequest inserted merged merging source_plan"
    ),
    "lakecore.table.verbs.merge_plan": "Match MergePlan SOURCE TARGET",
    "lakecore.table.verbs.rescale": (
        "RescalePart RescaleRequest one_by_one rescale_part rescale_table"
    ),
    "lakecore.table.verbs.row_writer": "Changed as_verbs_read commit_changes",
    "lakecore.table.verbs.statistics_verbs": "ColumnSketch analyze measured",
    "lakecore.table.writes.batch_write": (
        "Author Evolution at_last_level author batch_writer commit_append commit_overwrite "
        "committed_before evolution_for spec_values type_changes_of"
    ),
    "lakecore.table.writes.cross_partition": "read_hashes",
    "lakecore.table.writes.write": "TableWrite",
    "lakecore.table.writes.write_start": "WriteStart read_base read_start",
}
"""The names of each module; a test compares them with the imports above."""

if not TYPE_CHECKING:  # an unknown name is an error for the type checker
    __getattr__ = named(__name__, HOMES)


def __dir__() -> list[str]:
    return sorted(name for names in HOMES.values() for name in names.split())
