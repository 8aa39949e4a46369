"""lakecore as one of the engines, in the process of the tests."""

from __future__ import annotations

import json
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

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

    from lakecore.model.schema_change import Change
    from tests.interop.columns import Column, Json
    from tests.interop.engines import SchemaStep
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

    def overwrite(
        self,
        path: Path,
        changes: Commit,
        partition: Mapping[str, str] | None = None,
        *,
        dynamic: bool = False,
    ) -> None:
        """Put rows in the place of those of a partition, of those they lie in, or of all others."""
        with _refusing("overwrite"):
            lc.open_table(path).overwrite(_data(path, changes), partition, dynamic=dynamic)

    def clear(self, path: Path, partitions: Sequence[Mapping[str, str]] | None = None) -> None:
        """Remove the rows of some partitions; of all without any."""
        with _refusing("clear"):
            table = lc.open_table(path)
            if partitions is None:
                table.truncate()
            else:
                table.drop_partition(*partitions)

    def alter(self, path: Path, changes: Sequence[SchemaStep]) -> None:
        """Change the schema."""
        with _refusing("alter"):
            session = lc.connect(path.parent.parent)
            name = f"{path.parent.name.removesuffix('.db')}.{path.name}"
            session.alter_table(name, [_schema_change(change) for change in changes])

    def delete(self, path: Path, where: pl.Expr) -> None:
        """Take away the rows that match."""
        with _refusing("delete"):
            lc.open_table(path).delete(where)

    def update(self, path: Path, values: Mapping[str, Json | pl.Expr], where: pl.Expr) -> None:
        """Set columns of the rows that match."""
        with _refusing("update"):
            lc.open_table(path).update(values, where)

    def upsert(self, path: Path, rows: Sequence[Row], on: Sequence[str]) -> None:
        """Merge rows in: in the place of those with equal columns, or beside all others."""
        with _refusing("merge"):
            found = lc.open_table(path).merge(to_arrow(rows, _columns(path)), on)
            found.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(
        self,
        path: Path,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        where: str | pl.Expr | None = None,
    ) -> list[Row]:
        """The rows, of some columns if named, that a condition holds for."""
        with _refusing("read"):
            given = dict(options or {})
            branch = given.pop("branch", None)
            table = lc.open_table(path, branch=branch)
            if given:
                table = table.copy(given)
            known = {column.name: column for column in _columns(path, options)}
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

    def postpone(self, path: Path, changes: Commit) -> None:
        """Write changes to the postponed bucket."""
        with _refusing("write"):
            table = lc.open_table(path)
            with table.new_write() as writer:
                writer.write(_data(path, changes))
                table.commit(writer.prepare_commit())

    def branch(self, path: Path, name: str) -> None:
        """Create a branch from the tag of its name."""
        with _refusing("branch"):
            lc.open_table(path).create_branch(name, name)

    def write_on(self, path: Path, changes: Commit, branch: str) -> None:
        """Write changes to a branch."""
        with _refusing("write"):
            lc.open_table(path).branch(branch).write(_data(path, changes))

    def fast_forward(self, path: Path, branch: str) -> None:
        """Give the table the state of a branch."""
        with _refusing("fast-forward"):
            lc.open_table(path).fast_forward(branch)

    def repair_hints(self, path: Path) -> None:
        """Write again which snapshots are the first and the last."""
        lc.open_table(path).repair_hints()

    def expire(self, path: Path, retain: int) -> None:
        """Keep this many snapshots."""
        with _refusing("expire"):
            table = lc.open_table(path)
            table.expire_snapshots(retain_max=retain, retain_min=retain, max_deletes=1000)

    def rescale(self, path: Path) -> None:
        """Move all rows to as many buckets as the option says."""
        with _refusing("rescale"):
            lc.open_table(path).rescale()

    def cluster(self, path: Path, strategy: str, columns: Sequence[str]) -> None:
        """Sort the rows of all partitions."""
        with _refusing("cluster"):
            lc.open_table(path).compact(order_strategy=strategy, order_by=[*columns])

    def index(self, path: Path) -> None:
        """Give all files the indexes that the options ask for."""
        with _refusing("index"):
            lc.open_table(path).rewrite_file_index()


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


def _schema_change(change: SchemaStep) -> Change:
    verb, name, *given = change
    made: Any = lc.SchemaChange
    match verb:
        case "set":
            return cast("Change", made.set_option(name, given[0]))
        case "remove":
            return cast("Change", made.remove_option(name))
        case "describe":
            return cast("Change", made.update_comment(name))
        case "add":
            return cast("Change", made.add_column(name, given[0], None, _move(given[1])))
        case "drop":
            return cast("Change", made.drop_column(name))
        case "rename":
            return cast("Change", made.rename_column(name, given[0]))
        case "retype":
            return cast("Change", made.update_column_type(name, given[0]))
        case "nullable":
            return cast("Change", made.update_column_nullability(name, given[0]))
        case "comment":
            return cast("Change", made.update_column_comment(name, given[0]))
        case "default":
            return cast("Change", made.update_column_default_value(name, given[0]))
        case _:
            return cast("Change", made.update_column_position(name, _move(given[0])))


def _move(place: Any) -> lc.Move | None:
    if place is None:
        return None
    kind, *beside = place
    return cast("lc.Move", getattr(lc.Move, kind)(*beside))


def _columns(path: Path, options: Mapping[str, str] | None = None) -> list[Column]:
    """The columns as the schema file says, read without lakecore's help."""
    snapshot = _travelled(path, options or {})
    if snapshot is None:
        file = max((path / "schema").iterdir(), key=lambda file: int(file.name.split("-")[1]))
    else:
        file = path / "schema" / f"schema-{json.loads(snapshot.read_text())['schemaId']}"
    return list(columns_from_json(json.loads(file.read_text())["fields"]))


def _travelled(path: Path, options: Mapping[str, str]) -> Path | None:
    """The file of the snapshot or tag that options name."""
    if "scan.snapshot-id" in options:
        return path / "snapshot" / f"snapshot-{options['scan.snapshot-id']}"
    if "scan.tag-name" in options:
        return path / "tag" / f"tag-{options['scan.tag-name']}"
    if "scan.timestamp-millis" not in options:
        return None
    found = {int(file.name.split("-")[1]): file for file in (path / "snapshot").glob("snapshot-*")}
    times = {number: json.loads(file.read_text())["timeMillis"] for number, file in found.items()}
    then = int(options["scan.timestamp-millis"])
    return found[max(number for number, time in times.items() if time <= then)]


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
