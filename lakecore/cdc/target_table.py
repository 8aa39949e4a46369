"""One target table of a pipeline: opens it, changes its schema, and writes it at checkpoints.

A schema change needs a new writer, because a writer keeps the schema that it started with. Before a
change, the sink therefore commits everything.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.cdc.sink_parts import TargetRows
from lakecore.cdc.target_rules import target_names
from lakecore.errors import InvalidRequest
from lakecore.model.rows import ROW_KIND
from lakecore.options import POSTPONE_BUCKET, MergeEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.events import ChangeBatch, Cleared
    from lakecore.model.files import CommitMessage
    from lakecore.model.schema_change import Change
    from lakecore.table.handle import Table
    from lakecore.table.writes.stream_write import StreamWrite


class TargetTable:
    """A table that a pipeline writes.

    `write` buffers rows; `prepare`, then `commit`, publish them.
    """

    def __init__(self, catalog: Catalog, identifier: str, commit_user: str) -> None:
        self.identifier = identifier
        self._catalog = catalog
        self._user = commit_user
        self._table = catalog.get_table(identifier)
        self.rows = TargetRows(self._table.context)
        self._writer: StreamWrite | None = None
        self.rows_pending = 0

    @property
    def table(self) -> Table:
        """The table, with the schema of the rows that are written."""
        return self._table

    @property
    def forces_snapshot(self) -> bool:
        """Whether a checkpoint without rows makes an empty snapshot."""
        return self._table.context.options.commit_force_create_snapshot

    def change(self, changes: Sequence[Change]) -> None:
        """Change the schema. No rows may be pending."""
        assert not self.rows_pending, "rows of the schema before are not committed"
        self.close()
        self._catalog.alter_table(self.identifier, list(changes))
        self._table = self._catalog.get_table(self.identifier)
        self.rows = TargetRows(self._table.context)

    def write(self, batch: ChangeBatch) -> int:
        """Buffer the changes of a batch and return their number.

        Raises InvalidRequest, naming column, value and row, for a row that does not fit, after
        which every row since the last checkpoint is dropped.
        """
        rows = self.rows.written(batch)
        if not rows.num_rows:
            return 0
        self.rows_pending += rows.num_rows
        return self._opened().write(rows)

    def names_of_key(self, key: Sequence[str]) -> Mapping[str, str]:
        """The target's name of each column of the source's key.

        Raises InvalidRequest if the table has another key, or does not replace whole rows.
        """
        context = self._table.context
        names = target_names(context.schema.names, key)
        options = context.options
        whole = options.merge_engine is MergeEngine.DEDUPLICATE and not options.ignore_delete
        same = set(context.schema.primary_keys) == set(names.values())
        if not same or not whole or options.bucket == POSTPONE_BUCKET:
            raise InvalidRequest(
                "the source removed rows that the target cannot find: it has another key, or "
                "options by which a deletion does not remove a whole row; `--truncate ignore` "
                "keeps rows that a statement removed",
                table=self.identifier,
            )
        return names

    def remove_others(self, cleared: Cleared) -> int:
        """Delete the committed rows that the source lacks; return the number of deleted rows.

        Raises InvalidRequest if the table has another key, or does not replace whole rows.
        """
        keys = cleared.keys
        names = self.names_of_key(keys.column_names)
        first = pl.col(names[keys.column_names[0]])
        bounds = [] if cleared.start is None else [first >= cleared.start]
        bounds += [] if cleared.stop is None else [first < cleared.stop]
        where = reduce(and_, bounds) if bounds else None
        own = list(self._table.context.schema.primary_keys)
        places = [str(number) for number in range(len(own))]
        kept = keys.rename_columns(list(names.values())).select(own).rename_columns(places)
        have = self._table.to_batches(own, where).read_all().rename_columns(places)
        gone = have.join(self._as_keys(kept, have.schema), places, join_type="left anti")
        if not gone.num_rows:
            return 0
        for batch in self._table.to_batches(where=where):
            rows = pa.Table.from_batches([batch])
            numbered = rows.select(own).rename_columns(places)
            numbered = numbered.append_column("at", pa.array(range(len(batch)), pa.int64()))
            rows = rows.take(numbered.join(gone, places, join_type="left semi").column("at"))
            if rows.num_rows:
                kinds = pa.repeat(pa.scalar("-D"), rows.num_rows)
                self._opened().write(rows.append_column(ROW_KIND, kinds))
                self.rows_pending += rows.num_rows
        return len(gone)

    def _as_keys(self, keys: pa.Table, schema: pa.Schema) -> pa.Table:
        try:
            return keys.cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequest(
                "the key of the source has another type than the key of the target",
                table=self.identifier,
                cause=error,
            ) from error

    def prepare(self, checkpoint: int) -> tuple[CommitMessage, ...]:
        """Write the pending rows to files that no reader sees yet."""
        if not self.rows_pending and not self.forces_snapshot:
            return ()
        messages = tuple(self._opened().prepare_commit(checkpoint))
        self.rows_pending = 0
        return messages

    def commit(self, checkpoint: int, properties: Mapping[str, str]) -> None:
        self._opened().commit(checkpoint, properties=properties)

    def recover(self, checkpoint: int, messages: Sequence[CommitMessage]) -> None:
        """Commit the files that an earlier process prepared, unless they are committed already."""
        self._opened().recover({checkpoint: list(messages)})

    def close(self) -> None:
        """Drop rows that are not prepared, and end the writer."""
        self.rows_pending = 0
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _opened(self) -> StreamWrite:
        if self._writer is None:
            self._writer = self._table.new_stream_write(self._user)
        return self._writer
