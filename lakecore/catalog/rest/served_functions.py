"""The functions of a REST catalog. Each method sends one request.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.functions import function_from_json
from lakecore.catalog.rest.http_client import Refusal, encoded
from lakecore.catalog.rest.served_table import database_path

if TYPE_CHECKING:
    from lakecore.catalog.functions import Function
    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.rest.http_client import RestClient

__all__ = ["ServedFunctions"]


@dataclass(frozen=True, slots=True)
class ServedFunctions:
    """Asks the server for functions (`catalog/functions.py`)."""

    client: RestClient
    root: str

    def names(self, database: str) -> tuple[str, ...]:
        try:
            found = list(self.client.pages(self._functions(database), "functions"))
        except Refusal as refusal:
            if refusal.code == 501:
                return ()  # a server that does not support functions
            raise refusal.as_error(database=database) from None
        return tuple(sorted(map(str, found)))

    def find(self, name: Identifier) -> Function | None:
        try:
            reply = self.client.get(f"{self._functions(name.database)}/{encoded(name.table)}")
        except Refusal as refusal:
            if refusal.code in (404, 501):
                return None
            raise refusal.as_error(function=name) from None
        return function_from_json(reply, name)

    def _functions(self, database: str) -> str:
        return f"{database_path(self.root, database)}/functions"
