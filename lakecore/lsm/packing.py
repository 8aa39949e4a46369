"""Which files of a table without a key are packed together, decided by their sizes alone.

Rows have no key, so packing copies rows and merges nothing. Rewriting a large file has no benefit.
There are two kinds of tables:

- *Ordered buckets* (`bucket` > 0): the rows of a bucket keep their order. Files are sorted by their
  first sequence number, and only neighbours are packed together.
  1. `pick_adjacent`: take files from the oldest on, until there are `compaction.min.file-num`. If
     there are fewer, but they hold twice the target size, drop the oldest. `fewer_adjacent` leaves
     out groups whose packing would not reduce the number of files.
  2. `pick_adjacent_full`: skip large files at the beginning; take all others, if there are at least
     three and more small files than large ones.
- *Unaware buckets* (`bucket` = -1): rows have no order, so any small files of a partition may be
  packed together.
  1. `pick_small`: take the smallest files first, until they hold twice the target size, including
     the open cost of each file; then begin the next group. A smaller last group is taken if it has
     `compaction.min.file-num` files.
  2. `pick_small_full`: take all small files, if there are at least two; `cut` splits them into
     steps.

A *stale* file is rewritten to drop rows that its deletion vector marks, even if it is large or
alone: a full packing takes every file with a vector, others take those with many marked rows
(`is_stale`) and, in an unaware bucket, small ones.

INVARIANT: the picked groups share no file, and their files are in order.

INVARIANT: without concurrent writes, packing ends. A new file, except the last of a group, has the
encoded target size and is never small. Each step leaves fewer small files or fewer files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakecore.model.files import DataFile
    from lakecore.options import TableOptions

Group: TypeAlias = "tuple[DataFile, ...]"
"""Files whose rows are written, file by file, to new files."""
_TARGETS = 2
"""A group is full when its bytes fill this many new files."""
_FULL_FILES_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingPolicy:
    """The packing options of a table.

    Files below `small_file_bytes` are small. A group has at least `files_min` and at most
    `files_max` files (None: no limit). `rewrite_all`: a full packing takes every file. A file with
    a greater share of deleted rows than `deleted_share_max` is rewritten.
    """

    target_bytes: int
    small_file_bytes: int
    open_cost_bytes: int
    files_min: int
    files_max: int | None
    rewrite_all: bool
    deleted_share_max: float = 0.2

    @classmethod
    def of(cls, options: TableOptions) -> PackingPolicy:
        """The policy of a table without a key."""
        target_bytes = options.target_file_size(primary_key=False)
        return cls(
            target_bytes=target_bytes,
            small_file_bytes=int(target_bytes * options.compaction_small_file_ratio),
            open_cost_bytes=options.source_split_open_file_cost_bytes,
            files_min=options.compaction_min_file_num,
            files_max=options.compaction_max_file_num,
            rewrite_all=options.compaction_force_rewrite_all_files,
            deleted_share_max=options.compaction_delete_ratio_threshold,
        )


def in_order(files: Sequence[DataFile]) -> Group:
    """The files of a bucket in the order of their rows; `files` are in commit order."""
    return tuple(sorted(files, key=lambda file: file.sequence_min))


def is_stale(file: DataFile, deleted: int | None, policy: PackingPolicy) -> bool:
    """Whether a file has so many deleted rows (None: unknown) that it is rewritten."""
    return deleted is None or deleted > file.row_count * policy.deleted_share_max


# --- buckets in order -----------------------------------------------------------------------------


def pick_adjacent(files: Sequence[DataFile], policy: PackingPolicy) -> Group | None:
    """The oldest neighbours that are worth packing; None if there are none yet."""
    enough = max(2, min(policy.files_min, policy.files_max or policy.files_min))
    held: list[DataFile] = []
    held_bytes = 0
    for file in in_order(files):
        held.append(file)
        held_bytes += file.size_bytes
        if len(held) >= enough:
            return tuple(held)
        if held_bytes >= _TARGETS * policy.target_bytes:
            held_bytes -= held.pop(0).size_bytes
    return None


def picks_adjacent(files: Sequence[DataFile], policy: PackingPolicy) -> tuple[Group, ...]:
    """The groups from repeated calls of `pick_adjacent`, each on the files after the last group."""
    groups: list[Group] = []
    left = in_order(files)
    while (group := pick_adjacent(left, policy)) is not None:
        groups.append(group)
        left = left[left.index(group[-1]) + 1 :]
    return tuple(groups)


def becomes_fewer(group: Group, policy: PackingPolicy) -> bool:
    """Whether rewriting the group yields fewer files.

    Each new file but the last has the target size.
    """
    return sum(file.size_bytes for file in group) // policy.target_bytes + 1 < len(group)


def fewer_adjacent(files: Sequence[DataFile], policy: PackingPolicy) -> tuple[Group, ...]:
    """Groups of neighbours whose packing reduces the number of files, oldest first.

    `pick_adjacent` alone would pick the same large neighbours again and again, without reducing the
    number of files.
    """
    groups: list[Group] = []
    left = in_order(files)
    while (group := pick_adjacent(left, policy)) is not None:
        if becomes_fewer(group, policy):
            groups.append(group)
            left = left[left.index(group[-1]) + 1 :]
        else:
            left = left[left.index(group[0]) + 1 :]
    return tuple(groups)


def pick_adjacent_full(files: Sequence[DataFile], policy: PackingPolicy) -> Group | None:
    """All files from the first small one on; None if too few of them are small."""
    ordered = in_order(files)
    if policy.rewrite_all:
        return ordered or None
    small = [file.size_bytes < policy.small_file_bytes for file in ordered]
    if True not in small or len(ordered) < _FULL_FILES_MIN:
        return None
    first = small.index(True)
    taken = ordered[first:]
    small_count = sum(small)
    if len(taken) < _FULL_FILES_MIN or small_count <= len(taken) - small_count:
        return None
    return taken


def with_stale(groups: Sequence[Group], stale: Collection[str], files: Group) -> tuple[Group, ...]:
    """The groups, plus a group for each `stale` file (by name) that is in none; in order."""
    taken = {file.name for group in groups for file in group}
    alone = [(file,) for file in files if file.name in stale and file.name not in taken]
    return tuple(sorted((*groups, *alone), key=lambda group: group[0].sequence_min))


# --- no buckets -----------------------------------------------------------------------------------


def pick_small(
    files: Sequence[DataFile], policy: PackingPolicy, stale: Collection[str] = ()
) -> tuple[Group, ...]:
    """The groups of small and `stale` files of a partition that are worth packing."""
    groups: list[list[DataFile]] = []
    held: list[DataFile] = []
    held_bytes = 0
    for file in sorted(_small(files, policy, stale), key=lambda file: file.size_bytes):
        held.append(file)
        held_bytes += file.size_bytes + policy.open_cost_bytes
        is_full = held_bytes >= _TARGETS * policy.target_bytes or len(held) == policy.files_max
        if len(held) > 1 and is_full:
            groups.append(held)
            held, held_bytes = [], 0
    if len(held) >= max(policy.files_min, 2) or any(file.name in stale for file in held):
        groups.append(held)
    return tuple(_as_given(group, files) for group in groups)


def pick_small_full(
    files: Sequence[DataFile], policy: PackingPolicy, stale: Collection[str] = ()
) -> Group | None:
    """All small and `stale` files of a partition; None if there is at most one small file."""
    if policy.rewrite_all:
        return in_order(files) or None
    small = _small(files, policy, stale)
    return in_order(small) if len(small) > 1 or stale else None


def cut(group: Group, bytes_max: int, policy: PackingPolicy) -> tuple[Group, ...]:
    """The parts of a group of small files, each of about `bytes_max`, to pack in sequence.

    A part makes at least one complete new file; otherwise its output would be packed again. A full
    rewrite that includes large files is one part.
    """
    if policy.rewrite_all:
        return (group,)
    enough = max(bytes_max, _TARGETS * policy.target_bytes)
    parts: list[list[DataFile]] = [[]]
    held_bytes = 0
    for file in group:
        if len(parts[-1]) > 1 and held_bytes + file.size_bytes > enough:
            parts.append([])
            held_bytes = 0
        parts[-1].append(file)
        held_bytes += file.size_bytes
    if len(parts) > 1 and len(parts[-1]) == 1:
        last = parts.pop()
        parts[-1] += last
    return tuple(tuple(part) for part in parts)


def _small(
    files: Sequence[DataFile], policy: PackingPolicy, stale: Collection[str]
) -> list[DataFile]:
    least = policy.small_file_bytes
    return [file for file in files if file.size_bytes < least or file.name in stale]


def _as_given(group: Sequence[DataFile], files: Sequence[DataFile]) -> Group:
    names = {file.name for file in group}
    return in_order([file for file in files if file.name in names])
