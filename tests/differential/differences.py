"""What lakecore and Java Paimon 1.4.2 are known to do differently, each with its reason.

Two ways to treat one: histories that meet it are not drawn (`NOT_DRAWN` says where), or they are
drawn with a tag, and compared as far as both are defined (`TAGGED`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.differential.history import History


class Difference(Enum):
    """How far two engines can be compared."""

    NONE = auto()
    # What a writer makes of one commit differs; of one table both engines read the same.
    TABLES = auto()


TAGGED: Mapping[str, tuple[Difference, str]] = {
    "begins with a retraction": (
        Difference.TABLES,
        (
            "a merge of partial-update that begins with a row that retracts starts from that row's "
            "values in 1.4.2, as if they had been added; lakecore starts from nothing, as 0.9 does"
        ),
    ),
}

NOT_DRAWN: Mapping[str, str] = {
    "NaN, and both zeros, in keys and sequence fields": (
        "Java compares keys by `<` and `>`, so NaN equals every key and -0.0 equals 0.0"
    ),
    "a descending sequence, and a key twice in one commit": (
        "1.4.2 heeds the direction between files, but not within one flush"
    ),
    "sums and products of integers that overflow": (
        "1.4.2 wraps around; lakecore refuses, as 2.1 does"
    ),
    "both zeros in ORC": "Java reads a batch of them as the first, for they are equal by `==`",
    "sums of floats that round": "they depend on the order in which files are merged",
    "retractions of NOT NULL columns": "they may leave null, on which some of Java's writers fail",
    "max and min of BOOLEAN": "1.4.2 cannot compare truths, as 2.1 and lakecore can",
    "nested_update: nulls in a list, a key twice in one": (
        "1.4.2 takes the first list of a merge as it is; 2.1 and lakecore leave those out"
    ),
    "partial-update: a merge that begins with a retraction, where readers meet it": (
        "as the tag above says, but then no two readers agree either"
    ),
    "fractions of seconds before 1970, years that ORC has not, a null ROW inside a ROW in ORC": (
        "see tests.interop.limits"
    ),
    "blanks at the end of CHAR": "ORC pads with blanks, and Java takes all of them off again",
}


def known(history: History) -> Difference:
    """How far the engines can be compared on this history."""
    for tag in history.tags:
        if tag in TAGGED:
            return TAGGED[tag][0]
    return Difference.NONE
