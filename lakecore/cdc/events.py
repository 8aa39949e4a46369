"""The frozen values that a source of changes passes to the sink.

A `Source` yields `Step`s. A step holds the changes since the previous step as `ChangeBatch`es, and
the `Position` from which the source can continue directly after these changes.

INVARIANT: changes keep the order of the source. Batches are applied in the order of the step, and
the rows of a batch in the order of its table. If batches of several source tables have the same
target and state an `order`, the rows are merged in that order.

INVARIANT: a batch has one schema: the schema under which the source wrote its rows. A schema change
ends a batch and begins another, also within a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from lakecore.model.types import DataType, Field, Json, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.errors import InvalidRequest, LakecoreError

Position: TypeAlias = "Mapping[str, Json]"
"""A place in a source, as a JSON object. Only the kind of source that made it can read it."""


@dataclass(frozen=True, slots=True, order=True)
class SourceTable:
    """The name of a table at the source. `database` is empty if the source does not state one.

    For PostgreSQL, `name` is `schema.table`.
    """

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}" if self.database else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSchema:
    """The columns of a source table, in the order of the source, with Paimon types.

    - `fields`: have the ids 0, 1, ... and the comments of the source as descriptions; a target
      table assigns its own ids;
    - `primary_key`: empty if the table has none, or if the source does not state it;
    - `states_key`: whether the source states primary keys, so that an empty key means no key;
    - `has_old_rows`: whether a deletion has all values of the row, and an update is a deletion of
      the old row and an insertion of the new one. Otherwise, a deletion has the primary key only,
      and an update that keeps the key is an insertion;
    - `may_be_flags`: TINYINT columns that may be BOOLEANs at the source, so that target columns of
      both types accept the values;
    - `exact`: columns of a key, in which different values of the source stay different;
    - `notes`: sentences about the types that the log shows when the target is created.
    """

    fields: tuple[Field, ...]
    primary_key: tuple[str, ...] = ()
    states_key: bool = False
    has_old_rows: bool = True
    comment: str | None = None
    may_be_flags: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        return arrow_schema(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """Changes of one source table under one schema, in the order of the source.

    `rows` has the columns, types and order of `schema.arrow`; every column may hold nulls, because
    a retraction (-U or -D) may carry only the key. `kinds` has one Paimon row kind per row: 0 +I,
    1 -U, 2 +U, 3 -D. An update is a -D of the old row and a +I of the new one, as in Paimon's
    actions, unless the format itself has -U and +U.

    `metadata` has the metadata of each row: the columns that `--metadata_column` can choose from,
    under Paimon's names (`database_name`, `table_name`, `op_ts`, `topic`, `offset`, ...).

    `order`: a number for each row, by which the rows of all batches of the step are ordered; never
    decreases within a batch. Without `order`, the batches themselves are in order.
    """

    table: SourceTable
    schema: SourceSchema
    rows: pa.Table
    kinds: pa.Int8Array
    metadata: pa.Table | None = None
    order: pa.Int64Array | None = None

    def __post_init__(self) -> None:
        assert self.rows.schema.names == list(self.schema.names), "columns are not the schema's"
        assert self.rows.schema.types == self.schema.arrow.types, "types are not the schema's"
        assert len(self.kinds) == self.rows.num_rows, "one kind per row"
        assert self.metadata is None or self.metadata.num_rows == self.rows.num_rows
        assert self.order is None or len(self.order) == self.rows.num_rows

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def slice(self, start: int, stop: int) -> ChangeBatch:
        count = stop - start
        return replace(
            self,
            rows=self.rows.slice(start, count),
            kinds=self.kinds.slice(start, count),
            metadata=None if self.metadata is None else self.metadata.slice(start, count),
            order=None if self.order is None else self.order.slice(start, count),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A table from which a statement removed rows that the source does not name.

    `keys`: the primary keys of the rows that the source has now, after the statement. The target
    drops all other rows; the following changes add missing rows. `start`, `stop`: only rows with a
    first key column from `start` to before `stop` are meant.
    """

    table: SourceTable
    keys: pa.Table
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """A table in which a statement may have changed values without logging them, or the key.

    - `is_renewed`: whether a new column has the name of an earlier column with other values;
    - `types`: columns, in lower case, that got this type; None for any type;
    - `is_strict`: whether the source refused strings that are too long, and numbers out of range;
    - `has_key`: whether the table is known to have a primary key now.
    """

    table: SourceTable
    is_renewed: bool = False
    types: Mapping[str, DataType | None] = field(default_factory=dict)
    is_strict: bool = False
    has_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Changes up to a position at which the sink may commit, and that position.

    A step without batches shows that the source is alive; the position may be newer than in the
    previous step.

    - `caught_up`: whether everything that the source held at its start has been yielded;
    - `cleared`: a table that lost rows after all earlier steps; such a step has no batches, and the
      position of the step before, except in `ReadsAgain`;
    - `unread`: tables whose rows must be read before their changes can be followed; the sink acts
      as if a user had requested a read (`ReadsAgain`);
    - `altered`: tables whose rows before this step may have other values at the source now. The
      sink requests another read of a table if its target holds such values;
    - `bad`: an error for each message of this step that cannot be read, which names the message.
    """

    position: Position
    batches: tuple[ChangeBatch, ...] = field(default=())
    cleared: Cleared | None = None
    unread: tuple[SourceTable, ...] = field(default=())
    altered: tuple[Altered, ...] = field(default=())
    bad: tuple[InvalidRequest, ...] = field(default=())
    caught_up: bool = False

    @property
    def count(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def keyed(self) -> frozenset[SourceTable]:
        """The tables that have a primary key, as this step shows."""
        batches = {each.table for each in self.batches if each.schema.primary_key}
        return frozenset(batches | {each.table for each in self.altered if each.has_key})


class Source(Protocol):
    """A source of changes: a database's log, topics, or files.

    One thread makes the calls, in the order `tables`, `steps`, `close`; `close` may be called at
    any time and more than once.
    """

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        """The tables that exist at the start, and their schemas.

        Raises InvalidRequest for options that the source refuses, StorageError if the source cannot
        be reached.
        """

    def steps(self, after: Position | None) -> Iterator[Step]:
        """The changes after a position (None: from the configured start).

        The iterator blocks, does not end by itself, and yields at least one step per second; a step
        without news has no batches. Raises InvalidRequest for a position of another source.
        """

    def describe(self) -> Mapping[str, str]:
        """The kind and the address of the source, for a status line; without passwords."""

    def close(self) -> None:
        """Release connections and threads."""


@runtime_checkable
class ReadsAgain(Protocol):
    """A source that can read one table again while it follows the others."""

    def can_read_again(self, after: Position | None) -> bool:
        """Whether a table can be read again at this position."""

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        """The rows of the next range of a table as they are now, as insertions (`resync.py`).

        `start`: the first value of the range; None for the first range. The first step has a batch,
        which may be empty. The last step is `Cleared`; its `stop` is None for the last range. Its
        position is `after`, for the first range with a note that the changes of the table up to now
        are done. Raises NotFound if the table does not exist.
        """


@runtime_checkable
class Measured(Protocol):
    """A source with a log whose size is known."""

    def bytes_after(self, position: Position) -> int | None:
        """The bytes of the log after a position; None if the position is no place in the log.

        Raises StorageError if the source cannot be reached.
        """


@runtime_checkable
class Resumes(Protocol):
    """A source whose column types may have been chosen by an earlier run."""

    def resume(self, position: Position) -> None:
        """Called before `tables`, with the position from which the pipeline continues."""


@runtime_checkable
class Checks(Protocol):
    """A source whose server may lack what a pipeline needs."""

    def problems(self) -> Sequence[LakecoreError]:
        """Everything that rules out a pipeline: settings, grants, and the place of `resume`.

        Called before `tables`. Raises InvalidRequest if the server refuses the login, StorageError
        if it cannot be reached.
        """


@runtime_checkable
class Mapped(Protocol):
    """A source whose column types a user can state."""

    @property
    def mapping(self) -> TypeMapping: ...


@runtime_checkable
class Noted(Protocol):
    """A source whose server has settings that a user should know."""

    def notes(self) -> list[str]:
        """One sentence each."""
