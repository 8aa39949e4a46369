"""What a read would do, for people: snapshot, files kept and left out, what is merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.display import pairs_html, pairs_text, show_bytes

if TYPE_CHECKING:
    from lakecore.table.reads.scan import ScanPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The plan of a read, counted. `str()` gives it as lines of text.

    `snapshot_id` is None for a table without data. `raw_files` counts the files that are scanned
    without a merge, `merged_sections` the sections whose files are merged. Sizes are in bytes, of
    the files to read.
    """

    table: str
    snapshot_id: int | None
    columns: tuple[str, ...]
    predicate: str | None
    files_total: int
    files_kept: int
    files_skipped_by_partition: int
    files_skipped_by_bucket: int
    files_skipped_by_statistics: int
    files_hidden_at_level_0: int
    splits: int
    raw_files: int
    merged_sections: int
    merged_files: int
    deletion_vectors: int
    rows_stored: int
    size_bytes: int

    def __str__(self) -> str:
        return pairs_text(self._shown())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return pairs_html(f"Read of {self.table}", self._shown())

    def _shown(self) -> list[tuple[str, object]]:
        return [
            ("table:", self.table),
            ("snapshot:", "none" if self.snapshot_id is None else self.snapshot_id),
            ("columns:", ", ".join(self.columns)),
            ("where:", self.predicate or "everything"),
            ("files:", f"{self.files_kept} of {self.files_total} kept"),
            (
                " skipped:",
                (
                    f"{self.files_skipped_by_partition} by partition, "
                    f"{self.files_skipped_by_bucket} by bucket, "
                    f"{self.files_skipped_by_statistics} by statistics, "
                    f"{self.files_hidden_at_level_0} hidden at level 0"
                ),
            ),
            ("raw:", f"{self.raw_files} files, {self.deletion_vectors} with deletion vectors"),
            ("merged:", f"{self.merged_sections} sections of {self.merged_files} files"),
            ("reads:", f"{self.rows_stored:,} rows as stored, {show_bytes(self.size_bytes)}"),
        ]


def explain(
    table: str, plan: ScanPlan, columns: tuple[str, ...], predicate: str | None
) -> Explanation:
    """The explanation of a plan."""
    raw = [split for split in plan.splits if split.raw]
    merged = [split for split in plan.splits if not split.raw]
    return Explanation(
        table=table,
        snapshot_id=None if plan.snapshot is None else plan.snapshot.id,
        columns=columns,
        predicate=predicate,
        files_total=plan.files_total,
        files_kept=plan.files_kept,
        files_skipped_by_partition=plan.skipped.by_partition,
        files_skipped_by_bucket=plan.skipped.by_bucket,
        files_skipped_by_statistics=plan.skipped.by_statistics,
        files_hidden_at_level_0=plan.skipped.hidden_level_0,
        splits=len(plan.splits),
        raw_files=sum(len(split.files) for split in raw),
        merged_sections=len(merged),
        merged_files=sum(len(split.files) for split in merged),
        deletion_vectors=sum(len(split.vectors) for split in plan.splits),
        rows_stored=sum(split.row_count for split in plan.splits),
        size_bytes=plan.size_bytes,
    )
