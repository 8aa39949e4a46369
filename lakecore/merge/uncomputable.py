"""Errors for keys whose rows cannot be merged into one.

Such a key must not make its bucket unreadable: the error names the key, and a read whose predicate
excludes the key skips it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import Uncomputable
from lakecore.merge.keys import order_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice

KeyFilter: TypeAlias = "Callable[[pa.Table], np.ndarray]"
"""Rows of key columns -> a mask of the keys that the reader wants."""
_WAYS_OUT = (
    "other keys can be written and read; to mend this one, write a row of kind -U that takes the "
    "value back, delete the key if the table removes records on delete, widen the type of the "
    "column, or overwrite the partition"
)


def stored(error: Uncomputable, **place: object) -> Uncomputable:
    """The error of a merge, as raised for stored rows: the message says what to do.

    `place` is added to its facts.

    An error that already names a table is returned unchanged.
    """
    if "table" in error.facts:
        return error
    return Uncomputable(f"{error.message}. {_WAYS_OUT}", **place, **error.facts)


@dataclass(frozen=True, slots=True)
class Sparing:
    """A merge function that skips a key which cannot be merged, unless the key is `wanted`."""

    chooses_rows: ClassVar = False
    engine: MergeFunction
    wanted: KeyFilter

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows; see `MergeFunction`."""
        try:
            # All rows are folded before the first piece is returned.
            yield from self.engine(window, spec)
        except Uncomputable:
            parts = [self._spared(part, spec) for part in window]
            if all(part is given for part, given in zip(parts, window, strict=True)):
                raise
            left = [part for part in parts if part.rows.num_rows]
            if left:
                yield from self.engine(left, spec)

    def _spared(self, part: Slice, spec: MergeSpec) -> Slice:
        mask = self.wanted(part.rows.select(list(spec.key)))
        if mask.all():
            return part
        rows = part.rows.filter(pa.array(mask))
        places = None if part.places is None else np.asarray(part.places)[mask]
        keys = order_columns([rows.column(name) for name in spec.key])
        return replace(part, rows=rows, keys=keys, places=places)
