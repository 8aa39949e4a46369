"""A destination of dlt that loads each file of a pipeline as one commit.

dlt calls `_Loads.__call__` with the path of a Parquet file and the schema of its table:

1. `_checked` turns the hints of dlt into a table with keys, or refuses them.
2. The table is created, or found; new columns are added to it.
3. The rows become one commit: added, or updated by key. Of the files that replace a table, the
   first one of a load overwrites, and the others add.

The commit user is the load with the file, so that a file that dlt loads again counts once.
Files of one table follow each other; files of several tables are loaded side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecore.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.loads import LoadedTable, opened, table_name
from lakecore.model.rows import ROW_KIND
from lakecore.session import Session, connect

try:
    import dlt
    from dlt.common.destination.exceptions import (
        DestinationTerminalException,
        DestinationTransientException,
    )
    from dlt.common.normalizers.naming.snake_case import NamingConvention
    from dlt.common.storages.load_package import destination_state
    from dlt.common.storages.load_storage import ParsedLoadJobFileName
except ImportError as error:
    raise Unsupported(
        "a destination of dlt needs a package that is not installed",
        package="dlt",
        install="pip install 'lakecore[dlt]'",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from lakecore.options import OptionValue
    from lakecore.table.handle import Table

__all__ = ["destination"]

_DLT_PREFIX = "_dlt"
_AGAIN = (CommitConflict, CommitUnknown, NotFound, StorageError)
"""Errors after which dlt loads the file again. A table that is dropped meanwhile is NotFound."""
_MERGES = (None, "delete-insert", "upsert")
_NO_HINTS = ("dedup_sort", "merge_key")


def destination(
    warehouse: str | PathLike[str] | Mapping[str, OptionValue],
    database: str,
    *,
    options: Mapping[str, Mapping[str, OptionValue]] | None = None,
    max_table_nesting: int = 0,
    dlt_columns: bool = False,
    name: str = "lakecore",
) -> object:
    """A destination for `dlt.pipeline`: it loads into the tables of one database.

    `warehouse` is what `lakecore.connect` takes; it is created if it does not exist. `options` are
    the table options of each table by its name. Nested data is stored as JSON strings; with
    `max_table_nesting`, dlt makes tables of it, which needs `dlt_columns`. With `dlt_columns`, the
    columns `_dlt_id`, `_dlt_load_id` and those of nested tables are kept; otherwise they are
    dropped. `name` is the section of dlt's configuration.

    Raises NotFound and the other errors of `connect`, and InvalidRequest for wrong arguments, such
    as options of a name that dlt gives to no table: it writes `MyTable` as `my_table`.
    During a load, lakecore's errors are dlt's: one that another try may cure is transient.

        dlt.pipeline("shop", destination=lakecore.dlt.destination("/data/warehouse", "shop"))
    """
    if max_table_nesting and not dlt_columns:
        raise InvalidRequest(
            "tables of nested data refer to their rows by the columns of dlt: dlt_columns=True",
            max_table_nesting=max_table_nesting,
        )
    for each in options or {}:
        if (written := NamingConvention().normalize_identifier(each)) != each:
            raise InvalidRequest(
                "dlt gives no table such a name, so its options would be lost",
                table=each,
                dlt_writes=written,
            )
    loads = _Loads(
        session=connect(warehouse, create=True),
        database=database,
        options={} if options is None else options,
        dlt_columns=dlt_columns,
    )

    def load(items: str, table: Mapping[str, object]) -> None:
        loads(items, table)

    made = dlt.destination(
        load,
        batch_size=0,  # a call for each file, with its path
        loader_file_format="parquet",
        name=name,
        naming_convention="snake_case",
        skip_dlt_columns_and_tables=not dlt_columns,
        max_table_nesting=max_table_nesting,
        loader_parallelism_strategy="table-sequential",
    )
    return cast("object", made())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loads:
    session: Session
    database: str
    options: Mapping[str, Mapping[str, OptionValue]]
    dlt_columns: bool

    def __call__(self, path: str, hints: Mapping[str, object]) -> None:
        """Load a file. Raises the errors of dlt."""
        if str(hints["name"]).startswith(_DLT_PREFIX):
            return
        try:
            self._load(path, hints)
        except _AGAIN as error:
            raise DestinationTransientException(str(error)) from error
        except LakecoreError as error:
            raise DestinationTerminalException(str(error)) from error

    def _load(self, path: str, hints: Mapping[str, object]) -> None:
        name = table_name(self.database, str(hints["name"]))
        wanted = _checked(name, hints, self.options.get(str(hints["name"]), {}))
        disposition = hints["write_disposition"]
        if disposition == "replace" and self.session.table_exists(name):
            schema = self.session.get_table(name).schema
            wanted = LoadedTable(
                name=name,
                primary_keys=schema.primary_keys,
                partition_keys=schema.partition_keys,
                options=wanted.options,
            )
        file = pq.ParquetFile(path)
        names = [
            each
            for each in file.schema_arrow.names
            if self.dlt_columns or not each.startswith(_DLT_PREFIX)
        ]
        if ROW_KIND in names:
            raise InvalidRequest(
                "the column name is reserved; a column with the hint hard_delete deletes rows",
                column=ROW_KIND,
                table=name,
            )
        schema = pa.schema(
            each.with_nullable(each.name not in wanted.primary_keys)
            for each in map(file.schema_arrow.field, names)
        )
        deletes = _columns(hints, "hard_delete") if disposition == "merge" else ()
        job = _Job.of(path, name)
        rows = _batches(file, schema, *deletes[:1])
        with opened(self.session, wanted, schema) as table:
            if disposition == "replace" and job.is_first(table):
                table.overwrite(
                    rows,
                    dynamic=False,
                    evolve_schema=True,
                    commit_user=job.user,
                    identifier=1,
                )
            else:
                table.write(rows, evolve_schema=True, commit_user=job.user, identifier=1)
        # dlt stores this with the load, so that a load that goes on after a crash knows it.
        destination_state()[job.replaced] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One file of a load.

    Each is a commit user of its own: numbers of one user must grow, and files have no order.
    `replaced` is where the load remembers that the table is replaced.
    """

    load: str
    file: str
    replaced: str

    @classmethod
    def of(cls, path: str, table: str) -> _Job:
        """The job of a path `.../LOAD/started_jobs/TABLE.FILE.RETRIES.parquet`."""
        place = PurePath(path)
        return cls(
            load=f"dlt-{place.parents[1].name}-",
            file=ParsedLoadJobFileName.parse(place.name).file_id,
            replaced=f"lakecore.replaced.{table}",
        )

    @property
    def user(self) -> str:
        return self.load + self.file

    def is_first(self, table: Table) -> bool:
        """Whether no other file of this load is in the table yet.

        The state of the load is stored after the commit: after a crash between the two, only the
        snapshots know.
        """
        if self.replaced in destination_state():
            return False
        users = set(table.inspect.snapshots()["commit_user"]) - {self.user}
        return not any(user.startswith(self.load) for user in users)


def _checked(
    name: str, hints: Mapping[str, object], options: Mapping[str, OptionValue]
) -> LoadedTable:
    """The table that the hints of dlt describe. Raises Unsupported for any other hint."""
    disposition, strategy = hints["write_disposition"], hints.get("x-merge-strategy")
    keys = _columns(hints, "primary_key")
    if disposition == "merge":
        if strategy not in _MERGES:
            raise Unsupported(
                "unknown merge strategy", strategy=strategy, known=list(_MERGES[1:]), table=name
            )
        if not keys:
            raise InvalidRequest("the disposition merge needs a primary_key", table=name)
        if "parent" in hints:
            raise Unsupported(
                "nested data of merged rows cannot be in a table of its own; set "
                "max_table_nesting=0 to store it as JSON",
                table=name,
            )
        for hint in _NO_HINTS:
            if _columns(hints, hint):
                raise Unsupported(
                    "a hint of dlt is not supported; for the order of rows, name a column by the "
                    "table option sequence.field",
                    hint=hint,
                    columns=_columns(hints, hint),
                    table=name,
                )
    return LoadedTable(
        name=name,
        primary_keys=() if disposition == "append" else keys,
        partition_keys=_columns(hints, "partition"),
        options=options,
    )


def _columns(hints: Mapping[str, object], hint: str) -> tuple[str, ...]:
    """The columns that have a hint."""
    columns = cast("Mapping[str, Mapping[str, object]]", hints["columns"])
    return tuple(name for name, column in columns.items() if column.get(hint))


def _batches(
    file: pq.ParquetFile, schema: pa.Schema, deletes: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at least one batch. `deletes` is a column: which to delete."""
    empty = True
    for batch in file.iter_batches(columns=schema.names):
        empty = False
        rows = batch.select(schema.names).cast(schema)
        if deletes is not None:
            rows = rows.append_column(ROW_KIND, _kinds(rows.column(deletes)))
        yield rows
    if empty:
        yield pa.RecordBatch.from_pylist([], schema)


def _kinds(flags: pa.Array) -> pa.Array:
    """-D for true; of another type than boolean, for every value that is not null. Else +I."""
    gone = pc.fill_null(flags, False) if pa.types.is_boolean(flags.type) else pc.is_valid(flags)
    return pc.if_else(gone, "-D", "+I")
