"""How long the long tests are: in full by `make props`, shorter in the `quick` profile of CI."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Size = TypeVar("Size")
Way = TypeVar("Way")


def sized(full: Size, *, quick: Size) -> Size:
    """The number of seeds, rounds or commits of a test, or its cases, under this run's profile."""
    return quick if settings.get_current_profile_name() == "quick" else full


def pairs(cases: Iterable[Size], ways: Sequence[Way]) -> list[tuple[Size, Way]]:
    """Each case in each way; under `quick` with every third way, in turn, so each way is taken."""
    step = sized(1, quick=min(3, len(ways)))
    return [(case, way) for at, case in enumerate(cases) for way in ways[at % step :: step]]


def calls_of(*case: str) -> Iterator[int]:
    """The store calls of a deed at which a case puts something else, counted from 1, without end.

    In full it is every call. Under `quick` it is every third one: which third depends on the case,
    so that the cases of one deed take all of its calls together.
    """
    step = sized(1, quick=3)
    return count(1 + crc32(" ".join(case).encode()) % step, step)
