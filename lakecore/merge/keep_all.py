"""A merge function that keeps every row, in merge order.

If a later merge must see all rows of a key together, `KEEP_ALL` only sorts them, as often as
needed, and `whole_keys` cuts the result between keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.merge.keys import order_columns
from lakecore.merge.order import merge_order, oldest_first, take_in_pieces
from lakecore.model.arrow_arrays import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice


class _KeepAll:
    """A merge function that keeps all rows of a key, except ignored rows."""

    chooses_rows: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The rows, sorted by key, sequence fields and sequence number; tombstones included."""
        runs = oldest_first(window, spec)
        _, order = merge_order(runs, spec)
        yield from take_in_pieces(runs, order)


KEEP_ALL: MergeFunction = _KeepAll()


def whole_keys(
    batches: Iterable[pa.Table], key: Sequence[str], bytes_max: int | None = None
) -> Iterator[pa.Table]:
    """The same sorted rows, cut so that no key spans two tables.

    The last key of a batch waits for the next batch. All rows of one key are held in memory.
    Raises InvalidRequest if they are more than `bytes_max`.
    """
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    waits_for: tuple[object, ...] = ()
    for batch in batches:
        keys = order_columns([batch.column(name) for name in key])
        if not keys.length:
            continue
        last = keys.at(keys.length - 1)
        ended = keys.count_below(last)
        if waiting and (ended or last != waits_for):
            yield pa.concat_tables([*waiting, batch.slice(0, ended)])
            waiting, waiting_bytes = [], 0
        elif ended:
            yield batch.slice(0, ended)
        waiting.append(batch.slice(ended))
        waits_for = last
        waiting_bytes += size_of(waiting[-1])
        if bytes_max is not None and waiting_bytes > bytes_max:
            raise InvalidRequest(
                "one key has more rows than the memory budget lets its merge engine see at once: "
                "write them in several commits, or set lakecore.memory-budget higher",
                key=last,
                rows=sum(table.num_rows for table in waiting),
                size_bytes=waiting_bytes,
                bytes_max=bytes_max,
            )
    if waiting:
        yield pa.concat_tables(waiting)
