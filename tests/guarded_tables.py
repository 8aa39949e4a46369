"""A table whose catalog filters and masks its rows, for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from lakecore.errors import StorageError
from lakecore.rows.read_rules_json import StatedRules
from lakecore.session import Session
from lakecore.table.handle import Table
from lakecore.table.publication import ExclusiveCreate
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = {"id": "INT NOT NULL", "owner": "STRING NOT NULL", "card": "STRING", "n": "BIGINT"}
ROWS = [
    {"id": 1, "owner": "ann", "card": "1111", "n": 10},
    {"id": 2, "owner": "bob", "card": "2222", "n": 20},
    {"id": 3, "owner": "ann", "card": "3333", "n": 30},
    {"id": 4, "owner": "ann", "card": None, "n": None},
]
SHOWN = [
    {"id": 1, "owner": "ann", "card": "*ann", "n": 10},
    {"id": 3, "owner": "ann", "card": "*ann", "n": 30},
    {"id": 4, "owner": "ann", "card": "*ann", "n": None},
]


def ref(name: str) -> dict[str, object]:
    """A column in a rule, as JSON."""
    return {"index": 0, "name": name, "type": COLUMNS[name]}


def equal(name: str, value: object) -> str:
    """A row filter: a column has this value."""
    return json.dumps(
        {
            "kind": "LEAF",
            "transform": {"name": "FIELD_REF", "fieldRef": ref(name)},
            "function": "EQUAL",
            "literals": [value],
        }
    )


STARS = json.dumps({"name": "CONCAT", "inputs": ["*", ref("owner")]})
NULL = json.dumps({"name": "NULL"})


@dataclass
class Access:
    """The rules of a catalog, as a test states them."""

    stated: StatedRules = field(
        default_factory=lambda: StatedRules((equal("owner", "ann"),), {"card": STARS})
    )
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    forbidden: tuple[str, ...] = ()

    def rules(self, branch: str, columns: Sequence[str]) -> StatedRules:
        """The rules, unless a column is forbidden."""
        self.asked.append((branch, tuple(columns)))
        if any(name in self.forbidden for name in columns):
            raise StorageError("the server forbids this", columns=columns)
        return self.stated


def guarded_table(
    access: Access, *, keys: Sequence[str] = ("id",), producer: str = "none"
) -> Table:
    """A table with rows in two files, so that a read merges, whose catalog states rules."""
    table = new_table(COLUMNS, keys=keys, query_auth__enabled="true", changelog_producer=producer)
    table.write([{**row, "card": "old", "n": 0} for row in ROWS[:2]] if keys else ROWS[:2])
    table.write(ROWS if keys else ROWS[2:])
    return with_rules(table, access)


def with_rules(table: Table, access: Access) -> Table:
    """The table as a user of this access sees it."""
    return Table(replace(table.context, publication=ExclusiveCreate(access)))


def rows_of(found: Any) -> list[dict[str, object]]:
    """The rows of a read, ordered by the key."""
    frame = pl.DataFrame(found) if not isinstance(found, pl.DataFrame) else found
    return frame.sort("id").to_dicts()


@dataclass
class GuardedCatalog:
    """A session's catalog whose tables have rules."""

    session: Session
    access: Access

    def get_table(self, identifier: str) -> Any:
        name, _, system = identifier.partition("$")
        found = self.session._catalog.get_table(name)  # noqa: SLF001
        table = Table(replace(found.context, publication=ExclusiveCreate(self.access)))
        return table.inspect.system_table(system) if system else table

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session._catalog, name)  # noqa: SLF001


def guarded_session(session: Session, access: Access) -> Session:
    """The session as a user of this access sees it."""
    return Session(cast("Any", GuardedCatalog(session, access)))
