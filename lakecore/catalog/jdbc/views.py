"""The views of a JDBC catalog: rows of `paimon_views`, as Paimon's JdbcCatalog stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.catalog.identifier import check_name
from lakecore.catalog.jdbc import statements as sql
from lakecore.catalog.jdbc.address import MYSQL
from lakecore.catalog.views import changed_view, decode_view, encode_view
from lakecore.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.jdbc.database import Database
    from lakecore.catalog.view_changes import ViewChange
    from lakecore.catalog.views import View

__all__ = ["JdbcViews"]

_ATTEMPTS = 20


class Rows(Protocol):
    """The part of `JdbcMetastore` that views need."""

    @property
    def database(self) -> Database: ...
    def has_database(self, name: str) -> bool: ...
    def is_taken(self, name: Identifier) -> bool: ...
    def others(self, database: str) -> tuple[str, ...]: ...
    def lock(self, name: Identifier) -> AbstractContextManager[None]: ...
    def values_of(self, name: Identifier) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True)
class JdbcViews:
    """The views of one `catalog-key` (`catalog/views.py`)."""

    metastore: Rows

    def names(self, database: str) -> tuple[str, ...]:
        return self.metastore.others(database)

    def find(self, name: Identifier) -> View | None:
        text = self._text(name)
        return None if text is None else decode_view(text, name)

    def create(self, name: Identifier, view: View) -> bool:
        values = self._new_values(name, view)
        with self.metastore.lock(name):
            return self._insert(name, values)

    def replace(self, name: Identifier, view: View) -> bool:
        values = self._new_values(name, view)
        with self.metastore.lock(name):
            for _ in range(_ATTEMPTS):
                if self._text(name) is None:
                    if self._insert(name, values):
                        return True
                    if self._text(name) is None:
                        return False  # a table has the name
                elif self.metastore.database.change((sql.REPLACE_VIEW, values)) > 0:
                    return True
        raise self._conflict(name)

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        database = self.metastore.database
        statement = sql.alter_view(database.dialect)
        with self.metastore.lock(name):
            # Locks may be off: another process may change the view between the read and the write.
            for _ in range(_ATTEMPTS):
                text = self._text(name)
                if text is None:
                    return False
                before = decode_view(text, name)
                view = changed_view(before, changes, name)
                if view == before:
                    return True
                values = {**self._values(name, view), "before": text}
                if database.change((statement, values)) > 0:
                    return True
        raise self._conflict(name)

    def drop(self, name: Identifier) -> bool:
        if self._text(name) is None:
            return False
        with self.metastore.lock(name):
            values = self.metastore.values_of(name)
            return self.metastore.database.change((sql.DELETE_VIEW, values)) > 0

    def rename(self, source: Identifier, target: Identifier) -> None:
        check_name("view", target.table)
        if not self.metastore.has_database(target.database):
            raise NotFound("no such database", database=target.database)
        if self._text(source) is None:
            raise NotFound("no such view", view=source)
        if source == target:
            # The two locks below would be the same lock.
            raise AlreadyExists("the view has this name already", view=target)
        # Locks are taken in the order of names, so that two renames never wait for each other.
        first, second = sorted((source, target), key=_pair)
        with self.metastore.lock(first), self.metastore.lock(second):
            if self.metastore.is_taken(target):
                raise AlreadyExists("a table or view has the new name", view=target)
            values = {
                **self.metastore.values_of(source),
                "new_database": target.database,
                "new_table": target.table,
            }
            renamed = self.metastore.database.insert((sql.RENAME_VIEW, values))
        if renamed is None:
            raise AlreadyExists("a table or view has the new name", view=target)
        if renamed == 0:
            raise NotFound("another process renamed or dropped the view", view=source)

    def _text(self, name: Identifier) -> str | None:
        """The stored text of a view; None if there is no such view."""
        rows = self.metastore.database.rows(sql.READ_VIEW, self.metastore.values_of(name))
        # The SQL database may ignore case in comparisons, but names are case-sensitive.
        texts = [text for database, view, text in rows if (database, view) == _pair(name)]
        return str(texts[0]) if texts else None

    def _new_values(self, name: Identifier, view: View) -> dict[str, object]:
        """The values of a view's row. Raises NotFound for a missing database."""
        check_name("view", name.table)
        if not self.metastore.has_database(name.database):
            raise NotFound("no such database", database=name.database)
        return self._values(name, view)

    def _values(self, name: Identifier, view: View) -> dict[str, object]:
        text = encode_view(view)
        if self.metastore.database.dialect == MYSQL and len(text) > sql.MYSQL_TEXT_BYTES_MAX:
            raise InvalidRequest(
                "the database cannot store a view that is so long",
                view=name,
                bytes=len(text),
                most=sql.MYSQL_TEXT_BYTES_MAX,
            )
        return {**self.metastore.values_of(name), "schema": text}

    def _insert(self, name: Identifier, values: dict[str, object]) -> bool:
        """Insert the row of a view; False if the name is taken."""
        if self.metastore.is_taken(name):
            return False
        return self.metastore.database.insert((sql.INSERT_VIEW, values)) is not None

    def _conflict(self, name: Identifier) -> CommitConflict:
        return CommitConflict("other processes keep changing the view; try again", view=name)


def _pair(name: Identifier) -> tuple[str, str]:
    return name.database, name.table
