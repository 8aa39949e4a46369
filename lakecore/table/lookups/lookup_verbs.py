"""The methods of a table that look up rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.frames.source import checked_columns
from lakecore.model.types import Atomic
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.lookups.find import find_rows
from lakecore.table.lookups.keys import keys_of
from lakecore.table.lookups.lookup import Lookup, LookupColumns
from lakecore.table.reads.guarded import GuardedSource, guarded_now
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from lakecore.table.context import TableContext
    from lakecore.table.reads.fallback import FallbackSource
    from lakecore.table.reads.source import TableSource


class LookupVerbs(ABC):
    """The methods of a table that find rows by their keys."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    @abstractmethod
    def _rows(self, travel: Travel) -> TableSource | FallbackSource | ChangesSource | GuardedSource:
        """The rows of a state."""

    def lookup(
        self,
        keys: object,
        columns: Sequence[str] | str | None = None,
        *,
        snapshot_id: int | None = None,
    ) -> pl.DataFrame:
        """The rows of some keys, as a Polars frame.

        `keys` are rows of any kind that `write` takes (Polars, Arrow, pandas, DuckDB, dicts), or a
        dict of one key. Their columns are those to look up by: the primary key, a part of it, or
        any columns that are not nested. File indexes and statistics of these columns prune
        files. The result has the columns `columns`, by default all.

        The rows are in the order of the keys. A key that is given twice returns its rows twice, and
        a key without rows returns none. If the columns of the keys are the primary key, each key
        finds at most one row. A null matches nothing. For many look-ups, `open_lookup` is faster
        (https://paimon.apache.org/docs/master/flink/sql-lookup/).

        Raises InvalidRequest for an unknown or nested column, and for a value that does not fit
        its column; NotFound for a snapshot that does not exist.

            table.lookup({"id": 7})
            table.lookup(pl.DataFrame({"id": [7, 8, 9]}), ["id", "name"])
        """
        source = self._looked_up(Travel(snapshot_id=snapshot_id))
        schema = source.table_schema
        names = schema.names if columns is None else checked_columns(columns, schema)
        return find_rows(source, keys_of(keys, schema), list(dict.fromkeys(names)))

    def open_lookup(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        on: Sequence[str] | str | None = None,
    ) -> Lookup:
        """A handle for many look-ups: it keeps rows in memory and follows the table.

        `on` are the columns to look up by, by default the primary key; `columns` are those of the
        result, by default all. `rows(keys)` returns what `lookup` returns for the newest snapshot
        that the handle has seen; it looks for a newer one after `continuous.discovery-interval`,
        or when `refresh()` is called. Threads may share a handle. Close it, or use it in `with`.

        With the whole primary key, rows are cached in blocks when a key needs them. With other
        columns, or `lookup.cache=FULL`, all rows are read when the handle opens.
        `lookup.cache-max-memory-size` limits the memory, within the memory budget.

        If a REST catalog filters or masks rows, the handle asks for the rules when it opens, and
        whenever it looks for a newer snapshot. If a column of `on` is masked, each look-up reads
        the table.

        Raises InvalidRequest for an unknown or nested column, and if `on` is missing for a table
        without a primary key.

            with table.open_lookup(["id", "name"]) as names:
                names.rows([{"id": 7}])
        """
        context = self._context
        context.options.require_readable(filters_rows=True)
        schema = context.schema
        by = schema.primary_keys if on is None else tuple(checked_columns(on, schema))
        if not by:
            raise InvalidRequest(
                "name the columns to look up by: the table has no primary key",
                columns=schema.names,
                table=context.identifier,
            )
        for name in by:
            if not isinstance(schema.field(name).type, Atomic):
                raise InvalidRequest(
                    "a nested column cannot be looked up by",
                    column=name,
                    type=schema.field(name).type,
                )
        names = schema.names if columns is None else checked_columns(columns, schema)
        wanted = LookupColumns(on=tuple(dict.fromkeys(by)), result=tuple(dict.fromkeys(names)))
        return Lookup(context, wanted, self._newest_rows)

    def _newest_rows(self) -> TableSource | FallbackSource | GuardedSource:
        source = self._looked_up(Travel())
        return source if isinstance(source, GuardedSource) else guarded_now(source, self._context)

    def _looked_up(self, travel: Travel) -> TableSource | FallbackSource | GuardedSource:
        source = self._rows(travel)
        if isinstance(source, ChangesSource):
            raise Unsupported(
                "rows between two points are not looked up; name a state",
                table=self._context.identifier,
            )
        return source
