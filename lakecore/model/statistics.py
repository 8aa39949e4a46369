"""Statistics of a whole table, which ANALYZE computes and a snapshot names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from lakecore.display import ShownFacts, pairs_html, pairs_text, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of a column; None means unknown.

    - `column_id`: the id of the column in the schema;
    - `distinct_count`: the number of different values that are not null;
    - `min`, `max`: bounds as Paimon writes them as text: a DATE is its day number, a TIME its
      milliseconds;
    - `null_count`: the number of nulls;
    - `average_length`, `max_length`: sizes in bytes; of the type itself for numbers and times.
    """

    column_id: int
    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """Statistics of the table at a snapshot, as `Table.analyze` computes them.

    - `snapshot_id`, `schema_id`: the snapshot that was read, and the schema of the columns;
    - `merged_record_count`: the number of rows that a read of the snapshot returns;
    - `merged_record_size_bytes`: the bytes of its files, less the share of rows that merging drops;
    - `columns`: the statistics of each analyzed column, by name.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None = None
    merged_record_size_bytes: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return pairs_text(self.shown())

    def _repr_html_(self) -> str:
        return pairs_html("Statistics", self.shown())

    def shown(self) -> list[tuple[str, object]]:
        """Names and values for people."""
        lines: list[tuple[str, object]] = [("snapshot", self.snapshot_id)]
        if self.merged_record_count is not None:
            lines.append(("rows", f"{self.merged_record_count:,}"))
        if self.merged_record_size_bytes is not None:
            lines.append(("bytes", f"{self.merged_record_size_bytes:,}"))
        return [*lines, *((name, _column_text(each)) for name, each in self.columns.items())]


def _column_text(column: ColumnStatistics) -> str:
    facts = {
        "distinct": column.distinct_count,
        "nulls": column.null_count,
        "min": column.min,
        "max": column.max,
        "average length": column.average_length,
        "max length": column.max_length,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnalyzeResult(ShownFacts):
    """What `Table.analyze` did.

    `snapshot_ids` names the ANALYZE snapshot; it is empty, and `statistics` None, for a table
    without snapshots.
    """

    _title: ClassVar[str] = "Analyze"

    snapshot_ids: tuple[int, ...] = ()
    statistics: TableStatistics | None = None

    def _shown(self) -> list[tuple[str, object]]:
        if self.statistics is None:
            return [("snapshots", "none: there was nothing to analyze")]
        return [
            ("snapshots", ", ".join(map(str, self.snapshot_ids))),
            *self.statistics.shown(),
        ]
