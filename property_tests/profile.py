"""How long the long tests are: in full by `make props`, shorter in the `quick` profile of CI."""

from __future__ import annotations

import time
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

DAY_NS = 86_400_000_000_000
Size = TypeVar("Size")
Way = TypeVar("Way")


def sized(full: Size, *, quick: Size) -> Size:
    """The number of seeds, rounds or commits of a test, or its cases, under this run's profile."""
    return quick if settings.get_current_profile_name() == "quick" else full


def pairs(cases: Iterable[Size], ways: Sequence[Way]) -> list[tuple[Size, Way]]:
    """Each case in each way; under `quick` with every third way, in turn, so each way is taken."""
    step = sized(1, quick=min(3, len(ways)))
    return [(case, way) for at, case in enumerate(cases) for way in ways[at % step :: step]]


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that this run takes: under `quick`, of the cases that `sampled(n)` marks, one in n.

    Of each test that is at least one, and always the same ones, from everywhere in its product.
    """
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases.setdefault((item.nodeid.partition("[")[0], *mark.args), []).append(item)
    out: set[pytest.Item] = set()
    for (_, one_in), found in cases.items():
        found.sort(key=lambda item: crc32(item.name.encode()))
        out.update(found[ceil(len(found) / sized(1, quick=one_in)) :])
    return [item for item in items if item not in out]


def calls_of(*case: str, one_in: int = 1) -> Iterator[int]:
    """The store calls of a deed at which a case puts something else, counted from 1, without end.

    In full it is every call, or one in so many, others on each day. Under `quick` it is every
    eighth one: which eighth depends on the case, so that the cases of one deed take its calls in
    turns.
    """
    step = sized(one_in, quick=8)
    day = sized(time.time_ns() // DAY_NS, quick=0)
    return count(1 + (crc32(" ".join(case).encode()) + day) % step, step)
