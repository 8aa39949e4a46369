"""The views of a Hive Metastore, as Paimon's Hive catalog stores them.

A view is a table of type VIRTUAL_VIEW with the query as its text; options and comment are
parameters. There is one query, so a view has no dialects.

The metastore also holds views of other engines (Hive, Spark, Trino). Such views are listed, but
neither read nor changed, because their queries may mean something else in lakecore's SQL.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.catalog.metastore import LEFT, copied_properties
from lakecore.catalog.views import (
    AddDialect,
    DropDialect,
    UpdateDialect,
    View,
    ViewChange,
    changed_view,
)
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.io.hive.client import HiveClient, types
from lakecore.io.hive.columns import column_of, hive_type, paimon_type
from lakecore.io.stores.open import locate
from lakecore.model.types import Field
from lakecore.options import below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymetastore.hive_metastore.ttypes import StorageDescriptor, Table

    from lakecore.catalog.identifier import Identifier
    from lakecore.io.ambient import Ambient
    from lakecore.model.schema import TableSchema


# --- table rows ----------------------------------------------------------------------------------
# A Paimon table as a Hive Metastore shows it: columns, parameters, formats, partition keys.
#
# Names are chosen as by Paimon's Hive catalog, so that Hive, Spark and Flink find the table
# (https://paimon.apache.org/docs/master/hive/quick-start/).

INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
SERDE = "org.apache.paimon.hive.PaimonSerDe"
STORAGE_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"
LOCATION = "paimon_location"
EXTERNAL, EXTERNAL_TABLE, MANAGED_TABLE = "EXTERNAL", "EXTERNAL_TABLE", "MANAGED_TABLE"

ICEBERG_LOCATION = "metadata_location"

_HIVE_PREFIX = "hive."
_INT_MAX = 2_147_483_647
_ALWAYS = {"table_type": "PAIMON", "storage_handler": STORAGE_HANDLER}


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveTables:
    """Builds the metastore's form of a table, according to the options of the catalog."""

    copies_properties: bool
    location_in_properties: bool
    external: bool
    owner: str

    def new_table(self, name: Identifier, path: str, schema: TableSchema, *, now_ms: int) -> Table:
        """The metastore's form of a new table with this schema."""
        parameters = {**self._parameters(schema), **_ALWAYS}
        external = self.external or parameters.get(EXTERNAL, "").upper() == "TRUE"
        table = types().Table(
            tableName=name.table,
            dbName=name.database,
            owner=self.owner,
            createTime=now_ms // 1000,
            lastAccessTime=now_ms // 1000,
            retention=_INT_MAX,
            sd=_descriptor(),
            partitionKeys=[],
            parameters={**parameters, **({EXTERNAL: "TRUE"} if external else {})},
            tableType=EXTERNAL_TABLE if external else MANAGED_TABLE,
        )
        self.set_columns(table, schema)
        self.set_location(table, path)
        return table

    def set_schema(self, table: Table, schema: TableSchema, before: TableSchema | None) -> None:
        """Set the columns and parameters of a metastore's `table` by a new schema.

        Options that only the previous schema `before` has are removed.
        """
        gone = set(self._parameters(before)) - set(self._parameters(schema)) if before else set()
        kept = {key: text for key, text in table.parameters.items() if key not in gone}
        # The type tells Iceberg's readers that they can use the entry, too.
        always = _ALWAYS if ICEBERG_LOCATION not in kept else {**_ALWAYS, "table_type": "ICEBERG"}
        table.parameters = {**kept, **self._parameters(schema), **always}
        self.set_columns(table, schema)

    def set_columns(self, table: Table, schema: TableSchema) -> None:
        keys = partition_keys(schema)
        columns = [field for field in schema.fields if field.name not in keys]
        table.sd.cols = [column_of(field) for field in columns]
        table.partitionKeys = [
            types().FieldSchema(name=key, type=hive_type(field.type), comment=field.description)
            for key in keys
            for field in [schema.field(key)]
        ]
        tag_key = tag_partition_key(schema)
        if tag_key is not None:
            table.partitionKeys = [types().FieldSchema(name=tag_key, type="string", comment=None)]

    def set_location(self, table: Table, path: str) -> None:
        if self.location_in_properties:
            table.parameters[LOCATION] = path
        else:
            table.sd.location = path

    def _parameters(self, schema: TableSchema) -> dict[str, str]:
        """The copied parts of a schema, without options that say where files are."""
        copied = self._copied(schema)
        return {key: text for key, text in copied.items() if key not in (LOCATION, LEFT)}

    def _copied(self, schema: TableSchema) -> dict[str, str]:
        comment = {"comment": schema.comment} if schema.comment is not None else {}
        if not self.copies_properties:
            options = below(schema.options, _HIVE_PREFIX)
            for key in ("partition.expiration-time", "data-file.path-directory"):
                if key in schema.options:
                    options[key] = schema.options[key]
            return {**options, **comment}
        return {**copied_properties(schema), **comment}


def partition_keys(schema: TableSchema) -> tuple[str, ...]:
    """The partition keys that the metastore shows; empty unless it lists the table's partitions."""
    listed = schema.parsed_options().metastore_partitioned_table
    return schema.partition_keys if listed else ()


def tag_partition_key(schema: TableSchema) -> str | None:
    """The partition key by which the metastore lists the tags; None if it lists no tags."""
    return schema.parsed_options().metastore_tag_to_partition


def is_paimon(table: Table) -> bool:
    """Whether a table in the metastore is a Paimon table."""
    return (
        table.sd is not None
        and table.sd.inputFormat == INPUT_FORMAT
        and table.sd.outputFormat == OUTPUT_FORMAT
    )


def is_external(table: Table) -> bool:
    """Whether a table in the metastore is external, so that dropping it keeps its files."""
    return bool(table.tableType == EXTERNAL_TABLE)


def location_of(parameters: Mapping[str, str] | None, location: str | None) -> str | None:
    """The directory of a table or database in the metastore, in lakecore's form.

    None if unknown.
    """
    stated = (parameters or {}).get(LOCATION) or location
    return locate(stated) if stated else None


def _descriptor() -> StorageDescriptor:
    kinds = types()
    return kinds.StorageDescriptor(
        inputFormat=INPUT_FORMAT,
        outputFormat=OUTPUT_FORMAT,
        serdeInfo=kinds.SerDeInfo(serializationLib=SERDE, parameters={}),
        compressed=False,
        numBuckets=0,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


# --- views ---------------------------------------------------------------------------------------

_VIRTUAL_VIEW = "VIRTUAL_VIEW"
_COMMENT = "comment"
_INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_SERDE = "org.apache.hadoop.hive.serde2.MetadataTypedColumnsetSerDe"
_SPARK = "spark.sql."
_KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


class Tables(Protocol):
    """The part of `HiveMetastore` that views need."""

    @property
    def client(self) -> HiveClient: ...
    @property
    def ambient(self) -> Ambient: ...
    def all_tables(self, database: str) -> list[Table]: ...
    def any_table(self, name: Identifier) -> Table | None: ...
    def has_database(self, name: str) -> bool: ...
    def check_table_name(self, name: Identifier) -> None: ...
    def lock(self, name: Identifier) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveViews:
    """The views of one metastore (`catalog/views.py`)."""

    metastore: Tables
    owner: str

    def names(self, database: str) -> tuple[str, ...]:
        found = self.metastore.all_tables(database)
        return tuple(str(table.tableName) for table in found if is_view(table))

    def find(self, name: Identifier) -> View | None:
        table = self._view(name)
        return None if table is None else _read(table)

    def create(self, name: Identifier, view: View) -> bool:
        self._check_new(name, view)
        try:
            self.metastore.client.create_table(self._table(name, view))
        except AlreadyExists:
            return False
        return True

    def replace(self, name: Identifier, view: View) -> bool:
        self._check_new(name, view)
        with self.metastore.lock(name):
            table = self._view(name)
            if table is None:
                with suppress(AlreadyExists):
                    self.metastore.client.create_table(self._table(name, view))
                    return True
                table = self._view(name)
            if table is None:
                return False
            _set(table, view)
            self._alter(name, table)
        return True

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        for change in changes:
            if isinstance(change, AddDialect | UpdateDialect | DropDialect):
                raise _no_dialects(name, change.dialect)
        with self.metastore.lock(name):
            table = self._view(name)
            if table is None:
                return False
            table.parameters = _parameters(changed_view(_read(table), changes, name))
            self._alter(name, table)
        return True

    def drop(self, name: Identifier) -> bool:
        if self._view(name) is None:
            return False
        return self.metastore.client.drop_table(name.database, name.table)

    def rename(self, source: Identifier, target: Identifier) -> None:
        self.metastore.check_table_name(target)
        # The lock prevents changes between the read of the view and its write with a new name.
        with self.metastore.lock(source):
            self._rename(source, target)

    def _rename(self, source: Identifier, target: Identifier) -> None:
        table = self._view(source)
        if table is None:
            raise NotFound("no such view", view=source)
        if not self.metastore.has_database(target.database):
            raise NotFound("no such database", database=target.database)
        if self.metastore.any_table(target) is not None:
            raise AlreadyExists("a table or view has the new name", view=target)
        table.dbName, table.tableName = target.database, target.table
        try:
            self._alter(source, table)
        except InvalidRequest as error:
            if self.metastore.any_table(target) is None:
                raise
            raise AlreadyExists("a table or view has the new name", view=target) from error

    def _alter(self, name: Identifier, table: Table) -> None:
        client = self.metastore.client
        client.alter_table(name.database, name.table, table, _KEEP_STATISTICS)

    def _view(self, name: Identifier) -> Table | None:
        """The metastore's form of a view; None if there is none.

        Raises Unsupported for the view of another engine.
        """
        table = self.metastore.any_table(name)
        if table is None or not is_view(table):
            return None
        if not is_paimon_view(table):
            raise Unsupported(
                "the view belongs to another engine: its query is in the SQL of that engine",
                view=name,
            )
        return table

    def _check_new(self, name: Identifier, view: View) -> None:
        self.metastore.check_table_name(name)
        if not self.metastore.has_database(name.database):
            raise NotFound("no such database", database=name.database)
        for dialect, query in view.dialects.items():
            if query != view.query:
                raise _no_dialects(name, dialect)

    def _table(self, name: Identifier, view: View) -> Table:
        now = self.metastore.ambient.now_ms() // 1000
        table = types().Table(
            tableName=name.table,
            dbName=name.database,
            owner=self.owner,
            createTime=now,
            lastAccessTime=0,
            retention=0,
            sd=_view_descriptor(),
            partitionKeys=[],
            tableType=_VIRTUAL_VIEW,
        )
        _set(table, view)
        return table


def is_view(table: Table) -> bool:
    """Whether a table in the metastore is a view, of any engine."""
    return bool(table.tableType == _VIRTUAL_VIEW)


def is_paimon_view(table: Table) -> bool:
    """Whether a view was probably created by Paimon.

    Paimon does not mark its views, so views of other engines are recognised and excluded: Hive and
    Trino use other formats, Flink's Hive catalog expands the text of the query, and Spark adds its
    own options.
    """
    return (
        is_view(table)
        and table.sd is not None
        and table.sd.inputFormat == _INPUT_FORMAT
        and table.viewOriginalText == table.viewExpandedText
        and bool(table.viewExpandedText)
        and not any(key.startswith(_SPARK) for key in table.parameters or {})
    )


def _set(table: Table, view: View) -> None:
    table.parameters = _parameters(view)
    table.viewOriginalText = table.viewExpandedText = view.query
    table.sd.cols = [column_of(field) for field in view.fields]


def _read(table: Table) -> View:
    options = dict(table.parameters or {})
    comment = options.pop(_COMMENT, None)
    fields = tuple(
        Field(
            id=number,
            name=column.name,
            type=paimon_type(column.type),
            description=column.comment,
        )
        for number, column in enumerate(table.sd.cols)
    )
    query = str(table.viewExpandedText)
    return View(query=query, fields=fields, comment=comment, options=options)


def _parameters(view: View) -> dict[str, str]:
    comment = {} if view.comment is None else {_COMMENT: view.comment}
    return {**view.options, **comment}


def _view_descriptor() -> StorageDescriptor:
    kinds = types()
    serde = kinds.SerDeInfo(serializationLib=_SERDE, parameters={"serialization.format": "1"})
    return kinds.StorageDescriptor(
        inputFormat=_INPUT_FORMAT,
        outputFormat=_OUTPUT_FORMAT,
        serdeInfo=serde,
        compressed=False,
        numBuckets=-1,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _no_dialects(name: Identifier, dialect: str) -> Unsupported:
    return Unsupported(
        "a Hive Metastore stores one query of a view, and no dialects", view=name, dialect=dialect
    )
