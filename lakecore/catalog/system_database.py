"""The database `sys`: tables that show a whole catalog, for any catalog.

https://paimon.apache.org/docs/master/concepts/system-tables/#global-system-table

Each read opens every table of the catalog. A table that is dropped during the read is omitted.
Unknown values are null, as in Java: a filesystem catalog has no owners and no row counts. Secrets
are shown as `***`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import SYSTEM_DATABASE, Identifier
from lakecore.errors import NotFound
from lakecore.io.parallel import read_all
from lakecore.masking import masked_options
from lakecore.model.schema import TableSchema
from lakecore.model.types import Field, parse_type
from lakecore.table.system.system_columns import SystemSource, SystemTable
from lakecore.table.system.system_rows import Row, partition_sums, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore.catalog.names import Names
    from lakecore.table.handle import Table

    Load = Callable[[str], Table]

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "tables": {
        "database_name": "STRING",
        "table_name": "STRING",
        "table_type": "STRING",
        "partitioned": "BOOLEAN",
        "primary_key": "BOOLEAN",
        "owner": "STRING",
        "created_at": "BIGINT",
        "created_by": "STRING",
        "updated_at": "BIGINT",
        "updated_by": "STRING",
        "record_count": "BIGINT",
        "file_size_in_bytes": "BIGINT",
        "file_count": "BIGINT",
        "last_file_creation_time": "BIGINT",
    },
    "partitions": {
        "database_name": "STRING",
        "table_name": "STRING",
        "partition_name": "STRING",
        "record_count": "BIGINT",
        "file_size_in_bytes": "BIGINT",
        "file_count": "BIGINT",
        "last_file_creation_time": "BIGINT",
        "done": "BOOLEAN",
    },
    "all_table_options": {
        "database_name": "STRING",
        "table_name": "STRING",
        "key": "STRING",
        "value": "STRING",
    },
    "catalog_options": {"key": "STRING NOT NULL", "value": "STRING NOT NULL"},
}
GLOBAL_TABLES = tuple(_COLUMNS)
_SHOWS_OPTIONS = "catalog-options-table.enabled"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def global_tables(names: Names) -> tuple[str, ...]:
    """The names of the tables of `sys`, sorted."""
    hidden = names.option_texts.get(_SHOWS_OPTIONS, "true").strip().lower() == "false"
    return tuple(sorted(set(GLOBAL_TABLES) - ({"catalog_options"} if hidden else set())))


def has_global_table(names: Names, name: Identifier) -> bool:
    """Whether `sys` has a table of that name, which has no `$`, and whose case is ignored."""
    return str(name).lower() in {f"{SYSTEM_DATABASE}.{each}" for each in global_tables(names)}


def global_table(names: Names, load: Load, identifier: Identifier) -> SystemTable:
    """The table `sys.NAME` of a catalog. Raises NotFound, with the existing names.

    `load`: opens a table of the catalog by name.
    """
    name = str(identifier).removeprefix(f"{SYSTEM_DATABASE}.").lower()
    known = global_tables(names)
    if name not in known:
        raise NotFound("no such table", table=identifier, tables=list(known))
    columns = _COLUMNS[name]
    fields = tuple(
        Field(id=number, name=column, type=parse_type(text))
        for number, (column, text) in enumerate(columns.items())
    )
    schema = TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)
    rows = partial(_ROWS[name], names, load)
    source = SystemSource(table_schema=schema, load=lambda: table_of(rows(), schema))
    return SystemTable(f"{SYSTEM_DATABASE}.{name}", source)


def _tables(names: Names, load: Load) -> Iterator[tuple[str, str, Table]]:
    """Database, name and table of each table, sorted."""

    def opened(identifier: str) -> Table | None:
        try:
            return load(identifier)
        except NotFound:  # dropped since the listing
            return None

    for database in names.databases():
        found = names.tables(database) or ()
        tables = read_all(opened, [f"`{database}`.`{name}`" for name in found])
        for name, table in zip(found, tables, strict=True):
            if table is not None:
                yield database, name, table


def _table_rows(names: Names, load: Load) -> Iterator[Row]:
    for database, name, table in _tables(names, load):
        schema, options = table.context.schema, table.context.options.texts
        yield (
            database,
            name,
            options.get("type", "table"),
            bool(schema.partition_keys),
            bool(schema.primary_keys),
            options.get("owner"),
            _number(options.get("createdAt")),
            options.get("createdBy"),
            _number(options.get("updatedAt")),
            options.get("updatedBy"),
            None,
            None,
            None,
            None,
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _partition_rows(names: Names, load: Load) -> Iterator[Row]:
    for database, name, table in _tables(names, load):
        # If rows are filtered for the user, their partitions may be hidden from the user, too.
        if not table.context.schema.partition_keys or table.options.query_auth_enabled:
            continue
        context = table.context
        snapshot = context.history.latest_snapshot()
        found = {} if snapshot is None else partition_sums(context, snapshot)
        labels = {
            partition: "/".join(f"{key}={text}" for key, text in spec.items())
            for partition in found
            for spec in [context.partitions.spec(partition)]
        }
        for partition in sorted(found, key=labels.__getitem__):
            *sums, newest = found[partition]
            yield database, name, labels[partition], *sums, _epoch_ms(newest), False


def _epoch_ms(local: datetime | None) -> int | None:
    """A wall clock time in the local time zone, as milliseconds since 1970."""
    return None if local is None else (local.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def _option_rows(names: Names, load: Load) -> Iterator[Row]:
    for database, name, table in _tables(names, load):
        options = {**table.context.schema.options, "path": table.path}
        for key, value in masked_options(options).items():
            yield database, name, key, str(value)


def _catalog_rows(names: Names, load: Load) -> Iterator[Row]:
    del load
    for key, value in masked_options(names.option_texts).items():
        yield key, str(value)


_ROWS: Mapping[str, Callable[[Names, Load], Iterator[Row]]] = {
    "tables": _table_rows,
    "partitions": _partition_rows,
    "all_table_options": _option_rows,
    "catalog_options": _catalog_rows,
}
