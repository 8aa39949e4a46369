"""The position of the MySQL source: within the snapshot, or at a place in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.cdc.events import Position, SourceTable
from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.cdc.mysql.log_batches import Marks, marks_from_json, marks_to_json
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.model.types import Json


WHOLE = "*"


@dataclass(slots=True)
class Place:
    """The position of the source: within the snapshot, or at a place in the log.

    - `gtid`: of MariaDB, the last GTID of each domain, joined by commas;
    - `server`: the server to which the place belongs;
    - `gone`: by table, names in lower case of columns that no longer exist; the target keeps them.
      `*` stands for a table that was dropped or renamed;
    - `renewed`: tables in which another column got the name of a gone column;
    - `texts`: columns of keys, as `database.table.column`, whose dates are mirrored as strings.
    """

    marks: dict[SourceTable, Marks] = field(default_factory=dict)
    log: LogPlace | None = None
    gtid: str | None = None
    server: str | None = None
    events_done: int = 0
    time_ms: int | None = None
    gone: dict[SourceTable, frozenset[str]] = field(default_factory=dict)
    renewed: set[SourceTable] = field(default_factory=set)
    texts: tuple[str, ...] = ()

    def rename(self, table: SourceTable, gone: Iterable[str], come: Iterable[str]) -> bool:
        """Note lost and new names of columns. Returns whether a new name was lost before."""
        names = self.gone.get(table, frozenset()).union(gone)
        if names:
            self.gone[table] = names
        if names.isdisjoint(come):
            return False
        self.renewed.add(table)
        return True

    def replace(self, table: SourceTable, *, comes: bool) -> bool:
        """Note that a table lost or got its name. Returns whether another table had it before."""
        names = self.gone.get(table, frozenset())
        is_replaced = comes and WHOLE in names
        names = names - {WHOLE} if comes else names | {WHOLE}
        self.gone.pop(table, None)
        if names:
            self.gone[table] = names
        return is_replaced

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        if self.log is not None:
            found["place"] = self.log.to_json()
        if self.gtid is not None:
            found["gtid"] = self.gtid
        if self.server is not None:
            found["server"] = self.server
        if self.events_done:
            found["events"] = self.events_done
        if self.time_ms is not None:
            found["time_ms"] = self.time_ms
        if self.texts:
            found["texts"] = [*self.texts]
        if self.gone:
            found["gone"] = [
                [each.database, each.name, sorted(names), each in self.renewed]
                for each, names in self.gone.items()
            ]
        if self.marks:
            found["snapshot"] = marks_to_json(self.marks)
        return found

    @staticmethod
    def from_json(given: Position) -> Place:
        """The place of a position. Raises InvalidRequest for a position of another source."""
        if not given.keys() & {"place", "snapshot", "gtid"}:
            raise InvalidRequest("not a position of this source", position=str(dict(given)))
        gone: dict[SourceTable, frozenset[str]] = {}
        renewed: set[SourceTable] = set()
        listed = given.get("gone")
        for each in listed if isinstance(listed, list) else ():
            match each:
                case [str(database), str(name), list(names), bool(is_renewed)]:
                    table = SourceTable(database, name)
                    gone[table] = frozenset(map(str, names))
                    renewed |= {table} if is_renewed else set()
                case _:
                    raise InvalidRequest("not a position of this source", position=str(each))
        gtid, events, time_ms = given.get("gtid"), given.get("events"), given.get("time_ms")
        server = given.get("server")
        return Place(
            marks=marks_from_json(given.get("snapshot")),
            log=LogPlace.from_json(given["place"]) if "place" in given else None,
            gtid=str(gtid) if gtid is not None else None,
            server=str(server) if server is not None else None,
            events_done=int(str(events)) if events is not None else 0,
            time_ms=int(str(time_ms)) if time_ms is not None else None,
            gone=gone,
            renewed=renewed,
            texts=texts_of(given),
        )


def texts_of(position: Position) -> tuple[str, ...]:
    """The columns of keys whose dates are mirrored as strings."""
    listed = position.get("texts")
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def with_gtid(known: str | None, last: str | None) -> str | None:
    """The last GTIDs of MariaDB's domains after another transaction; for MySQL, only the last."""
    if last is None or ":" in last or not known:
        return last or known
    domain = f"{last.partition('-')[0]}-"
    others = [each for each in known.split(",") if not each.startswith(domain)]
    return ",".join(sorted([*others, last]))
