"""The result of a statement: a DuckDB relation whose errors are lakecore's.

A relation reads its rows when they are requested, perhaps long after the statement. By then, the
session may have dropped the state that the relation reads, or another process the table.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import duckdb

from lakecore.errors import LakecoreError
from lakecore.sql.query_errors import FAILURES, error_of_result

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SqlRelation"]

T = TypeVar("T")


class SqlRelation:
    """A DuckDB relation, with all its methods and attributes, that raises errors of lakecore.

    Relations that its methods return are of this class, too. `relation` is DuckDB's own object. A
    stream, which `to_arrow_reader` returns, is Arrow's own, and raises Arrow's errors.
    """

    __slots__ = ("relation",)

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self.relation = relation

    def __getattr__(self, name: str) -> object:
        if name == "relation":  # a copy that has none yet
            raise AttributeError(name)
        return _told(_tried(lambda: getattr(self.relation, name)))

    def __getitem__(self, name: str) -> object:
        return _told(_tried(lambda: self.relation[name]))

    def __contains__(self, name: str) -> bool:
        return name in self.relation

    def __len__(self) -> int:
        return _tried(lambda: len(self.relation))

    def __repr__(self) -> str:
        return _tried(lambda: repr(self.relation))

    def __str__(self) -> str:
        return _tried(lambda: str(self.relation))

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.relation)})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = _tried(self.relation.to_arrow_reader)
        return reader.__arrow_c_stream__(requested_schema)


def _tried(call: Callable[[], T]) -> T:
    try:
        return call()
    except LakecoreError:
        raise
    except FAILURES as error:
        raise error_of_result(error) from error


def _told(found: object) -> object:
    """Wraps what a call of the relation returned: its own calls then raise lakecore's errors."""
    if isinstance(found, duckdb.DuckDBPyRelation):
        return SqlRelation(found)
    if not callable(found):
        return found

    @wraps(found)
    def called(*given: object, **named: object) -> object:
        own = [each.relation if isinstance(each, SqlRelation) else each for each in given]
        own_named = {
            name: each.relation if isinstance(each, SqlRelation) else each
            for name, each in named.items()
        }
        return _told(_tried(lambda: found(*own, **own_named)))

    return called
