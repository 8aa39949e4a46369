"""Reads the facts that `decide` needs: sizes, columns and row groups of local files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.files.data_files import file_columns, row_group_bounds
from lakecore.options import LINE_FORMATS
from lakecore.table.splits.decide import (
    decide,
    file_refusal,
    parts_or_reason,
    polars_columns,
    stored_only,
)
from lakecore.table.splits.parts import FileFacts, texts_of
from lakecore.table.splits.read_path import Decision, Examined, Reader
from lakecore.table.stored_rows.split_files import check_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.splits.parts import Part
    from lakecore.table.stored_rows.read_plan import ReadPlan


def decide_split(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> Decision:
    """How a split is read: by Polars if that is possible and faster.

    Raises CorruptTable if the size of a file differs from the manifest's, or a footer is damaged.
    """
    decision = decide([split], plan, budget, Reader.POLARS)
    if decision is None:
        sized = texts_of(polars_columns(split, plan).all)
        files = examine([split], plan, store, sized)
        decision = decide([split], plan, budget, Reader.POLARS, Examined(files=files))
    assert decision is not None
    return decision


def polars_parts(
    split: Split, plan: ReadPlan, store: Store, fields: Sequence[Field]
) -> tuple[Part, ...] | None:
    """The row groups of a split with the size of these columns; None if Polars cannot read them."""
    if file_refusal([split], stored_only(fields), plan.schemas) is not None:
        return None
    parts = parts_or_reason(split, plan, fields, examine([split], plan, store, ()))
    return parts if isinstance(parts, tuple) else None


def examine(
    splits: Sequence[Split], plan: ReadPlan, store: Store, sized: Sequence[str] | None
) -> tuple[FileFacts, ...]:
    """The facts of the files, in order. If one file is not local, the facts of that file alone.

    `sized`: the columns whose size each row group states; None: row groups are not examined.
    """
    paths: list[tuple[DataFile, str, str]] = []
    for split in splits:
        for file in split.files:
            path = plan.layout.data_file(split.partition_path, split.bucket, file)
            local = store.local_path(path)
            if local is None:
                return (FileFacts(path=None),)
            # The engine's reader does not know the manifest, so check the size first.
            check_size(store, path, file)
            paths.append((file, path, local))
    return tuple(
        FileFacts(
            path=local,
            # Files that were migrated from Hive have no sequence numbers and may lack columns.
            columns=None if named else frozenset(file_columns(store, path)),
            groups=() if sized is None else tuple(row_group_bounds(store, path, sized) or ()),
        )
        for file, path, local in paths
        for named in (file.sequence_max or file.format in LINE_FORMATS,)
    )
