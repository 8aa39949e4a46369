"""The options of `format("lakecore")`: the table, its state, and the rows to read.

| option | is |
|---|---|
| `path` | the table; `PATH$files` is a system table |
| `branch` | a branch of it, in place of `main` |
| `snapshot-id`, `tag`, `timestamp` | a state; a time is ISO 8601 with a zone, or milliseconds |
| `versionAsOf` | a tag, or else a snapshot id |
| `timestampAsOf` | as `timestamp` |
| `where` | an SQL condition that the rows meet |

Any other option is a table option, for this read only, or a storage option. An unknown option
raises an error. Spark passes every name in lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore import InvalidRequest, Table, open_table
from lakecore.distributed import (
    MAIN_BRANCH,
    SYSTEM_TABLES,
    UNSUPPORTED_SYSTEM_TABLES,
    SystemTable,
    Travel,
    wall_time,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- system --------------------------------------------------------------------------------------
# The names of system tables behind a path: `PATH$files`.


def split_system(path: str) -> tuple[str, str | None]:
    """The path of the table, and the name of its system table (None: the table itself)."""
    location, mark, name = path.rpartition("$")
    if mark and name.lower() in (*SYSTEM_TABLES, *UNSUPPORTED_SYSTEM_TABLES):
        return location, name.lower()
    return path, None


def refuse_state(name: str) -> None:
    """Raise InvalidRequest, because the system table `name` cannot be read at a stated state."""
    raise InvalidRequest(
        "a system table is read as it is; to look at the files of a snapshot, give the table's own "
        "option scan.snapshot-id",
        table=name,
    )


# --- options -------------------------------------------------------------------------------------

_OWN = frozenset(
    {
        "branch",
        "path",
        "paths",
        "snapshot-id",
        "tag",
        "timestamp",
        "timestampasof",
        "versionasof",
        "where",
    }
)
_STATES = frozenset(
    {
        "incremental-between",
        "incremental-between-timestamp",
        "scan.snapshot-id",
        "scan.tag-name",
        "scan.timestamp",
        "scan.timestamp-millis",
        "scan.version",
        "snapshot-id",
        "tag",
        "timestamp",
        "timestampasof",
        "versionasof",
    }
)
"""The options that name one or two states, table options included."""
MARK = "lakecore"
"""The option with which `attach` marks its catalog tables."""
PROVIDER = "provider"
"""The option that Spark passes to a source when it creates a catalog table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options.

    `stated`: whether `travel` or `table` names a state of the table.
    """

    path: str
    branch: str
    system: str | None
    travel: Travel
    stated: bool
    where: str | None
    table: Mapping[str, str]
    created_by: str | None

    def check_creation(self, key: str) -> None:
        """Raise InvalidRequest if Spark creates a catalog table without a request by `attach`.

        `key`: the key of a table's own data source; empty for the source named `lakecore`.
        """
        if self.created_by is not None and (not key or self.created_by != key):
            raise InvalidRequest(_CATALOG_TABLE, path=self.path)

    def open(self) -> Table:
        """The table, with the options of this read."""
        return open_table(self.path, branch=self.branch, options=self.table)

    def system_table(self, table: Table) -> SystemTable:
        """The system table that the path names."""
        assert self.system is not None, "the path names no system table"
        return table.inspect.system_table(self.system)


def parse_options(
    options: Mapping[str, str], *, location: str | None, storage: Mapping[str, str]
) -> SourceOptions:
    """The parsed options, for the table at `location` if given."""
    given = {key.lower(): value for key, value in options.items()}
    created_by = given.get(MARK, "") if PROVIDER in given else None
    if created_by is not None:
        # Spark adds its own properties, and passes each option twice.
        given = {"path": given["path"]} if "path" in given else {}
    if location is None and not given.get("path"):
        if "paths" in given:
            raise InvalidRequest("load one table at a time", paths=given["paths"])
        raise InvalidRequest(f"no path was given. {_CATALOG_TABLE}")
    _refuse_foreign(given)
    path, system = split_system(_plain(location or given["path"]))
    others = {key: value for key, value in given.items() if key not in _OWN}
    stated = sorted(given.keys() & _STATES)
    if len(stated) > 1:
        raise InvalidRequest("name a state in one way only", options=stated)
    if system is not None and given.keys() & _STATES & _OWN:
        refuse_state(f"{path}${system}")
    version = given.get("versionasof")
    if version is not None:
        others["scan.version"] = version
    travel = Travel(
        snapshot_id=_number(given.get("snapshot-id")),
        tag=given.get("tag"),
        timestamp=parse_time(given.get("timestamp", given.get("timestampasof"))),
    )
    return SourceOptions(
        path=path,
        branch=given.get("branch", MAIN_BRANCH),
        system=system,
        travel=travel,
        stated=bool(stated),
        where=given.get("where"),
        table={**storage, **others},
        created_by=created_by,
    )


_CATALOG_TABLE = (
    "Spark's catalog does not hand a table's path to lakecore: in place of CREATE TABLE ... USING "
    "lakecore, call spark_bridge.attach(spark, warehouse), or make a view: CREATE TEMPORARY VIEW v "
    "USING lakecore OPTIONS (path '...')"
)


_FOREIGN = {
    "as-of-timestamp": "timestamp",
    "end-snapshot-id": "spark_bridge.changes(spark, path, start, end)",
    "mergeschema": "write.merge-schema",
    "overwriteschema": "ALTER TABLE, or create the table again",
    "partitionoverwritemode": "dynamic-partition-overwrite",
    "replacewhere": "spark_bridge.write(df, path, 'overwrite', partition)",
    "start-snapshot-id": "spark_bridge.changes(spark, path, start, end)",
}
"""Options of Delta and Iceberg, each with its counterpart here."""


def _refuse_foreign(given: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an option of Delta or Iceberg, or one of ours in camelCase."""
    known = {re.sub("[-.]", "", each): each for each in (*_OWN, *_STATES)}
    for key in given:
        ours = _FOREIGN.get(key) or known.get(key)
        if ours is not None and ours != key and key not in _OWN:
            raise InvalidRequest(
                "unknown option of the format lakecore", option=key, did_you_mean=ours
            )


def _plain(path: str) -> str:
    """The path without the `file:` prefix that Spark adds to local paths."""
    return path.removeprefix("file:") if not path.startswith("file://") else path


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not _is_whole(text):
        raise InvalidRequest("a snapshot id is a number", snapshot_id=text)
    return int(text)


def parse_time(text: str | None) -> int | str | None:
    """The time: milliseconds, or ISO 8601. Raises InvalidRequest for ISO 8601 without a zone."""
    if text is None or _is_whole(text):
        return None if text is None else int(text)
    if wall_time(text) is not None:
        raise InvalidRequest(
            "a time needs its zone, because Spark hides the session's zone from a source: end it "
            "with one, as in 2026-01-01T00:00:00Z, or give milliseconds",
            timestamp=text,
        )
    return text


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
