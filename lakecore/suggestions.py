"""Suggestions in errors: a known name for an unknown one, and what keeps a snapshot longer.

`nearest` in `options/kinds.py` suggests keys of options.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_LONGER = (
    "the option snapshot.time-retained or a consumer keeps snapshots longer, a tag the rows of one"
)
"""What an error about an expired snapshot says."""


def did_you_mean(name: str, known: Iterable[str]) -> dict[str, str]:
    """The known name most similar to `name` as facts of an error; empty if none is similar.

    Upper and lower case do not matter.

        raise NotFound("no such table", table=name, **did_you_mean(name, tables))
    """
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lower, 1)
    return {"did_you_mean": lower[near[0]]} if near else {}
