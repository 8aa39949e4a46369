"""The progress of a snapshot: which chunks are done, and the log place of each chunk.

The rows of a chunk include every change before its log place. The log reader skips these changes,
and applies later ones. Each change is thus applied once, although the chunks of a snapshot were
read at different times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lakecore.model.types import Json

__all__ = ["Marks", "marks_from_json", "marks_to_json"]


@dataclass(slots=True)
class Marks:
    """The snapshot of one table.

    - `key`: the integer key by which the table is cut into ranges; None if it is one stream;
    - `bounds`: the first key of each range, except the first range;
    - `places`: the log place of each range that is done, in order; for a stream, one place, which
      is known as soon as its first rows are read;
    - `done`: whether all rows are read.
    """

    key: str | None = None
    bounds: tuple[int, ...] = ()
    places: list[LogPlace] = field(default_factory=list)
    done: bool = False

    def range(self, number: int) -> tuple[int | None, int | None]:
        """The first key of a range, and the first key after it; None if there is no bound."""
        start = self.bounds[number - 1] if number else None
        return start, self.bounds[number] if number < len(self.bounds) else None

    def follows(self, keys: Sequence[object], place: LogPlace) -> npt.NDArray[np.bool_]:
        """A mask of the changes to apply: those that the snapshot does not include yet.

        `keys` are the keys of the changes, `place` is their place in the log.
        """
        if place > max(self.places):
            return np.ones(len(keys), np.bool_)
        if self.key is None or not self.bounds:
            return np.zeros(len(keys), np.bool_)
        after = np.array([place > each for each in self.places])
        ranges = np.searchsorted(np.array(self.bounds, object), np.array(keys, object), "right")
        return after[ranges]


def marks_to_json(marks: Mapping[SourceTable, Marks]) -> list[Json]:
    """The progress as a JSON value. Equal places of adjacent ranges are stored once."""
    found: list[Json] = []
    for table, each in marks.items():
        runs: list[list[Json]] = []
        for place in each.places:
            if runs and runs[-1][:2] == place.to_json():
                runs[-1][2] = int(str(runs[-1][2])) + 1
            else:
                runs.append([*place.to_json(), 1])
        found.append(
            {
                "database": table.database,
                "table": table.name,
                "key": each.key,
                "bounds": list(each.bounds),
                "places": runs,
                "done": each.done,
            }
        )
    return found


def marks_from_json(value: Json) -> dict[SourceTable, Marks]:
    """The progress from a JSON value that `marks_to_json` returned."""
    marks: dict[SourceTable, Marks] = {}
    for each in value if isinstance(value, list) else []:
        match each:
            case {
                "database": str(database),
                "table": str(name),
                "key": (str() | None) as key,
                "bounds": list(bounds),
                "places": list(runs),
                "done": bool(done),
            }:
                places = [
                    LogPlace.of(str(file), int(str(offset)))
                    for file, offset, count in map(tuple, runs)
                    for _ in range(int(str(count)))
                ]
                cuts = tuple(int(str(bound)) for bound in bounds)
                marks[SourceTable(database, name)] = Marks(key, cuts, places, done)
            case _:
                raise InvalidRequest("not a position of this source", position=str(each))
    return marks
