"""Converts changes with the columns of a source to changes with the columns of their target.

A row raises an error if a computed column refuses its values, or if it does not fit the target. If
dead letters are kept, the row becomes a dead letter instead, and all other rows are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.dead_letters import DeadLetters
    from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
    from lakecore.cdc.sink_parts import Rules
    from lakecore.cdc.target_rows import TargetRows
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

__all__ = ["does_not_fit", "fitting", "needed_changes", "shaped"]


def needed_changes(
    rules: Rules, target: str, schema: TableSchema, source: SourceTable, given: SourceSchema
) -> Sequence[Change]:
    """The schema changes that a target needs for rows of a source table.

    Raises InvalidRequest, naming source and target, if a change is not possible.
    """
    try:
        return rules.changes(schema, rules.shape(source, given))
    except InvalidRequest as error:
        raise InvalidRequest(
            error.message, source_table=str(source), target=target, **error.facts
        ) from error


def shaped(
    rules: Rules, target: str, batch: ChangeBatch, letters: DeadLetters | None
) -> Iterator[ChangeBatch]:
    """The batch with the columns of the target.

    A batch with a row that a computed column refuses is halved until the row is found.
    """
    try:
        yield rules.rows(batch)
    except InvalidRequest as error:
        if letters is None:
            raise
        if len(batch) == 1:
            letters.add(target, batch, [(0, str(error))])
            return
        middle = len(batch) // 2
        yield from shaped(rules, target, batch.slice(0, middle), letters)
        yield from shaped(rules, target, batch.slice(middle, len(batch)), letters)


def fitting(
    target: str, rows: TargetRows, batch: ChangeBatch, letters: DeadLetters | None
) -> ChangeBatch:
    """The batch without the rows that do not fit the target, which become dead letters.

    If no dead letters are kept, returns the batch unchanged.
    """
    if letters is None:
        return batch
    good, bad = rows.split(batch)
    if not bad:
        return batch
    letters.add(target, batch, bad)
    kept = pa.array(good, pa.int64())
    return replace(batch, rows=batch.rows.take(kept), kinds=batch.kinds.take(kept), order=None)


def does_not_fit(source: str, target: str, error: InvalidRequest) -> InvalidRequest:
    """The error for a row that the target refuses."""
    return InvalidRequest(
        "a change does not fit the target table. Change the table, or start the pipeline "
        "with dead letters to leave such rows out",
        source=source,
        target=target,
        cause=error,
    )
