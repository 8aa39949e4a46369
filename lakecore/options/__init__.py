"""Table options: each declared once, with its key, kind, default and meaning.

`files`, `writing` and `table_options` declare the options that lakecore's verbs read; `other_keys`
lists the other keys of Paimon. `parse` turns texts into one frozen `TableOptions`.
"""

from __future__ import annotations

from lakecore.options.choices import (
    LINE_FORMATS,
    ROW_TABLES,
    BucketFunction,
    ChangelogProducer,
    ConsumerMode,
    Effect,
    ExpireMode,
    IncrementalScanMode,
    LookupCache,
    LookupCompact,
    MergeEngine,
    OptionValue,
    OrderStrategy,
    PartitionExpiry,
    ScanMode,
    SortOrder,
    below,
    option_text,
    option_texts,
)
from lakecore.options.kinds import DURATION, NAMES, SIZE, Option, nearest
from lakecore.options.parse import (
    check_dynamic_options,
    check_known,
    check_option_change,
    file_index_setting,
    parse_known,
    parse_options,
    rename_in_options,
    tidy,
)
from lakecore.options.table_options import (
    DECLARED,
    NEVER_STORED,
    POSTPONE_BUCKET,
    RENAMED,
    TableOptions,
    find_option,
    member,
    option_keys,
)

__all__ = [
    "DECLARED",
    "DURATION",
    "LINE_FORMATS",
    "NAMES",
    "NEVER_STORED",
    "POSTPONE_BUCKET",
    "RENAMED",
    "ROW_TABLES",
    "SIZE",
    "BucketFunction",
    "ChangelogProducer",
    "ConsumerMode",
    "Effect",
    "ExpireMode",
    "IncrementalScanMode",
    "LookupCache",
    "LookupCompact",
    "MergeEngine",
    "Option",
    "OptionValue",
    "OrderStrategy",
    "PartitionExpiry",
    "ScanMode",
    "SortOrder",
    "TableOptions",
    "below",
    "check_dynamic_options",
    "check_known",
    "check_option_change",
    "file_index_setting",
    "find_option",
    "member",
    "nearest",
    "option_keys",
    "option_text",
    "option_texts",
    "parse_known",
    "parse_options",
    "rename_in_options",
    "tidy",
]
