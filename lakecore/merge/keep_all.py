"""Every row stays, in the order in which the rows of a key merge.

Rows on the way to a merge that must see all of them at once are brought into order by `KEEP_ALL`,
as often as it takes, and cut where a key ends by `whole_keys`.
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
    """A merge function that leaves all rows of a key, less those that do not count."""

    chooses_rows: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The rows by key, sequence fields, sequence number; deletions too."""
        runs = oldest_first(window, spec)
        _, order = merge_order(runs, spec)
        yield from take_in_pieces(runs, order)


KEEP_ALL: MergeFunction = _KeepAll()


def whole_keys(
    batches: Iterable[pa.Table], key: Sequence[str], bytes_max: int | None = None
) -> Iterator[pa.Table]:
    """The same sorted rows, cut so that no key goes on from one table to the next.

    The last key of a batch waits for the batch after it. All rows of one key are held at once.
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
