"""A Paimon table as a Hive Metastore shows it: columns, parameters, formats, partition keys.

The names are those of Paimon's Hive catalog, so that Hive, Spark and Flink find the table
(https://paimon.apache.org/docs/master/hive/quick-start/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.hive.client import types
from lakecore.catalog.hive.type_names import hive_type
from lakecore.io.stores.open import locate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymetastore.hive_metastore.ttypes import FieldSchema, StorageDescriptor, Table

    from lakecore.catalog.identifier import Identifier
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field

__all__ = [
    "LOCATION",
    "HiveTables",
    "column_of",
    "is_external",
    "is_paimon",
    "location_of",
    "partition_keys",
    "tag_partition_key",
]

INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
SERDE = "org.apache.paimon.hive.PaimonSerDe"
STORAGE_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"
LOCATION = "paimon_location"
EXTERNAL, EXTERNAL_TABLE, MANAGED_TABLE = "EXTERNAL", "EXTERNAL_TABLE", "MANAGED_TABLE"
COMMENT_CHARACTERS_MAX = 255

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
        """Set the columns and parameters of a metastore's `table` to those of a new schema.

        Options that only the previous schema `before` has are removed.
        """
        gone = set(self._parameters(before)) - set(self._parameters(schema)) if before else set()
        kept = {key: text for key, text in table.parameters.items() if key not in gone}
        table.parameters = {**kept, **self._parameters(schema), **_ALWAYS}
        self.set_columns(table, schema)

    def set_columns(self, table: Table, schema: TableSchema) -> None:
        """Set the columns and the partition keys."""
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
        """Set the directory of the table's files."""
        if self.location_in_properties:
            table.parameters[LOCATION] = path
        else:
            table.sd.location = path

    def _parameters(self, schema: TableSchema) -> dict[str, str]:
        comment = {"comment": schema.comment} if schema.comment is not None else {}
        if not self.copies_properties:
            options = {
                key.removeprefix(_HIVE_PREFIX): text
                for key, text in schema.options.items()
                if key.startswith(_HIVE_PREFIX)
            }
            for key in ("partition.expiration-time", "data-file.path-directory"):
                if key in schema.options:
                    options[key] = schema.options[key]
            return {**options, **comment}
        keys = {
            "primary-key": schema.primary_keys,
            "partition": schema.partition_keys,
            "bucket-key": () if "bucket-key" in schema.options else schema.trimmed_primary_keys,
        }
        stated = {key: ",".join(names) for key, names in keys.items() if names}
        return {**schema.options, **stated, **comment}


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


def column_of(field: Field) -> FieldSchema:
    """A column in the metastore's form.

    Its comment is reduced to one line and the maximum length.
    """
    comment = field.description
    if comment is not None:
        comment = comment.replace("\n", " ").replace("\r", " ")
        if len(comment) > COMMENT_CHARACTERS_MAX:
            comment = comment[: COMMENT_CHARACTERS_MAX - 3] + "..."
    return types().FieldSchema(name=field.name, type=hive_type(field.type), comment=comment)
