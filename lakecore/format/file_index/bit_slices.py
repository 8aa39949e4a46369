"""A number for each row, as bit slices: slice i is the bitmap of the rows whose number has bit i.

Comparisons with a number go through the slices from the highest bit (O'Neil and Quass, 1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lakecore.format.file_index.coded import bitmap_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


@dataclass(frozen=True, slots=True)
class BitSlices:
    """Bit slices of the numbers minus `least`, lowest bit first.

    `rows` are the rows with a number.
    """

    rows: BitMap
    slices: Sequence[BitMap]
    least: int = 0

    def equal(self, number: int) -> BitMap:
        """The rows with this number."""
        return self._compared(number)[1]

    def below(self, number: int) -> BitMap:
        """The rows with a smaller number."""
        return self._compared(number)[0]

    def _compared(self, number: int) -> tuple[BitMap, BitMap]:
        """The rows with a smaller number, and the rows with this number."""
        number -= self.least
        if number < 0:
            return BitMap(), BitMap()
        if number.bit_length() > len(self.slices):
            return BitMap(self.rows), BitMap()
        smaller, equal = BitMap(), BitMap(self.rows)
        for bit in reversed(range(len(self.slices))):
            if number >> bit & 1:
                smaller |= equal - self.slices[bit]
                equal &= self.slices[bit]
            else:
                equal -= self.slices[bit]
        return smaller, equal


def slices_of(rows: np.ndarray, numbers: np.ndarray, count: int) -> BitSlices:
    """Bit slices of the numbers of these rows: `count` slices. No number is negative."""
    own = [bitmap_of(rows[(numbers >> bit & 1).astype(bool)]) for bit in range(min(count, 63))]
    own += [BitMap() for _ in range(count - len(own))]
    return BitSlices(bitmap_of(rows), own)
