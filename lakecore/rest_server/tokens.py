"""Who sends a request, and what they may do: a token, with a scope.

A scope has two parts: whether the token may change anything, and the databases that it may name.
`allow` checks a request before it is carried out; `visible` is the catalog whose lists of databases
are those of the scope.
"""

from __future__ import annotations

import hmac
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lakecore.errors import InvalidRequest
from lakecore.rest_server.replies import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.catalog import Catalog

__all__ = ["Token", "allow", "parse_tokens", "token_of", "visible"]

_KEYS = {"token", "databases", "access"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token and its scope. `databases` None: all databases."""

    name: str
    text: str
    databases: frozenset[str] | None = None
    writes: bool = True


NOBODY = Token(name="anyone", text="")
"""Who sends requests to a server without tokens."""


def token_of(stated: str | None, tokens: Sequence[Token]) -> Token:
    """The token of a request's header `Authorization`. Raises Problem if there is none."""
    if not tokens:
        return NOBODY
    found: Token | None = None
    given = (stated or "").encode("utf-8", "replace")
    for each in tokens:  # the time must not tell which token is nearly right
        if hmac.compare_digest(given, f"Bearer {each.text}".encode()):
            found = each
    if found is None:
        raise Problem(401, "the token is missing or wrong")
    return found


def allow(token: Token, method: str, parts: Sequence[str], body: Mapping[str, Any]) -> None:
    """Raise Problem (403) for a request that the token may not make."""
    if method != "GET" and not token.writes:
        raise Problem(403, "this token may only read")
    if token.databases is None:
        return
    named: list[object] = []
    match (method, *parts):
        case (_, "databases", database, *_):
            named = [database]
        case ("POST", "databases"):
            named = [body.get("name")]
        case ("POST", _, "rename"):
            places = (body.get("source"), body.get("destination"))
            named = [each.get("database") for each in places if isinstance(each, dict)]
    for each in named:
        if not isinstance(each, str) or each not in token.databases:
            raise Problem(403, "this token may not use the database", "DATABASE", str(each))


def visible(catalog: Catalog, token: Token) -> Catalog:
    """The catalog, with the databases that the token may use."""
    return catalog if token.databases is None else cast("Catalog", _Visible(catalog, token))


@dataclass(frozen=True, slots=True)
class _Visible:
    catalog: Catalog
    token: Token

    def list_databases(self) -> tuple[str, ...]:
        allowed = self.token.databases or ()
        return tuple(name for name in self.catalog.list_databases() if name in allowed)

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)


def parse_tokens(text: str, path: str) -> tuple[Token, ...]:
    """The tokens of a TOML file: a table for each, named as the log shall name it.

    Raises InvalidRequest for another form and for an unknown key. No error shows a token.
    """
    try:
        found = tomllib.loads(text)
    except ValueError:
        raise InvalidRequest("the file of tokens is not TOML", path=path) from None
    tokens = tuple(_token(path, name, stated) for name, stated in found.items())
    if not tokens:
        raise InvalidRequest("the file has no tokens", path=path)
    if len({token.text for token in tokens}) < len(tokens):
        raise InvalidRequest("two names have the same token", path=path)
    return tokens


def _token(path: str, name: str, stated: object) -> Token:
    facts = {"path": path, "name": name}
    if not isinstance(stated, dict) or not stated.keys() <= _KEYS:
        raise InvalidRequest("a token is a table with these keys", **facts, allowed=sorted(_KEYS))
    text, databases = stated.get("token"), stated.get("databases")
    access = stated.get("access", "write")
    if not isinstance(text, str) or not text.isascii() or not text.strip():
        raise InvalidRequest("a token is a text of ASCII characters", **facts)
    if access not in ("read", "write"):
        raise InvalidRequest("the access of a token is 'read' or 'write'", **facts)
    listed = databases is None or isinstance(databases, list)
    if not listed or not all(isinstance(each, str) for each in databases or ()):
        raise InvalidRequest("the databases of a token are a list of names", **facts)
    return Token(
        name=name,
        text=text,
        databases=None if databases is None else frozenset(databases),
        writes=access == "write",
    )
