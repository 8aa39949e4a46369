"""The views of a REST catalog. Each method sends one request, unless it says otherwise.

https://paimon.apache.org/docs/master/concepts/rest/overview/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import check_name
from lakecore.catalog.rest.http_client import Refusal, encoded
from lakecore.catalog.rest.served_table import database_path
from lakecore.catalog.view_changes import view_change_to_json
from lakecore.catalog.views import view_from_json, view_to_json
from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.rest.http_client import RestClient
    from lakecore.catalog.view_changes import ViewChange
    from lakecore.catalog.views import View

__all__ = ["ServedViews"]

_NOT_IMPLEMENTED = (404, 405, 501)
_DIALECT = "DIALECT"
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ServedViews:
    """Asks the server for views (`catalog/views.py`)."""

    client: RestClient
    root: str

    def names(self, database: str) -> tuple[str, ...]:
        try:
            found = list(self.client.pages(self._views(database), "views"))
        except Refusal as refusal:
            if refusal.code == 501:
                return ()  # a server that does not support views
            raise refusal.as_error(database=database) from None
        return tuple(sorted(map(str, found)))

    def find(self, name: Identifier) -> View | None:
        try:
            reply = self.client.get(self._address(name))
        except Refusal as refusal:
            if refusal.code in _NOT_IMPLEMENTED:
                return None
            raise refusal.as_error(view=name) from None
        return view_from_json(reply.get("schema"), name)

    def create(self, name: Identifier, view: View) -> bool:
        check_name("view", name.table)
        body = {"identifier": _object(name), "schema": view_to_json(view)}
        try:
            self.client.post(self._views(name.database), body, retries=False)
        except Refusal as refusal:
            if refusal.code == 409:
                return False
            raise _error(refusal, name) from None
        return True

    def replace(self, name: Identifier, view: View) -> bool:
        """Store a view. An existing view of that name is replaced.

        The protocol has no request for it: the old view is dropped, then the new one is created. If
        the server refuses the new view, the old one is created again.
        """
        check_name("view", name.table)
        seen = False
        for _ in range(_ATTEMPTS):
            before = self.find(name)
            try:
                if before is not None:
                    self.drop(name)
                if self.create(name, view):
                    return True
            except LakecoreError as error:
                if before is not None:
                    self._restore(name, before, error)
                raise
            # A concurrent `replace` may have dropped the view that made this creation fail.
            seen = seen or before is not None or self.find(name) is not None
        if not seen:
            return False  # a table has the name
        raise CommitConflict("other processes keep creating the view; try again", view=name)

    def _restore(self, name: Identifier, before: View, why: LakecoreError) -> None:
        """Create the old view again, unless a view of that name exists after all."""
        try:
            self.create(name, before)
        except LakecoreError as error:
            raise StorageError(
                "replacing the view failed between its two steps, drop and create, and so did "
                "creating the old view again; look whether the view exists, and create it if not",
                view=name,
                query_of_old_view=before.query,
                why_new_failed=why,
                why_old_failed=error,
            ) from why

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        body = {"changes": [view_change_to_json(each) for each in changes]}
        try:
            self.client.post(self._address(name), body, retries=False)
        except Refusal as refusal:
            if refusal.resource.upper() == _DIALECT and refusal.code in (404, 409):
                missing = refusal.code == 404
                raise (NotFound if missing else AlreadyExists)(
                    "the view does not have this dialect"
                    if missing
                    else "the view has this dialect",
                    view=name,
                    dialect=refusal.name,
                ) from None
            if refusal.code == 404:
                return False
            raise _error(refusal, name) from None
        return True

    def drop(self, name: Identifier) -> bool:
        try:
            self.client.delete(self._address(name))
        except Refusal as refusal:
            if refusal.code == 404:
                return False
            raise _error(refusal, name) from None
        return True

    def rename(self, source: Identifier, target: Identifier) -> None:
        check_name("view", target.table)
        body = {"source": _object(source), "destination": _object(target)}
        try:
            self.client.post(f"{self.root}/views/rename", body, retries=False)
        except Refusal as refusal:
            raise _error(refusal, target if refusal.code == 409 else source) from None

    def _views(self, database: str) -> str:
        return f"{database_path(self.root, database)}/views"

    def _address(self, name: Identifier) -> str:
        return f"{self._views(name.database)}/{encoded(name.table)}"


def _object(name: Identifier) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _error(refusal: Refusal, name: Identifier) -> Exception:
    if refusal.code == 501:
        return Unsupported("the server stores no views", view=name)
    return refusal.as_error(view=name)
