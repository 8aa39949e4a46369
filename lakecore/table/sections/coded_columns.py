"""Which string columns are merged dictionary-encoded, without decoding them.

These are columns with few distinct values, in a merge that returns rows unchanged. The merge moves
dictionary indices, not values. This is faster only if all files have small dictionaries, because
the output carries the dictionary of every file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.files.data_files import small_dictionaries
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.model.types import STRINGS, Atomic
from lakecore.rows.evolution import map_fields
from lakecore.table.stored_rows.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.read_plan import ReadPlan

_LEAST_ROWS = 65_536
"""In splits with fewer rows, all columns are decoded: reading footers would cost more."""
_FILES_MAX = 64
"""In splits with more files, all columns are decoded: too many footers would be read."""
_COLUMNS_MAX = 128
"""The most encoded columns. Each has a fixed cost per batch, and wide batches hold few rows."""


def coded_columns(
    split: Split, fields: Sequence[Field], plan: ReadPlan, store: Store
) -> frozenset[str]:
    """The columns to merge dictionary-encoded. Raises CorruptTable if a file is missing."""
    files = split.files
    few = sum(file.row_count for file in files) < _LEAST_ROWS or len(files) > _FILES_MAX
    if few or not MERGE_FUNCTIONS[plan.engine].chooses_rows:
        return frozenset()
    texts = [
        field
        for field in fields
        if isinstance(field.type, Atomic)
        and field.type.root in STRINGS
        and field.name not in plan.schema.partition_keys
        and chooses_value(plan.merge, field.name)
    ]
    for file in sorted(files, key=lambda file: -file.row_count):
        stored = {
            mapping.read: mapping.stored.name
            for mapping in map_fields(texts, plan.schemas[file.schema_id].fields)
            if mapping.stored is not None
            and not mapping.changed
            # Arrow could take a name with a dot for a nested field.
            and "." not in mapping.stored.name + mapping.read.name
        }
        if not stored:
            return frozenset()
        path = plan.layout.data_file(split.partition_path, split.bucket, file)
        with missing_is_corrupt(path):
            small = small_dictionaries(store, path, tuple(stored.values()))
        texts = [field for field, name in stored.items() if name in small]
    return frozenset(field.name for field in texts if len(texts) <= _COLUMNS_MAX)
