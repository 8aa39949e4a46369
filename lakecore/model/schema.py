"""A table's schema: columns with ids, keys, options; and the rules by which it changes.

INVARIANT: a field id is used once. `highest_field_id` never decreases, so a column that is dropped
and added again with the same name is a new column: it is null in old files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lakecore.display import CELL_MAX, one_line, rows_html, rows_text
from lakecore.errors import InvalidRequest
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Row,
    Variant,
    arrow_schema,
)
from lakecore.options import NEVER_STORED, TableOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


SCHEMA_VERSION = 3
_SOURCE_TABLE = "blob-descriptor.source-table"


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The content of a schema file.

    `id` numbers the table's schemas from 0; `version` is the format's.
    """

    id: int
    fields: tuple[Field, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    time_ms: int = 0
    version: int = SCHEMA_VERSION

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.fields)
        return f"TableSchema({self.id}: {one_line(columns, 4 * CELL_MAX)})"

    def __str__(self) -> str:
        """A line for each column: its name, type, key, comment."""
        return f"{self._title}\n{rows_text(self._shown(), '  ', 'columns')}"

    def _repr_html_(self) -> str:
        return rows_html(
            self._title, ("column", "type", "key", "comment"), self._shown(), "columns"
        )

    @property
    def _title(self) -> str:
        count = len(self.fields)
        return f"schema {self.id}, {count} column{'' if count == 1 else 's'}"

    def _shown(self) -> list[tuple[str, str, str, str]]:
        def keys(name: str) -> str:
            primary = "primary key" if name in self.primary_keys else ""
            partition = "partition key" if name in self.partition_keys else ""
            return ", ".join(filter(None, (primary, partition)))

        return [
            (column.name, str(column.type), keys(column.name), column.description or "")
            for column in self.fields
        ]

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Fields by column name."""
        return {column.name: column for column in self.fields}

    @cached_property
    def by_id(self) -> Mapping[int, Field]:
        """Top-level fields by id."""
        return {column.id: column for column in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.fields)

    def field(self, name: str) -> Field:
        """The column of that name. Raises InvalidRequest, listing the known names."""
        found = self.by_name.get(name)
        if found is None:
            raise InvalidRequest("unknown column", column=name, columns=self.names)
        return found

    @cached_property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The primary key without the partition keys, in primary-key order."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of the trimmed primary key; empty for an append table."""
        return tuple(self.by_name[name] for name in self.trimmed_primary_keys)

    @cached_property
    def partition_fields(self) -> tuple[Field, ...]:
        """The fields of the partition keys, in declared order."""
        return tuple(self.by_name[name] for name in self.partition_keys)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of rows that reads return and writes accept."""
        return arrow_schema(self.fields)

    @property
    def stated_options(self) -> dict[str, str]:
        """The stored options, plus defaults of the old format version that have changed since.

        Options that only the caller may give do not count (`NEVER_STORED`).
        """
        defaults: dict[str, str] = {}
        if self.version <= 1:
            defaults["bucket"] = "1"
        if self.version <= 2:
            defaults["file.format"] = "orc"
        stored = {key: text for key, text in self.options.items() if key not in NEVER_STORED}
        return defaults | stored

    @property
    def effective_options(self) -> dict[str, str]:
        """The stated options, except those of the storage that BLOB descriptors point to.

        Such options name the service that gets the caller's credentials, so only the caller gives
        them.
        """
        return {
            key: text
            for key, text in self.stated_options.items()
            if key == _SOURCE_TABLE or not key.startswith("blob-descriptor.")
        }

    def parsed_options(
        self, dynamic: Mapping[str, str] | None = None, *, table: str = ""
    ) -> TableOptions:
        """The typed options of the table; `dynamic` options override those of the schema."""
        return parse_options(self.effective_options | dict(dynamic or {}), table=table)


def number_fields(fields: Sequence[Field], start: int = 0) -> tuple[tuple[Field, ...], int]:
    """The fields with new ids, depth-first from `start`, and the next free id."""
    out: list[Field] = []
    for column in fields:
        own = start
        data_type, start = number_type(column.type, start + 1)
        out.append(replace(column, id=own, type=data_type))
    return tuple(out), start


def number_type(data_type: DataType, start: int) -> tuple[DataType, int]:
    """The type with new ids for the fields inside it, from `start`, and the next free id."""
    match data_type:
        case Atomic() | Variant():
            return data_type, start
        case Array() | Multiset():
            element, start = number_type(data_type.element, start)
            return replace(data_type, element=element), start
        case Map():
            key, start = number_type(data_type.key, start)
            value, start = number_type(data_type.value, start)
            return replace(data_type, key=key, value=value), start
        case Row():
            fields, start = number_fields(data_type.fields, start)
            return replace(data_type, fields=fields), start
