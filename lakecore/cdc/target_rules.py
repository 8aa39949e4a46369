"""The rules of an action for its targets: their names, columns, keys and options.

A target has the columns of its source, then the computed columns, then the metadata columns. Its
primary key is the one that the action states, or else the source's. Columns that a source no longer
has become nullable, because new rows have no value for them.

When a pipeline starts for the first time, an existing target is checked: it must have every column,
with a type that holds the values, and the same primary key. Then it gets the action's table
options.

See https://paimon.apache.org/docs/master/cdc-ingestion/overview/
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.columns.computed import ComputedColumn, append_computed, computed_fields
from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.evolution import (
    Conversion,
    check_compatible,
    conversion,
    named_as,
    schema_changes,
)
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange
from lakecore.model.types import Field, arrow_type, parse_type, with_nullable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.io.ambient import Ambient
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

__all__ = ["METADATA_TYPES", "TargetRules"]

log = logging.getLogger("lakecore.cdc")

METADATA_TYPES = {
    "database_name": "STRING NOT NULL",
    "table_name": "STRING NOT NULL",
    "schema_name": "STRING NOT NULL",
    "op_ts": "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "timestamp_type": "STRING",
}
"""The metadata columns of all sources, with Paimon's types."""


@dataclass(frozen=True, kw_only=True)
class TargetRules:
    """The rules of one action. They implement the protocol `Rules` of the sink.

    - `route`: returns the target of a source table, or None if the table is left out;
    - `primary_keys`: replace the primary key of the source; with `falls_back`, only for tables that
      have all of these columns;
    - `partition_keys_of`: partition keys by source table, which replace `partition_keys` for this
      table;
    - `takes_source_keys`: whether the source's primary key is taken if none is given;
    - `lenient`: whether a computed column is null if the column that it refers to is missing;
    - `widens_existing`: whether missing columns are added to a table that exists before the
      pipeline; otherwise such a table is refused.
    """

    route: Callable[[SourceTable], str | None]
    ambient: Ambient
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    partition_keys_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    table_conf: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[ComputedColumn, ...] = ()
    metadata: tuple[str, ...] = ()
    metadata_prefix: str = ""
    mapping: TypeMapping = DEFAULT_MAPPING
    takes_source_keys: bool = True
    falls_back: bool = False
    case_sensitive: bool = True
    lenient: bool = False
    widens_existing: bool = False
    made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        unknown = [name for name in self.metadata if name not in METADATA_TYPES]
        if unknown:
            raise InvalidRequest(
                "unknown metadata column", columns=unknown, known=list(METADATA_TYPES)
            )

    def target(self, table: SourceTable) -> str | None:
        """The target as `database.table`; None if the table is left out."""
        return self.route(table)

    def shape(self, table: SourceTable, schema: SourceSchema) -> SourceSchema:
        """The columns of the target. Raises InvalidRequest for keys that are not columns."""
        own = self._cased(schema)
        fields = [*own.fields]
        fields += computed_fields(self.computed, fields, lenient=self.lenient)
        for name in self.metadata:
            kind = parse_type(METADATA_TYPES[name])
            fields.append(Field(id=len(fields), name=self.metadata_prefix + name, type=kind))
        names = [each.name for each in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidRequest(
                "columns of the target have one name", table=str(table), columns=twice
            )
        key = self._key(table, own, names)
        numbered = (
            replace(
                each,
                id=number,
                type=with_nullable(each.type, nullable=each.nullable and each.name not in key),
            )
            for number, each in enumerate(fields)
        )
        return SourceSchema(
            fields=tuple(numbered),
            primary_key=key,
            states_key=own.states_key and self.takes_source_keys and not self.primary_keys,
            comment=schema.comment,
            may_be_flags=own.may_be_flags,
            exact=own.exact,
            notes=own.notes,
        )

    def rows(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch with the columns of `shape`."""
        schema = self.shape(batch.table, batch.schema)
        own = self._cased(batch.schema)
        rows = batch.rows.rename_columns(list(own.names))
        if self.computed:
            now_ms = self.ambient.local_wall_clock_ms()
            rows = append_computed(
                rows, self.computed, own.fields, now_ms=now_ms, lenient=self.lenient
            )
        for name in self.metadata:
            kind = arrow_type(parse_type(METADATA_TYPES[name]))
            given = batch.metadata
            values = (
                given.column(name).cast(kind)
                if given is not None and name in given.column_names
                else pa.nulls(rows.num_rows, kind)
            )
            rows = rows.append_column(self.metadata_prefix + name, values)
        return replace(batch, schema=schema, rows=rows, metadata=None)

    def create(
        self,
        catalog: Catalog,
        table: SourceTable,
        target: str,
        schema: SourceSchema,
        *,
        first: bool,
    ) -> None:
        """Create the target, or check the existing one.

        Raises InvalidRequest for a key whose type makes one key of several keys of the source.
        """
        if not catalog.table_exists(target):
            partition_keys = self._partition_keys(table, schema, target)
            catalog.create_table(
                target,
                {each.name: each for each in schema.fields},
                primary_keys=schema.primary_key,
                partition_keys=partition_keys,
                options=dict(self.table_conf),
                comment=schema.comment,
                ignore_if_exists=True,
            )
            self.made.add(target)
            for note in schema.notes:
                log.warning("type of a column. table=%s column=%s", target, note)
            return
        found = catalog.get_table(target).context.schema
        schema = named_as(found.names, schema)
        _check_exact(found, schema, table=target)
        if not first:
            return
        if target in self.made:
            # This only checks that the changes are possible. The sink, which may have the table
            # open, makes them before the first row that needs them.
            self.changes(found, schema)
            return
        if not self.widens_existing:
            check_compatible(found, schema, name=target)
        _check_key(found, schema, table=target)
        changes = [
            SchemaChange.set_option(key, value)
            for key, value in self.table_conf.items()
            if found.options.get(key) != value
        ]
        if changes:
            catalog.alter_table(target, changes)

    def changes(self, schema: TableSchema, given: SourceSchema) -> Sequence[Change]:
        """The schema changes that the target needs for rows with these columns.

        Raises InvalidRequest if the rows have another primary key than the target: two different
        rows of the source could then replace each other.
        """
        given = named_as(schema.names, given)
        _check_key(schema, given)
        changes = schema_changes(schema, given, self.mapping)
        for column in schema.fields:
            gone = column.name not in given.names
            if gone and not column.nullable and column.name not in schema.primary_keys:
                changes.append(SchemaChange.update_column_nullability([column.name], True))
        return changes

    def _cased(self, schema: SourceSchema) -> SourceSchema:
        if self.case_sensitive:
            return schema
        return replace(
            schema,
            fields=tuple(replace(each, name=each.name.lower()) for each in schema.fields),
            primary_key=tuple(name.lower() for name in schema.primary_key),
            may_be_flags=frozenset(name.lower() for name in schema.may_be_flags),
            exact=frozenset(name.lower() for name in schema.exact),
        )

    def _key(self, table: SourceTable, own: SourceSchema, names: Sequence[str]) -> tuple[str, ...]:
        missing = [name for name in self.primary_keys if name not in names]
        if self.primary_keys and not missing:
            return self.primary_keys
        if missing and not self.falls_back:
            raise InvalidRequest(
                "columns of --primary_keys are not there",
                table=str(table),
                missing=missing,
                columns=list(names),
            )
        return own.primary_key if self.takes_source_keys else ()

    def _partition_keys(
        self, table: SourceTable, schema: SourceSchema, target: str
    ) -> tuple[str, ...]:
        """The partition keys of a new target, which must be columns.

        With `falls_back`, a table without these columns has no partitions.
        """
        stated = self.partition_keys_of.get(table.name, self.partition_keys)
        keys = stated if self.case_sensitive else tuple(name.lower() for name in stated)
        missing = [name for name in keys if name not in schema.names]
        if missing and self.falls_back:
            log.info("table without partitions. table=%s missing=%s", target, missing)
            return ()
        if missing:
            raise InvalidRequest(
                "columns of --partition_keys are not there",
                table=target,
                missing=missing,
                columns=list(schema.names),
            )
        return keys


def _check_exact(have: TableSchema, given: SourceSchema, **facts: object) -> None:
    """Raise InvalidRequest if a key column has a type that cannot hold each value of the source."""
    for column in given.fields:
        if column.name not in given.exact or column.name not in have.primary_keys:
            continue
        kind = have.by_name[column.name].type
        if conversion(kind, column.type) is Conversion.REFUSE:
            raise InvalidRequest(
                "the type of a key makes one row of several rows of the source, or the source "
                "has changed it. To mirror the table again, drop it and start a new pipeline",
                **facts,
                column=column.name,
                type=kind,
                source=column.type,
            )


def _check_key(have: TableSchema, given: SourceSchema, **facts: object) -> None:
    """Raise InvalidRequest if the source states another primary key than the table has."""
    states = given.primary_key or given.states_key
    if states and set(given.primary_key) != set(have.primary_keys):
        raise InvalidRequest(
            "the table has another primary key than the source; --primary_keys states the key of "
            "the table",
            **facts,
            primary_key=have.primary_keys,
            source=given.primary_key,
        )
