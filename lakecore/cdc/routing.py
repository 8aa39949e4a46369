"""Decides which source tables are synchronised, and to which tables of the target database.

1. A table is synchronised if its database and its name fully match the including patterns and do
   not match the excluding ones.
2. The target's name is the mapped name, or else the table's name between a prefix and a suffix. A
   prefix or suffix for the table's database takes precedence over the general one.
3. Tables of the same name in several databases go into one table; without `merge_shards`, the
   target's name starts with the name of the database and `_`.

Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lakecore.cdc.conf import matches
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.cdc.events import SourceTable

__all__ = ["Routing"]


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The routing options of a database action, named as its flags.

    The keys of `table_mapping`, `table_prefix_db` and `table_suffix_db` match case-insensitively.
    Without `case_sensitive`, names of targets are in lower case.
    """

    database: str
    including_tables: str = ".*"
    excluding_tables: str | None = None
    including_dbs: str = ".*"
    excluding_dbs: str | None = None
    table_prefix: str = ""
    table_suffix: str = ""
    table_prefix_db: Mapping[str, str] = field(default_factory=dict)
    table_suffix_db: Mapping[str, str] = field(default_factory=dict)
    table_mapping: Mapping[str, str] = field(default_factory=dict)
    merge_shards: bool = True
    case_sensitive: bool = True

    def __post_init__(self) -> None:
        for name in ("including_tables", "excluding_tables", "including_dbs", "excluding_dbs"):
            pattern = getattr(self, name)
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise InvalidRequest(
                    "not a regular expression", argument=name, value=pattern, cause=error
                ) from error

    def includes(self, table: SourceTable) -> bool:
        """Whether the table is synchronised."""
        return _matches(table.database, self.including_dbs, self.excluding_dbs) and _matches(
            table.name, self.including_tables, self.excluding_tables
        )

    def target(self, table: SourceTable) -> str | None:
        """The target as `database.table`; None if the table is not synchronised.

        Raises InvalidRequest for a table without a name or a database.
        """
        if not table.name or not table.database:
            raise InvalidRequest(
                "a message does not name its database and table, so a target cannot be chosen; "
                "use the action for one table",
                database=table.database,
                table=table.name,
            )
        return f"{self.database}.{self._name(table)}" if self.includes(table) else None

    def may_be_target(self, name: str) -> bool:
        """Whether a table of the target database may be the target of an included table."""
        if name in self.table_mapping.values():
            return True
        prefixes = {self.table_prefix, *self.table_prefix_db.values()}
        suffixes = {self.table_suffix, *self.table_suffix_db.values()}
        inner = [
            name[len(prefix) : len(name) - len(suffix)]
            for prefix in prefixes
            for suffix in suffixes
            if name.startswith(prefix)
            and name.endswith(suffix)
            and len(name) > len(prefix) + len(suffix)
        ]
        return any(matches(self.including_tables, each) for each in inner) and not any(
            self.excluding_tables is not None and matches(self.excluding_tables, each)
            for each in inner
        )

    def _name(self, table: SourceTable) -> str:
        name = table.name if self.merge_shards else f"{table.database}_{table.name}"
        mapped = self._lower["table_mapping"].get(name.lower())
        if mapped is not None:
            return self._cased(mapped)
        database = table.database.lower()
        prefix = self._lower["table_prefix_db"].get(database, self.table_prefix)
        suffix = self._lower["table_suffix_db"].get(database, self.table_suffix)
        return f"{prefix}{self._cased(name)}{suffix}"

    def _cased(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _lower(self) -> Mapping[str, Mapping[str, str]]:
        """The mappings with their keys in lower case."""
        return {
            name: {key.lower(): value for key, value in getattr(self, name).items()}
            for name in ("table_mapping", "table_prefix_db", "table_suffix_db")
        }


def _matches(name: str, including: str, excluding: str | None) -> bool:
    return matches(including, name) and (excluding is None or not matches(excluding, name))
