"""lakecore as one of the engines, in the process of the tests."""

from __future__ import annotations

import json
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

import lakecore as lc
from tests.interop import limits
from tests.interop.arrow_values import from_arrow, to_arrow
from tests.interop.columns import columns_from_json
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from tests.interop.columns import Column
    from tests.interop.model import Case, Commit
    from tests.interop.values import Row


class LakecoreEngine:
    """lakecore, by the protocol of `engines.Engine`, through its public names alone."""

    name = limits.LAKECORE

    def create(self, path: Path, case: Case) -> None:
        """Create the table; `path` is `WAREHOUSE/DATABASE.db/TABLE`."""
        database = path.parent.name.removesuffix(".db")
        with _refusing("create"):
            session = lc.connect(path.parent.parent, create=True)
            session.create_database(database, ignore_if_exists=True)
            session.create_table(
                f"{database}.{path.name}",
                {column.name: column.type.text for column in case.columns},
                primary_keys=case.primary_keys,
                partition_keys=case.partition_keys,
                options=dict(case.options),
            )

    def write(self, path: Path, changes: Commit) -> None:
        with _refusing("write"):
            lc.open_table(path).write(_data(path, changes))

    def overwrite(self, path: Path, changes: Commit) -> None:
        """Put rows in the place of all others."""
        with _refusing("overwrite"):
            lc.open_table(path).overwrite(_data(path, changes), dynamic=False)

    def read(
        self,
        path: Path,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> list[Row]:
        """The rows, of some columns if named, that a condition holds for."""
        with _refusing("read"):
            table = lc.open_table(path)
            if options:
                table = table.copy(options)
            known = {column.name: column for column in _columns(path)}
            wanted = [known[name] for name in columns or known]
            return from_arrow(table.to_arrow(columns, where), wanted)

    def stream(
        self,
        path: Path,
        from_snapshot: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> dict[int, list[tuple[str, Row]]]:
        """What each snapshot changed, up to the latest."""
        with _refusing("stream"):
            table = lc.open_table(path).copy(options or {})
            found = table.stream(from_snapshot, "latest")
            return {number: _changes(frame, _columns(path)) for number, frame in found}

    def changes(self, path: Path, options: Mapping[str, str]) -> list[tuple[str, Row]]:
        """What changed between two points that the options name."""
        with _refusing("changes"):
            given = dict(options)
            start, end = given.pop("incremental-between").split(",")
            table = lc.open_table(path).copy(given)
            return _changes(table.changes(start, end), _columns(path))

    def compact(self, path: Path, *, full: bool) -> None:
        with _refusing("compact"):
            lc.open_table(path).compact(full=full)


def _data(path: Path, changes: Commit) -> pa.Table:
    data = to_arrow([row for _, row in changes], _columns(path))
    kinds = [kind for kind, _ in changes]
    if set(kinds) - {"+I"}:
        data = data.append_column("_row_kind", pa.array(kinds, pa.string()))
    return data


def _changes(frame: pl.LazyFrame, columns: Sequence[Column]) -> list[tuple[str, Row]]:
    rows = frame.collect()
    values = from_arrow(rows.drop("_row_kind").to_arrow(), columns)
    return list(zip(rows["_row_kind"].to_list(), values, strict=True))


def _columns(path: Path) -> list[Column]:
    """The columns as the schema file says, read without lakecore's help."""
    newest = max((path / "schema").iterdir(), key=lambda file: int(file.name.split("-")[1]))
    return list(columns_from_json(json.loads(newest.read_text())["fields"]))


@contextmanager
def _refusing(verb: str) -> Iterator[None]:
    try:
        yield
    except lc.LakecoreError as error:
        said = {
            "type": type(error).__name__,
            "message": str(error),
            "trace": "".join(traceback.format_exception(error)),
        }
        raise PeerRefused(limits.LAKECORE, verb, said) from error
