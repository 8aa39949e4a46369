"""Checks of the Parquet files that one COPY INTO loads together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.copy_columns import WHOLE_TYPES, files_of
from lakecore.sql.query_errors import FAILURES, error_of
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.sql.queries import Queries

__all__ = ["check_parquet", "fetched"]

_EXACT = {"FLOAT": 2**24 - 1, "DOUBLE": 2**53 - 1}
"""By type: every integer up to this number has an exact value in the type."""


def check_parquet(queries: Queries, paths: Sequence[str]) -> None:
    """Raise InvalidRequest or Unsupported if the columns of the files are ambiguous."""
    _check_names(queries, paths)
    _check_types(queries, paths)


def fetched(queries: Queries, query: str) -> list[tuple[object, ...]]:
    """All rows of a query. Raises only lakecore errors."""
    try:
        return queries.execute(query).fetchall()
    except FAILURES as error:
        raise error_of(error) from error


def _check_names(queries: Queries, paths: Sequence[str]) -> None:
    """Raise InvalidRequest for a Parquet file with columns whose names differ only in case."""
    query = f"FROM parquet_schema({files_of(paths)}) SELECT file_name, name, num_children"
    seen: dict[str, set[str]] = {}
    open_groups: list[int] = []
    for path, name, children in fetched(queries, query):
        # The rows are the nodes of each file's schema tree, depth first. The root comes first.
        while open_groups and open_groups[-1] == 0:
            open_groups.pop()
        if open_groups:
            open_groups[-1] -= 1
        if len(open_groups) == 1:
            known = seen.setdefault(str(path), set())
            if str(name).lower() in known:
                raise InvalidRequest(
                    "two columns of a Parquet file have names that differ only in case",
                    file=path,
                    column=name,
                )
            known.add(str(name).lower())
        open_groups.append(int(str(children or 0)))


def _check_types(queries: Queries, paths: Sequence[str]) -> None:
    """Raise Unsupported if the types of a number column differ, and DuckDB would change a value.

    DuckDB reads all files with one type: integers become floating-point numbers if another file has
    floating-point numbers.
    """
    if len(paths) == 1:
        return
    kinds: dict[str, set[str]] = {}
    for path in paths:
        relation = queries.execute(f"FROM read_parquet({files_of([path])}) LIMIT 0")
        for name, kind in zip(relation.columns, map(str, relation.types), strict=True):
            kinds.setdefault(name.lower(), set()).add(kind)
    for name, found in kinds.items():
        if found.isdisjoint(_EXACT) or not any(map(_is_other_number, found)):
            continue
        limit = min(_EXACT[kind] for kind in found & _EXACT.keys())
        source = f"read_parquet({files_of(paths)}, union_by_name = true)"
        query = f"FROM {source} SELECT coalesce(max(abs({quoted(name)})), 0) > {limit}"
        if any(kind.startswith("DECIMAL") for kind in found) or fetched(queries, query)[0][0]:
            raise Unsupported(
                "the files have a column under different types, and DuckDB would change its "
                "values; load the files one by one",
                column=name,
                types=sorted(found),
            )


def _is_other_number(kind: str) -> bool:
    return kind in WHOLE_TYPES or kind in {"UBIGINT", "HUGEINT"} or kind.startswith("DECIMAL")
