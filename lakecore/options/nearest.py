"""Suggests known keys for an unknown one."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 3
_TYPO, _SIMILAR = 0.85, 0.6


def nearest(key: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Up to three current keys that may be meant by the unknown key, the likeliest first.

    `known` maps each key, older ones included, to its current key. The first rule that finds a key
    decides:

    1. the same words with other separators: `writeOnly`, `write_only`;
    2. one key with nearly the same spelling: `merge-engin`;
    3. keys that contain all words of the given one: `retained.max`;
    4. keys with a similar spelling.
    """
    words = _words(key)
    if not words:
        return ()
    bare = "".join(words)
    same = [each for each in known if "".join(_words(each)) == bare]
    if same:
        return _today(same, known)
    typo = difflib.get_close_matches(key.lower(), known, 1, _TYPO)
    if typo:
        return _today(typo, known)
    holding = [each for each in known if set(words) <= set(_words(each))]
    if holding:
        return _today(sorted(holding, key=lambda each: (len(_words(each)), each)), known)
    return _today(difflib.get_close_matches(key.lower(), known, _MOST, _SIMILAR), known)


def _words(key: str) -> list[str]:
    """The words of a key: parts between dots, dashes, underscores, blanks and capitals."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key)
    return [word for word in re.split(r"[^a-z0-9]+", spread.lower()) if word]


def _today(keys: list[str], known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known[each] for each in keys))[:_MOST]
