"""Folds of partial updates in which an old row arrives late: it goes before the state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.merge.fold import Chosen
from lakecore.merge.keys import Groups
from lakecore.merge.partial_update import _one_by_one
from lakecore.model.types import parse_type

LISTAGG = Aggregate(column="v", function="listagg", type=parse_type("STRING", context="v"))


def joined(sizes: list[int], early: list[bool]) -> tuple[list[str], list[str]]:
    """What the fold gives, and what a loop over the rows gives."""
    texts = [chr(ord("a") + place) for place in range(sum(sizes))]
    starts = np.cumsum([0, *sizes[:-1]])
    groups = Groups(starts, len(texts))
    rows = np.arange(len(texts))
    chosen = Chosen(rows=rows, numbers=np.arange(len(sizes)), groups=groups, retract=None)
    fold = AGGREGATORS[LISTAGG.function](LISTAGG)

    found = _one_by_one(fold, pa.array(texts), chosen, np.array(early))

    wanted = []
    for start, size in zip(starts, sizes, strict=True):
        state = texts[start]
        for place in range(start + 1, start + size):
            parts = [texts[place], state] if early[place] else [state, texts[place]]
            state = ",".join(parts)
        wanted.append(state)
    return found.to_pylist(), wanted


@pytest.mark.parametrize(
    ("sizes", "early"),
    [
        ([1], [False]),
        ([2], [False, False]),
        ([2], [False, True]),
        ([3], [False, True, False]),
        ([3], [False, True, True]),
        ([1, 3, 2], [False, False, False, True, False, True]),
        ([4, 1, 3], [False, True, False, True, False, False, True, True]),
    ],
)
def test_each_rank_is_folded_onto_the_state_of_the_ranks_before(
    sizes: list[int], early: list[bool]
) -> None:
    found, wanted = joined(sizes, early)

    assert found == wanted
