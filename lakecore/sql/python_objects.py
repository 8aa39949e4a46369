"""Python objects that a query names: finds those with rows, and makes DuckDB relations of them.

The check of an object's class imports neither Polars nor Arrow datasets: their objects can only
exist if the module is already imported.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import duckdb
import pyarrow as pa

from lakecore.deferred import is_of
from lakecore.display import ROWS_MAX, rows_html, value_text
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.sql.query_errors import FAILURES, error_of_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import polars as pl

    Scope: TypeAlias = Callable[[str], object | None]
    """Gives a Python object with rows by its name, or None."""


# --- relation ------------------------------------------------------------------------------------
# The result of a statement: a DuckDB relation whose errors are lakecore's.
#
# A relation reads its rows when they are requested, perhaps long after the statement. By then, the
# session may have dropped the state that the relation reads, or another process the table.

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

    def _repr_html_(self) -> str:
        """The first rows as an HTML table; at most `ROWS_MAX` are computed."""
        found = _tried(lambda: self.relation.limit(ROWS_MAX + 1).fetchall())
        title = f"the first {ROWS_MAX} rows" if len(found) > ROWS_MAX else f"{len(found)} rows"
        rows = [["NULL" if each is None else value_text(each) for each in row] for row in found]
        return rows_html(title, self.relation.columns, rows[:ROWS_MAX])

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


# --- python objects ------------------------------------------------------------------------------

_READ_AGAIN = (
    ("polars", "DataFrame"),
    ("polars", "LazyFrame"),
    ("pandas", "DataFrame"),
    ("pyarrow.dataset", "FileSystemDataset"),
)
"""The module and the class of objects that give their rows any number of times."""


class NotingScope:
    """A scope that notes whether an object that it gave may give its rows only once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.gave_once = False

    def __call__(self, name: str) -> object | None:
        """The object of this name, or None."""
        held = self._scope(name)
        if held is not None and is_read_once(held):
            self.gave_once = True
        return held


def names_in_scope(frame: FrameType | None) -> Scope:
    """The Python objects with rows among the variables of the calling functions.

    The functions of lakecore itself are skipped.
    """
    frames: list[FrameType] = []
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("lakecore."):
            frames.append(frame)
        frame = frame.f_back

    def find(name: str) -> object | None:
        for each in frames:
            for names in (each.f_locals, each.f_globals):
                held = names.get(name)
                if held is not None and _has_rows(held):
                    found: object = held
                    return found
        return None

    return find


def as_relation(
    held: object, name: str, connection: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyRelation:
    """The Python object `held`, which a query names, as a DuckDB relation."""
    if isinstance(held, SqlRelation):
        held = held.relation
    to_duckdb = getattr(held, "to_duckdb", None)
    if to_duckdb is not None:
        found: duckdb.DuckDBPyRelation = to_duckdb(connection)
        return found
    if is_of(held, "polars", "LazyFrame"):
        held = cast("pl.LazyFrame", held).collect()
    if is_of(held, "polars", "DataFrame"):
        held = cast("pl.DataFrame", held).to_arrow()
    try:
        return connection.from_arrow(held)
    except (duckdb.Error, TypeError, ValueError) as error:
        raise InvalidRequest(
            "this Python object cannot be read as rows", name=name, cause=error
        ) from error


def is_read_once(held: object) -> bool:
    """Whether the rows of a Python object can perhaps be read only once, as those of a stream."""
    return not (
        isinstance(held, pa.Table)
        or hasattr(held, "to_duckdb")
        or any(is_of(held, *kind) for kind in _READ_AGAIN)
    )


def _has_rows(held: object) -> bool:
    if isinstance(held, type):
        return False
    if is_of(held, "pyarrow.dataset", "Dataset") or is_of(held, "polars", "LazyFrame"):
        return True
    return isinstance(held, pa.Table) or any(
        hasattr(held, name) for name in ("__arrow_c_stream__", "to_duckdb")
    )
