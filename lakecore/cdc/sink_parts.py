"""The parts of a sink: the rules for targets, the settings, and the report of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.events import ChangeBatch, Position, SourceSchema, SourceTable
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

__all__ = ["Acknowledged", "Progress", "Rules", "SinkSettings"]


@runtime_checkable
class Acknowledged(Protocol):
    """A source that keeps changes until the sink confirms that they are committed."""

    def committed(self, position: Position) -> None:
        """Called by the sink: everything before the position is committed."""
        ...


class Rules(Protocol):
    """How a pipeline maps the tables of its source to targets."""

    def target(self, table: SourceTable) -> str | None:
        """The target as `database.table`; None if the table is left out."""
        ...

    def shape(self, table: SourceTable, schema: SourceSchema) -> SourceSchema:
        """The columns of the target, given the columns of the source."""
        ...

    def rows(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch with the columns of `shape`."""
        ...

    def create(
        self,
        catalog: Catalog,
        table: SourceTable,
        target: str,
        schema: SourceSchema,
        *,
        first: bool,
    ) -> None:
        """Create the target table, or check the existing one if the pipeline has no state yet.

        Raises InvalidRequest if the existing table can never take rows of that schema.
        """
        ...

    def changes(self, schema: TableSchema, given: SourceSchema) -> Sequence[Change]:
        """The schema changes that the target needs for rows with the columns of `given`.

        Raises InvalidRequest if a change is not possible.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """How often a pipeline commits, and what happens to tables and rows that do not fit.

    - `takes_new_tables`: whether tables that appear in the source later are followed;
    - `needs_key`: whether a source table without a primary key is left out;
    - `ignores_incompatible`: whether a table that does not fit its target is left out;
    - `keeps_dead_letters`: whether rows that do not fit, and messages that cannot be read, go to a
      file; otherwise they end the pipeline;
    - `opened_at_start`: tables that are opened even before they get a row. With the option
      `commit.force-create-snapshot`, such a table gets a snapshot at each checkpoint;
    - `source_patience_seconds`: how long the source may be unreachable.
    """

    interval_seconds: float = 10.0
    rows_max: int = 2_000_000
    takes_new_tables: bool = False
    needs_key: bool = False
    ignores_incompatible: bool = False
    keeps_dead_letters: bool = False
    opened_at_start: tuple[str, ...] = ()
    source_patience_seconds: float = 300.0


@dataclass(slots=True)
class Progress:
    """What a run has done so far."""

    checkpoint: int = 0
    rows: int = 0
    rows_left_out: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    position: Position | None = None
    caught_up: bool = False
    rows_per_second: float = 0.0

    def line(self, name: str) -> str:
        """One line about the run of the pipeline `name`."""
        state = "caught up" if self.caught_up else "catching up"
        return (
            f"{name}: checkpoint {self.checkpoint}, {self.rows} rows, "
            f"{self.rows_per_second:.0f} rows/s, {len(self.tables)} tables, {state}"
        )
