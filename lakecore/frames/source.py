"""What every face is made from: rows in batches, pruned as far as a predicate allows.

A source may use the predicate to leave rows out, and need not: the faces apply it exactly. Where
all files that match can be read as they are, `native_files` names them, and a face may hand them
to its engine's own Parquet reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate


class BatchSource(Protocol):
    """Rows of a table state, or of anything else that comes in batches."""

    @property
    def table_schema(self) -> TableSchema:
        """The columns, with Paimon's types."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns, with Arrow's types."""
        ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of these columns; at least the rows that match, or `limit` of them."""
        ...

    def native_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[str] | None:
        """Local Parquet files that hold just the matching rows' superset, as these columns.

        None if anything must be merged, cast, or taken out. An empty list means no rows.
        """
        ...
