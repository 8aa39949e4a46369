"""Merge order of the rows of a window: by key, sequence fields, sequence number, commit order.

https://paimon.apache.org/docs/master/primary-key-table/sequence-rowkind/

If whole runs are older or newer than each other, a stable sort by key is enough, and cheap, because
each run is in key order already. Otherwise, only rows whose key occurs more than once are compared.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.keys import sequence_codes, shared_codes
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.merge.spec import MergeSpec, Slice


PIECE_ROWS = 131_072
PIECE_BYTES = 4 << 20
"""Maximum size of a piece of a window's rows; a file is written from many pieces."""
_NUMBER_BITS = 63
_IDLE_TAKERS: list[ThreadPoolExecutor] = []
_COMBINED_BYTES = 16 << 20
"""Windows up to this size are combined into one chunk, so they are in memory twice."""
_BUFFER_BYTES = 64 << 20
"""Windows from this size on are write buffers."""


def runs_decide(window: Sequence[Slice], spec: MergeSpec) -> bool:
    """Whether every row of each run is older than all rows of the next run."""
    if spec.sequence or not all(part.unique for part in window):
        return False
    ordered = sorted(window, key=_age)
    return all(older.sequence_max < newer.sequence_min for older, newer in pairwise(ordered))


def oldest_first(window: Sequence[Slice], spec: MergeSpec) -> list[Slice]:
    """The runs in an order in which later rows are newer, unless sequences decide otherwise."""
    if runs_decide(window, spec):
        return sorted(window, key=_age)
    return sorted(window, key=lambda part: part.commit_order)


def merge_order(window: Sequence[Slice], spec: MergeSpec) -> tuple[np.ndarray, np.ndarray]:
    """For all rows of `oldest_first` runs: key codes, and positions in merge order.

    The positions do not contain ignored rows.
    """
    by_run = shared_codes([part.keys for part in window])
    codes = np.concatenate(by_run)
    order = key_order(window, codes)
    alive = np.concatenate(countable_rows(window, by_run, spec))
    if not alive.all():
        order = order[alive[order]]
    if not runs_decide(window, spec):
        _settle(window, spec, codes, order)
    return codes, order


def key_order(window: Sequence[Slice], codes: np.ndarray) -> np.ndarray:
    """The positions of the rows in key order; rows of a key are in run order."""
    if len(window) > 1:
        # Runs are sorted: a sort that exploits this is the fastest.
        return np.argsort(codes, kind="stable")
    if (codes[1:] >= codes[:-1]).all():
        return np.arange(len(codes))
    return _sorted_places(codes)


def _sorted_places(codes: np.ndarray) -> np.ndarray:
    """The positions of the codes in ascending order.

    If a code and its position fit into one integer, these integers are sorted in place. A separate
    sort takes four times the memory, and Polars keeps that memory for a while.
    """
    low = int(codes.min())
    bits = (len(codes) - 1).bit_length()
    if (int(codes.max()) - low).bit_length() + bits > _NUMBER_BITS:
        return pl.Series(codes).arg_sort().to_numpy().astype(np.int64)
    places = codes - low
    places <<= bits
    places |= np.arange(len(codes))
    places.sort()
    places &= (1 << bits) - 1
    return places


def column_of(window: Sequence[Slice], name: str, rows: np.ndarray) -> pa.ChunkedArray:
    """The values of a column at these positions over all runs."""
    chunks = [chunk for part in window for chunk in part.rows.column(name).chunks]
    column = pa.chunked_array(chunks, type=window[0].rows.schema.field(name).type)
    return column.take(pa.array(rows))


def of_kinds(rows: pa.Table, kinds: frozenset[RowKind]) -> np.ndarray | None:
    """A mask of the rows of these kinds; None if there are no such rows."""
    if not kinds or rows.schema.get_field_index(VALUE_KIND) < 0:
        return None
    present = rows.column(VALUE_KIND).to_numpy()
    wanted = [int(kind) for kind in kinds]
    if present.max(initial=0) < min(wanted):
        return None
    mask = np.isin(present, wanted)
    return mask if mask.any() else None


def of_kinds_over(window: Sequence[Slice], kinds: frozenset[RowKind]) -> np.ndarray | None:
    """A mask of the rows of these kinds over all runs; None if there are no such rows."""
    masks = [of_kinds(part.rows, kinds) for part in window]
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.zeros(part.keys.length, bool) if mask is None else mask
            for part, mask in zip(window, masks, strict=True)
        ]
    )


def filter_rows(rows: pa.Table, mask: np.ndarray) -> pa.Table:
    """The masked rows; nothing is copied if the mask selects all rows or none."""
    places = np.flatnonzero(mask)
    if len(places) == len(mask):
        return rows
    if not len(places):
        return rows.slice(0, 0)
    if any(column.num_chunks > 1 for column in rows.columns):
        return rows.filter(pa.array(mask))
    # With one chunk, a filter would compute the positions again for each column.
    return pc.take(rows, pa.array(places), boundscheck=False)


def split_mask(window: Sequence[Slice], mask: np.ndarray) -> list[np.ndarray]:
    """Split a mask over all runs into one mask for each run."""
    return np.split(mask, np.cumsum([part.keys.length for part in window])[:-1])


def take_in_pieces(window: Sequence[Slice], positions: np.ndarray) -> Iterator[pa.Table]:
    """The rows at these positions over all runs, in pieces, to avoid a second full copy."""
    rows = pa.concat_tables([part.rows for part in window])
    size_bytes = size_of(rows)
    step = piece_rows(rows, size_bytes)
    if step == 1:
        # Large rows are not copied.
        yield from (rows.slice(position, 1) for position in positions.tolist())
        return
    if size_bytes <= _COMBINED_BYTES:
        # Otherwise Arrow would combine the chunks of each column for each piece.
        rows = rows.combine_chunks()
    starts = range(0, max(1, len(positions)), step)

    def piece(start: int) -> pa.Table:
        return pc.take(rows, pa.array(positions[start : start + step]), boundscheck=False)

    # Take the next piece while this one is written: Arrow releases the interpreter lock.
    with _taker(size_bytes) as taker:
        coming = taker.submit(piece, 0)
        try:
            for start in starts[1:]:
                done = coming.result()
                coming = taker.submit(piece, start)
                yield done
            yield coming.result()
        finally:
            if not coming.cancel():
                wait([coming])


@contextmanager
def _taker(size_bytes: int) -> Iterator[ThreadPoolExecutor]:
    """The thread that copies rows from a window of `size_bytes`.

    All windows use the same thread, which reuses the memory that it has freed. For a write buffer,
    freed memory is returned to the system before and after.
    """
    try:
        taker = _IDLE_TAKERS.pop()
    except IndexError:
        taker = ThreadPoolExecutor(1, thread_name_prefix="lakecore-take")
    try:
        if size_bytes >= _BUFFER_BYTES:
            taker.submit(_release_freed)
        yield taker
        if size_bytes >= _BUFFER_BYTES:
            taker.submit(_release_freed)
    finally:
        _IDLE_TAKERS.append(taker)


def _release_freed() -> None:
    pa.default_memory_pool().release_unused()
    # Release the memory of the sort.
    pa.system_memory_pool().release_unused()


def piece_rows(rows: pa.Table, size_bytes: int) -> int:
    """The number of rows to copy in one piece; all `rows` together have `size_bytes`."""
    fitting: int = PIECE_BYTES * rows.num_rows // max(1, size_bytes)
    return max(1, min(PIECE_ROWS, fitting))


def _age(part: Slice) -> tuple[int, int]:
    return (part.sequence_min, part.sequence_max)


def countable_rows(
    window: Sequence[Slice], codes: list[np.ndarray], spec: MergeSpec
) -> list[np.ndarray]:
    """For each run, a mask of the rows that are merged.

    The other rows are ignored because of their kind, or absorbed by a lower level
    (`complete_levels`).
    """
    masks = [
        np.ones(part.keys.length, bool) if ignored is None else ~ignored
        for part in window
        for ignored in [of_kinds(part.rows, spec.ignored)]
    ]
    if spec.complete_levels:
        compacted = [at for at, part in enumerate(window) if part.level > 0]
        seen = np.empty(0, np.int64)
        for at in sorted(compacted, key=lambda at: window[at].level):
            masks[at] &= np.isin(codes[at], seen, assume_unique=True, invert=True)
            seen = np.concatenate([seen, codes[at]])
    return masks


def _settle(window: Sequence[Slice], spec: MergeSpec, codes: np.ndarray, order: np.ndarray) -> None:
    """Sort the rows of each key that has several rows. Changes `order` in place."""
    ordered = codes[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(order), bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    contested = order[repeated]
    if not len(contested):
        return
    by = [contested, column_of(window, SEQUENCE_NUMBER, contested).to_numpy()]
    if spec.sequence:
        fields = [column_of(window, name, contested) for name in spec.sequence]
        by.append(sequence_codes(fields, descending=spec.sequence_descending))
    by.append(codes[contested])
    order[repeated] = contested[np.lexsort(by)]
