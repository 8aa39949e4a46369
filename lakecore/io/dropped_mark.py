"""The mark `schema/.dropped`: it hides a table or branch, and makes a move one step.

A table that is moved where a directory cannot be renamed in one step is copied:

1. the mark `from SOURCE` is written at the target, which it hides, and all files are copied;
2. the mark `to TARGET` is written at the source. **This decides**: it hides the source, and the
   mark at the target hides nothing any more;
3. the mark at the target is deleted, and then the source, its mark last.

The paths in the marks are relative to the directory of the mark. Two marks belong together only
if each names the other table. Any other mark hides its table.
"""

from __future__ import annotations

from typing import NamedTuple

from lakecore.errors import NotFound
from lakecore.format.layout import DROPPED_MARK
from lakecore.io.stores.store import Store, has_file

_NAME = f"schema/{DROPPED_MARK}"
_FROM, _TO = "from", "to"


class _Mark(NamedTuple):
    word: str
    other: str
    """The path of the other table, if the word is one of a move."""


def moved_from(source: str, target: str) -> bytes:
    """The mark at the target of a move."""
    return f"{_FROM} {_relative(source, target)}".encode()


def moved_to(target: str, source: str) -> bytes:
    """The mark at the source of a move, which decides."""
    return f"{_TO} {_relative(target, source)}".encode()


def hides(store: Store, path: str) -> bool:
    """Whether the table or branch in this directory has a mark that hides it."""
    path = path.rstrip("/")
    mark = _read(store, path)
    if mark is None or (mark.word == _FROM and _is_pair(store, path, mark)):
        return False
    # The move may have been finished between the two reads.
    return has_file(store, f"{path}/{_NAME}")


def settle(store: Store, path: str) -> None:
    """Delete the mark at the target of a move that was decided, to or from this directory.

    Must be called before a mark is replaced or deleted: the target would be hidden again.
    """
    path = path.rstrip("/")
    mark = _read(store, path)
    if mark is not None and _is_pair(store, path, mark):
        store.delete(f"{path if mark.word == _FROM else mark.other}/{_NAME}")


def _is_pair(store: Store, path: str, mark: _Mark) -> bool:
    words = {_FROM: _TO, _TO: _FROM}
    return mark.word in words and _read(store, mark.other) == (words[mark.word], path)


def _read(store: Store, path: str) -> _Mark | None:
    try:
        text = store.read(f"{path}/{_NAME}").decode("utf-8", "replace")
    except NotFound:
        return None
    word, _, other = text.partition(" ")
    return _Mark(word, _absolute(other, path) if word in (_FROM, _TO) else "")


def _relative(path: str, start: str) -> str:
    parts, base = path.rstrip("/").split("/"), start.rstrip("/").split("/")
    same = 0
    while same < min(len(parts), len(base)) and parts[same] == base[same]:
        same += 1
    return "/".join([".."] * (len(base) - same) + parts[same:])


def _absolute(path: str, start: str) -> str:
    parts, base = path.split("/"), start.split("/")
    while parts and parts[0] == ".." and base:
        parts, base = parts[1:], base[:-1]
    return "/".join([*base, *parts])
