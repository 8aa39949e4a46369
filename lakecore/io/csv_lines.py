"""Lines of CSV files as a person sees them: for notes and errors, where DuckDB names no line.

Only errors read a whole file; notes read its first lines. Compressed files are not looked at.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["line_of_row", "remarks", "undecodable", "uneven_line"]

_DELIMITERS = ",;|\t"
_LINES_MAX = 10_000
_COMPRESSED = (".gz", ".zst")


def remarks(path: str, shown: str) -> list[str]:
    """What looks unlike rows among the first lines, and is read as rows nevertheless."""
    lines = _lines(path)
    first = next(lines, "")
    comments = int(first.startswith("#"))
    ended = 0
    for line in islice(lines, _LINES_MAX):
        comments += line.startswith("#")
        ended += line[-1:] in {*_DELIMITERS} and not first.endswith(line[-1])
    found = []
    if comments:
        found.append(
            f"{comments} of the first lines of {shown} begin with # and are read like the others: "
            "a CSV file has no comments"
        )
    if ended:
        found.append(
            f"{ended} of the first lines of {shown} end with a delimiter that the names of the "
            "columns do not end with; the empty value after it is left out"
        )
    return found


def uneven_line(path: str, delimiter: str | None) -> dict[str, object]:
    """The first line with another number of values than the first one, as facts of an error."""
    first = next(_lines(path), "")
    counts = {each: first.count(each) for each in _DELIMITERS}
    by = delimiter or max(counts, key=lambda each: counts[each])
    with suppress(csv.Error):
        reader = csv.reader((f"{line}\n" for line in _lines(path)), delimiter=by)
        wanted, line = len(next(reader, [])), 2
        for values in reader:
            if len(values) != wanted:
                return {"line": line, "values": len(values), "values_of_first_line": wanted}
            line = reader.line_num + 1
    return {}


def line_of_row(path: str, row: int, delimiter: str | None, *, header: bool) -> dict[str, object]:
    """The number of the line at which a row begins, from 1, as a fact of an error."""
    line = 1
    with suppress(csv.Error):
        reader = csv.reader((f"{each}\n" for each in _lines(path)), delimiter=delimiter or ",")
        for number, _ in enumerate(reader):
            if number == row + header:
                return {"line": line}
            line = reader.line_num + 1
    return {}


def undecodable(path: str) -> dict[str, object]:
    """Where a file is not UTF-8: the line and the position in it, as facts of an error."""
    with suppress(OSError), Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return {
                    "line": number,
                    "column": error.start + 1,
                    "byte": f"0x{line[error.start]:02x}",
                }
    return {}


def _lines(path: str) -> Iterator[str]:
    if path.endswith(_COMPRESSED):
        return
    with suppress(OSError), Path(path).open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            yield line.rstrip("\r\n")
