"""Python objects that a query names: finds those with rows, and makes DuckDB relations of them.

The check of an object's class imports neither Polars nor Arrow datasets: their objects can only
exist if the module is already imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.sql.relation import SqlRelation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import TypeAlias

    import polars as pl

    Scope: TypeAlias = Callable[[str], object | None]
    """Gives a Python object with rows by its name, or None."""

__all__ = ["NotingScope", "as_relation", "is_of", "is_read_once", "names_in_scope"]

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


def is_of(held: object, module: str, kind: str) -> bool:
    """Whether an object is an instance of a class of this module. Does not import the module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(held, getattr(loaded, kind))


def _has_rows(held: object) -> bool:
    if isinstance(held, type):
        return False
    if is_of(held, "pyarrow.dataset", "Dataset") or is_of(held, "polars", "LazyFrame"):
        return True
    return isinstance(held, pa.Table) or any(
        hasattr(held, name) for name in ("__arrow_c_stream__", "to_duckdb")
    )
