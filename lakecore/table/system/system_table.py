"""A system table (`$` table): metadata rows, read like any other table and never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from lakecore.errors import InvalidRequest
from lakecore.table.reads.readable import Readable
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakecore.frames.source import RowSource
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["SystemSource", "SystemTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSource:
    """The rows of a system table as a source of batches, computed for each reader."""

    table_schema: TableSchema
    load: Callable[[], pa.Table]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows in batches of the requested columns. The predicate is ignored."""
        rows = self.load()
        if limit is not None and predicate is None:
            rows = rows.slice(0, limit)
        yield from rows.select(self.schema.names if columns is None else list(columns)).to_batches()

    def engine_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> None:
        """Always None: the rows are not stored in files."""
        del columns, predicate


class SystemTable(Readable):
    """Reads the metadata of a table as rows, as they are at the time of each read."""

    def __init__(self, identifier: str, source: SystemSource) -> None:
        self.identifier = identifier
        self._source = source

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        return self._source.table_schema

    def __repr__(self) -> str:
        return f"SystemTable({self.identifier!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python and libraries probe for protocol methods this way
            raise AttributeError(name)
        raise InvalidRequest(
            "a system table can only be read", table=self.identifier, verb=name, verbs=_VERBS
        )

    def _facts(self) -> list[tuple[str, object]]:
        return [("system table", self.identifier)]

    def _rows(self, at: Travel) -> RowSource:
        if at != Travel():
            raise InvalidRequest(
                "a system table shows the present; that of a table's copy with scan options "
                "(table.copy(...).inspect) shows the past",
                table=self.identifier,
                snapshot_id=at.snapshot_id,
                tag=at.tag,
                timestamp=at.timestamp,
            )
        return self._source


_VERBS = tuple(name for name in vars(Readable) if not name.startswith("_"))
