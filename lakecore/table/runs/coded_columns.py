"""Which columns of texts are merged as codes: those that repeat, where rows come out as they were.

A code is moved in place of its text, and the dictionary is not made again. It pays where there are
few texts. What is told by the footer of the largest file is taken to be so in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.data_files import small_dictionaries
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.model.types import STRINGS, Atomic
from lakecore.plan.evolution import map_fields
from lakecore.table.runs.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.store import Store
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.runs.read import ReadPlan

_LEAST_ROWS = 65_536
"""Of the largest file, from which on it is worth a look at its footer."""


def coded_columns(
    split: Split, fields: Sequence[Field], plan: ReadPlan, store: Store
) -> frozenset[str]:
    """The names of such columns of a split. Raises CorruptTable if the largest file is missing."""
    largest = max(split.files, key=lambda file: file.row_count)
    if largest.row_count < _LEAST_ROWS or not MERGE_FUNCTIONS[plan.engine].chooses_rows:
        return frozenset()
    texts = [
        field
        for field in fields
        if isinstance(field.type, Atomic)
        and field.type.root in STRINGS
        and field.name not in plan.schema.partition_keys
        and "." not in field.name  # Arrow could take it for a part of another.
        and chooses_value(plan.merge, field.name)
    ]
    for schema_id in {file.schema_id for file in split.files}:
        mappings = map_fields(texts, plan.schemas[schema_id].fields)
        texts = [
            mapping.read
            for mapping in mappings
            if mapping.stored is not None and not mapping.changed
        ]
    stored = map_fields(texts, plan.schemas[largest.schema_id].fields)
    names = {each.stored.name: each.read.name for each in stored if each.stored is not None}
    path = plan.layout.data_file(split.partition_path, split.bucket, largest)
    with missing_is_corrupt(path):
        small = small_dictionaries(store, path, tuple(names)) if names else ()
    return frozenset(names[name] for name in small)
