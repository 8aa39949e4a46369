"""Lines of JSON files as a person sees them, for errors about a record.

Only errors read a whole file. Compressed files are not examined.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPRESSED = (".gz", ".zst")
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]')


def line_of_record(path: str, row: int) -> dict[str, object]:
    """The number of the line at which a record begins, from 1, as a fact of an error."""
    for number, (line, _) in enumerate(_records(path)):
        if number == row:
            return {"line": line}
    return {}


def bad_record(path: str) -> dict[str, object]:
    """The line at which the first record begins that is no JSON object, as a fact of an error."""
    for line, text in _records(path):
        try:
            text.encode()
            if isinstance(json.loads(text), dict):
                continue
        except (ValueError, RecursionError):
            pass
        return {"line": line}
    return {}


def _records(path: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each record of a file of records, or of an array of them.

    Other values count as records, too. A string of JSON holds no line break.
    """
    depth = outer = begin = 0
    parts: list[str] = []
    for number, line in _lines(path):
        place = 0
        for mark in _MARKS.finditer(line):
            if depth == outer:
                yield from _loose(number, line[place : mark.start()])
            if mark[0] in {"{", "["}:
                if mark[0] == "[" and not depth and not begin:
                    depth = outer = begin = 1
                    place = mark.end()
                    continue
                if depth == outer:
                    begin, parts, place = number, [], mark.start()
                depth += 1
            elif mark[0] in {"}", "]"}:
                depth -= 1
                if depth == outer:
                    yield begin, "".join(parts) + line[place : mark.end()]
                    place = mark.end()
            elif depth == outer:
                yield number, mark[0]
                place = mark.end()
        if depth > outer:
            parts.append(line[place:])
        else:
            rest = line[place:]
            # The bracket that ends the array is no record.
            yield from _loose(number, rest.partition("]")[2] if depth < outer == 1 else rest)
    if depth > outer:
        yield begin, "".join(parts)


def _loose(line: int, text: str) -> Iterator[tuple[int, str]]:
    """The text between two records, unless it is only a separator."""
    if rest := text.strip(" \t\r\n,"):
        yield line, rest


def _lines(path: str) -> Iterator[tuple[int, str]]:
    if not path.endswith(_COMPRESSED):
        with (
            suppress(OSError),
            Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file,
        ):
            yield from enumerate(file, 1)
