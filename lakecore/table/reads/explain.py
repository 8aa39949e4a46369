"""Describes a read without doing it: the snapshot, the files to read, and how each part is read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from lakecore.display import pairs_html, pairs_text, show_bytes
from lakecore.table.reads.source import TableSource
from lakecore.table.sections.windows import Windows
from lakecore.table.splits.read_planner import (
    Decision,
    EachSplit,
    EngineScan,
    FileScan,
    JoinedFiles,
    LateMaterialisation,
    PolarsChunks,
    ReadPath,
)

if TYPE_CHECKING:
    from lakecore.model.files import Split
    from lakecore.plan.predicate import Predicate
    from lakecore.table.reads.fallback import FallbackSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """A part of a read: files of one bucket, how they are read (`path`), and why (`reason`).

    `rows_stored` counts the rows before a merge, and `size_bytes` the bytes of the files.
    """

    partition: str
    bucket: int
    files: int
    rows_stored: int
    size_bytes: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a read would do, in numbers. `str()` gives it as lines of text.

    `snapshot_id` is None for a table without data. `raw_files` counts the files that are scanned
    without a merge, `merged_sections` the sections whose files are merged. `size_bytes` is the size
    of the files to read. `parts` says how each part is read. `rows_hidden_at_level_0` counts the
    stored rows that are not visible before a compaction.
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
    files_skipped_by_index: int
    files_hidden_at_level_0: int
    rows_hidden_at_level_0: int
    splits: int
    raw_files: int
    merged_sections: int
    merged_files: int
    deletion_vectors: int
    rows_stored: int
    size_bytes: int
    parts: tuple[ReadPart, ...]

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
                    f"{self.files_skipped_by_index} by file indexes, "
                    f"{self.files_hidden_at_level_0} hidden at level 0{self._hidden_share()}"
                ),
            ),
            ("raw:", f"{self.raw_files} files, {self.deletion_vectors} with deletion vectors"),
            ("merged:", f"{self.merged_sections} sections of {self.merged_files} files"),
            ("reads:", f"{self.rows_stored:,} rows as stored, {show_bytes(self.size_bytes)}"),
            *((" by:", line) for line in self._paths()),
        ]

    def _hidden_share(self) -> str:
        """The number and share of rows not visible before a compaction; empty if there are none."""
        hidden = self.rows_hidden_at_level_0
        if not hidden:
            return ""
        share = hidden / (hidden + self.rows_stored)
        return f" ({hidden:,} rows, {share:.0%}, not compacted yet)"

    def _paths(self) -> list[str]:
        """A line for each path and reason, with the number of parts, files and rows."""
        groups: dict[tuple[str, str], list[ReadPart]] = defaultdict(list)
        for part in self.parts:
            groups[part.path, part.reason].append(part)
        return [
            f"{path}: {len(own)} parts of {sum(part.files for part in own)} files, "
            f"{sum(part.rows_stored for part in own):,} rows; {reason}"
            for (path, reason), own in groups.items()
        ]


def explain(
    table: str,
    source: TableSource | FallbackSource,
    columns: tuple[str, ...],
    predicate: Predicate | None,
    where: str | None,
) -> Explanation:
    """The explanation of a read.

    Raises CorruptTable if the size of a local file differs from the manifest's.
    """
    plan = source.plan(predicate)
    raw = [split for split in plan.splits if split.raw]
    merged = [split for split in plan.splits if not split.raw]
    return Explanation(
        table=table,
        snapshot_id=None if plan.snapshot is None else plan.snapshot.id,
        columns=columns,
        predicate=where,
        files_total=plan.files_total,
        files_kept=plan.files_kept,
        files_skipped_by_partition=plan.skipped.by_partition,
        files_skipped_by_bucket=plan.skipped.by_bucket,
        files_skipped_by_statistics=plan.skipped.by_statistics,
        files_skipped_by_index=plan.skipped.by_index,
        files_hidden_at_level_0=plan.skipped.hidden_level_0,
        rows_hidden_at_level_0=plan.skipped.hidden_rows,
        splits=len(plan.splits),
        raw_files=sum(len(split.files) for split in raw),
        merged_sections=len(merged),
        merged_files=sum(len(split.files) for split in merged),
        deletion_vectors=sum(len(split.vectors) for split in plan.splits),
        rows_stored=sum(split.row_count for split in plan.splits),
        size_bytes=plan.size_bytes,
        parts=_parts(source, columns, predicate),
    )


def _parts(
    source: TableSource | FallbackSource, columns: tuple[str, ...], predicate: Predicate | None
) -> tuple[ReadPart, ...]:
    sources = (source,) if isinstance(source, TableSource) else source.sources(predicate)
    whole = [each.decide(columns, predicate) for each in sources]
    by_split = any(isinstance(decision.path, EachSplit) for decision in whole)
    parts: list[ReadPart] = []
    for each, decision in zip(sources, whole, strict=True):
        splits = each.plan(predicate).splits
        plan = each.read_plan(splits, columns, predicate)
        parts += [_part(s, each.decide_split(s, plan) if by_split else decision) for s in splits]
    return tuple(parts)


def _part(split: Split, decision: Decision) -> ReadPart:
    return ReadPart(
        partition=split.partition_path,
        bucket=split.bucket,
        files=len(split.files),
        rows_stored=split.row_count,
        size_bytes=split.size_bytes,
        path=path_text(decision.path),
        reason=decision.reason.value,
    )


def path_text(path: ReadPath) -> str:
    """The name of a read path in the output of `explain()`."""
    match path:
        case EngineScan():
            return "engine scan"
        case EachSplit():
            return "each split"
        case PolarsChunks():
            return "decoded by Polars"
        case LateMaterialisation(flagged=None):
            return "late materialisation"
        case LateMaterialisation():
            return "late materialisation with key flags"
        case FileScan():
            return "file scan"
        case JoinedFiles():
            return "files joined by row id"
        case Windows(places=places, late=late, rounds=rounds):
            notes = {
                "large values read after the merge": places is not None,
                "casts after the merge": bool(late),
                "in rounds": rounds,
            }
            return ", ".join(["windows", *(note for note, applies in notes.items() if applies)])
    assert_never(path)
