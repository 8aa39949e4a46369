"""Packs work items of very different sizes into groups, one for each task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PACK_BYTES", "packed"]

PACK_BYTES = 64 << 20
"""Work of fewer bytes shares a task."""
_TASKS_PER_CORE = 3


def packed(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """The indexes of the items in groups. The largest group is first; items are in order of size.

    An item of at least the size limit is alone. The others fill groups up to the limit. The limit
    is lower if there would otherwise be fewer groups than cores.
    """
    limit = min(PACK_BYTES, sum(sizes) // (cores * _TASKS_PER_CORE))
    groups: list[list[int]] = []
    held = limit + 1
    for position in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        if held + sizes[position] > limit:
            groups.append([])
            held = 0
        groups[-1].append(position)
        held += sizes[position]
    return sorted(groups, key=lambda group: -sum(sizes[position] for position in group))
