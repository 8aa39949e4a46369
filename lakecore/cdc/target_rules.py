"""The rules of an action for its targets: their names, columns, keys and options.

A target has the columns of its source, then the computed columns, then the metadata columns. The
primary key is stated by the action, or else taken from the source. Columns that a source no longer
has become nullable, because new rows have no value for them.

When a pipeline starts for the first time, an existing target is checked: it must have every column,
with a type that holds the values, and the same primary key. Then the action's table options are
set.

See https://paimon.apache.org/docs/master/cdc-ingestion/overview/
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.computed_columns import ComputedColumn, append_computed, computed_fields
from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping, TypeOption
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
    parse_type,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.events import Altered
    from lakecore.io.ambient import Ambient
    from lakecore.model.schema import TableSchema


# --- evolution -----------------------------------------------------------------------------------
# Computes the schema changes that a table needs for rows with the columns of a source.
#
# Paimon replays no DDL, but compares the columns of the incoming rows with the table's columns.
#
# - A column that the table lacks is added as a nullable column. A renamed column counts as new. If
#   only the case of its name changed, it is the same column, and the table keeps its own name.
# - A type that holds every value of the old one replaces it. A narrower type changes nothing.
# - A new comment of a column or of the table replaces the old one.
# - A column that the source no longer has stays, and is null in new rows.
# - Anything else is an error: rows would not fit, or values would be lost.
#
# INVARIANT: no change loses or alters a value that the table may hold. A longer CHAR or BINARY
# would pad the old values, so the column becomes VARCHAR or VARBINARY of that length; a number
# becomes a string only if the string type is long enough. Paimon also lets the integer digits of a
# DECIMAL shrink while its scale grows, which turns old values into null; lakecore raises an error.
#
# Paimon's page:
# https://paimon.apache.org/docs/master/cdc-ingestion/overview/#schema-change-evolution

_PAIR = 2
_FLOATS = (Root.FLOAT, Root.DOUBLE)
_PADDED = {Root.CHAR: Root.VARCHAR, Root.BINARY: Root.VARBINARY}
_TEXT_LENGTHS = {
    Root.BOOLEAN: len("false"),
    Root.TINYINT: len("-128"),
    Root.SMALLINT: len("-32768"),
    Root.INT: len("-2147483648"),
    Root.BIGINT: len("-9223372036854775808"),
    Root.DATE: len("2000-01-01"),
}


class Conversion(Enum):
    """The treatment of a column whose type at the source differs from its type in the table."""

    CHANGE = "change"  # the column gets the new type
    KEEP = "keep"  # the column keeps its type, which holds every value of the new one
    REFUSE = "refuse"  # neither type holds the values of the other


def conversion(old: DataType, new: DataType, mapping: TypeMapping = DEFAULT_MAPPING) -> Conversion:
    """The treatment of a column of type `old` when the source has the type `new`."""
    if _same(old, new):
        relaxes = not old.nullable or new.nullable
        return Conversion.CHANGE if relaxes else Conversion.REFUSE
    match old, new:
        case Array(), Array():
            return _nested(old, new, conversion(old.element, new.element, mapping))
        case Multiset(), Multiset():
            return _nested(old, new, conversion(old.element, new.element, mapping))
        case Map(), Map():
            if not _same(old.key, new.key):
                return Conversion.REFUSE
            return _nested(old, new, conversion(old.value, new.value, mapping))
        case Row(), Row():
            return _rows(old, new, mapping)
        case Atomic(), Atomic():
            return _atomics(old, new, mapping)
    to_text = isinstance(new, Atomic) and new.root in STRINGS and new.length == LENGTH_MAX
    return _to_text(mapping) if to_text else Conversion.REFUSE


def outdates(altered: Altered, columns: Iterable[Field]) -> bool:
    """Whether columns of a table may hold values that the source has changed."""
    return altered.is_renewed or any(
        may_lose(each.type, altered.types[lower], is_strict=altered.is_strict)
        for each in columns
        if (lower := each.name.lower()) in altered.types
    )


def may_lose(old: DataType, new: DataType | None, *, is_strict: bool) -> bool:
    """Whether a change of a source's type may have changed values in a column of type `old`.

    `new`: the type that the source has afterwards; None if not known.
    """
    if new is None:
        return True
    if old.nullable and not new.nullable and not is_strict:
        return True  # nulls became zeros
    ends = with_nullable(old, nullable=True), with_nullable(new, nullable=True)
    if ends[0] == ends[1] or conversion(*ends) is Conversion.CHANGE:
        return False
    families = (INTEGERS, STRINGS, BINARIES)
    alike = any(
        all(isinstance(each, Atomic) and each.root in family for each in ends)
        for family in families
    )
    return not (is_strict and alike)


def target_names(table: Iterable[str], given: Sequence[str]) -> dict[str, str]:
    """The name in the table of each column of a source; new columns keep their own names.

    Names that differ only in case are the same column, unless one side has several such names.
    """
    own = set(table)
    if own.issuperset(given):
        return {name: name for name in given}
    alike = Counter(name.lower() for name in own.union(given))
    missing = {name.lower(): name for name in own.difference(given)}
    return {
        name: missing.get(name.lower(), name)
        if name not in own and alike[name.lower()] == _PAIR
        else name
        for name in given
    }


def named_as(table: Iterable[str], given: SourceSchema) -> SourceSchema:
    """The source schema under the column names of a table; see `target_names`."""
    names = target_names(table, given.names)
    if all(name == own for name, own in names.items()):
        return given
    return replace(
        given,
        fields=tuple(replace(each, name=names[each.name]) for each in given.fields),
        primary_key=tuple(names.get(name, name) for name in given.primary_key),
        may_be_flags=frozenset(names[name] for name in given.may_be_flags),
        exact=frozenset(names.get(name, name) for name in given.exact),
    )


def schema_changes(
    table: TableSchema, given: SourceSchema, mapping: TypeMapping = DEFAULT_MAPPING
) -> list[Change]:
    """The schema changes after which rows with the columns of `given` fit into the table.

    Columns are matched by name. Raises InvalidRequest, naming the column and both types, for an
    impossible change of type.
    """
    changes: list[Change] = []
    for column in given.fields:
        have = table.by_name.get(column.name)
        if have is None:
            added = with_nullable(column.type, nullable=True)
            changes.append(SchemaChange.add_column([column.name], added, column.description))
            continue
        if column.name not in given.may_be_flags or not _is_boolean(have.type):
            changes.extend(_changes(table, have, column, mapping))
        if column.description is not None and column.description != have.description:
            changes.append(SchemaChange.update_column_comment([column.name], column.description))
    if given.comment is not None and given.comment != table.comment:
        changes.append(SchemaChange.update_comment(given.comment))
    return changes


def check_compatible(table: TableSchema, given: SourceSchema, *, name: str) -> None:
    """Raise InvalidRequest unless an existing table can take the rows of a source.

    Every column of the source must exist in the table, and one of the two types must hold the
    values of the other.
    """
    for column in given.fields:
        have = table.by_name.get(column.name)
        if have is None:
            raise InvalidRequest(
                "the table lacks a column of the source; add it, or let the table be created",
                table=name,
                column=column.name,
                columns=table.names,
            )
        ways = (conversion(column.type, have.type), conversion(have.type, column.type))
        bare = with_nullable(column.type, nullable=True), with_nullable(have.type, nullable=True)
        times = all(isinstance(each, Atomic) and each.root is Root.TIME for each in bare)
        if Conversion.CHANGE not in ways and not times and not _same(*bare):
            raise InvalidRequest(
                "the column's type at the source and in the table have no common values",
                table=name,
                column=column.name,
                source=column.type,
                type=have.type,
            )


def _changes(
    table: TableSchema, have: Field, column: Field, mapping: TypeMapping
) -> Iterator[Change]:
    """The schema changes for the type of one column; empty if the type stays.

    A NOT NULL column becomes nullable if the source's column is nullable, unless it is a key. No
    column becomes NOT NULL.
    """
    old, new = with_nullable(have.type, nullable=True), with_nullable(column.type, nullable=True)
    relaxed = not have.nullable and column.nullable
    fixed = column.name in table.primary_keys or column.name in table.partition_keys
    if _same(old, new):
        if relaxed and not fixed:
            yield SchemaChange.update_column_nullability([column.name], True)
        return
    if _is_decimal(old) and TypeOption.DECIMAL_NO_CHANGE in mapping:
        return
    decision = conversion(old, new, mapping)
    if decision is Conversion.REFUSE or (decision is Conversion.CHANGE and fixed):
        raise InvalidRequest(
            "the type of a column changed at the source, and the table cannot follow: change it "
            "back, exclude the column, or drop the target",
            column=column.name,
            type=have.type,
            source=column.type,
        )
    if decision is Conversion.CHANGE:
        yield from _type_changes((column.name,), old, new)
        if relaxed:
            yield SchemaChange.update_column_nullability([column.name], True)


def _type_changes(path: tuple[str, ...], old: DataType, new: DataType) -> Iterator[Change]:
    """The changes of the parts of a type that differ."""
    match old, new:
        case Array() | Multiset(), Array() | Multiset():
            yield from _type_changes((*path, "element"), old.element, new.element)
        case Map(), Map():
            yield from _type_changes((*path, "value"), old.value, new.value)
        case Row(), Row():
            have = {field.name: field for field in old.fields}
            for field in new.fields:
                here = [*path, field.name]
                if field.name in have:
                    yield from _type_changes(tuple(here), have[field.name].type, field.type)
                else:
                    yield SchemaChange.add_column(here, field.type, field.description)
        case _ if not _same(old, new) and conversion(old, new) is not Conversion.KEEP:
            yield SchemaChange.update_column_type(list(path), _unpadded(new), True)


def _nested(old: DataType, new: DataType, inner: Conversion) -> Conversion:
    return Conversion.REFUSE if old.nullable and not new.nullable else inner


def _rows(old: Row, new: Row, mapping: TypeMapping) -> Conversion:
    """The treatment of a ROW whose fields differ.

    As for columns, new fields are nullable, and a missing field must be nullable.
    """
    given = {field.name: field.type for field in new.fields}
    have = {field.name: field.type for field in old.fields}
    gone = any(not kind.nullable for name, kind in have.items() if name not in given)
    late = any(not kind.nullable for name, kind in given.items() if name not in have)
    ways = {conversion(have[name], kind, mapping) for name, kind in given.items() if name in have}
    if gone or late or Conversion.REFUSE in ways:
        return Conversion.REFUSE
    changes = Conversion.CHANGE in ways or not given.keys() <= have.keys()
    return Conversion.CHANGE if changes else Conversion.KEEP


def _atomics(old: Atomic, new: Atomic, mapping: TypeMapping) -> Conversion:
    for family in (STRINGS, BINARIES):
        if old.root in family and new.root in family:
            if old.root not in _PADDED and new.root in _PADDED and old.length == new.length:
                return Conversion.KEEP
            return _wider((old.length or 0) <= (new.length or 0))
    if new.root in STRINGS:
        fits = (new.length or 0) >= _text_length(old)
        return _to_text(mapping) if fits else Conversion.REFUSE
    for order in (INTEGERS, _FLOATS):
        if old.root in order and new.root in order:
            return _wider(order.index(old.root) <= order.index(new.root))
    if old.root is not new.root:
        return Conversion.REFUSE
    if old.root is Root.DECIMAL:
        return _decimals(old, new)
    if old.root is Root.TIME:
        # Java cannot read a file whose TIME has another precision than the table's, so the column
        # keeps its precision. A row with a time of more digits is an error.
        return Conversion.KEEP
    return _wider(old.digits <= new.digits)


def _decimals(old: Atomic, new: Atomic) -> Conversion:
    scales = old.decimals, new.decimals
    wholes = old.digits - scales[0], new.digits - scales[1]
    if scales[1] >= scales[0] and wholes[1] >= wholes[0]:
        return Conversion.CHANGE
    if scales[1] <= scales[0] and wholes[1] <= wholes[0]:
        return Conversion.KEEP
    return Conversion.REFUSE


def _text_length(data_type: Atomic) -> int:
    """The length of the longest string to which a value of the type may be converted."""
    if data_type.root is Root.DECIMAL:
        return data_type.digits + len("-0.")
    return _TEXT_LENGTHS.get(data_type.root, LENGTH_MAX)


def _unpadded(data_type: DataType) -> DataType:
    """VARCHAR for CHAR, and VARBINARY for BINARY; other types unchanged."""
    if isinstance(data_type, Atomic) and data_type.root in _PADDED:
        return replace(data_type, root=_PADDED[data_type.root])
    return data_type


def _wider(wider: bool) -> Conversion:  # noqa: FBT001  the answer of the caller's comparison
    return Conversion.CHANGE if wider else Conversion.KEEP


def _to_text(mapping: TypeMapping) -> Conversion:
    allowed = TypeOption.ALLOW_NON_STRING_TO_STRING in mapping
    return Conversion.CHANGE if allowed else Conversion.REFUSE


def _is_boolean(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic) and data_type.root is Root.BOOLEAN


def _is_decimal(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic) and data_type.root is Root.DECIMAL


def _same(old: DataType, new: DataType) -> bool:
    """Whether two types differ at most in nullability at the top, and in the ids of fields."""
    match old, new:
        case Atomic(), Atomic():
            return with_nullable(old, nullable=True) == with_nullable(new, nullable=True)
        case Array() | Multiset(), Array() | Multiset() if type(old) is type(new):
            return _same_inner(old.element, new.element)
        case Map(), Map():
            return _same_inner(old.key, new.key) and _same_inner(old.value, new.value)
        case Row(), Row():
            return len(old.fields) == len(new.fields) and all(
                have.name == given.name and _same_inner(have.type, given.type)
                for have, given in zip(old.fields, new.fields, strict=True)
            )
    return False


def _same_inner(old: DataType, new: DataType) -> bool:
    return old.nullable == new.nullable and _same(old, new)


# --- target rules --------------------------------------------------------------------------------

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
    """The rules of one action, which implement the protocol `Rules` of the sink.

    - `route`: returns the target of a source table, or None if the table is left out;
    - `primary_keys`: replace the primary key of the source; with `falls_back`, only for tables that
      have all of these columns;
    - `partition_keys_of`: by source table, partition keys that replace `partition_keys`;
    - `takes_source_keys`: whether the source's primary key is used if none is given;
    - `lenient`: whether a computed column is null if the column of its definition is missing;
    - `widens_existing`: whether missing columns are added to a table that exists before the
      pipeline; otherwise they are an error.
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
    ) -> bool:
        """Create the target, or check the existing one; False if rows of that schema do not fit.

        Raises InvalidRequest for a key type that maps several keys of the source to one.
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
            return True
        found = catalog.get_table(target).context.schema
        self._check_existing(found, target, schema, first=first)
        if not first:
            return self._takes(found, schema)
        if target in self.made:
            return True
        changes = [
            SchemaChange.set_option(key, value)
            for key, value in self.table_conf.items()
            if found.options.get(key) != value
        ]
        if changes:
            catalog.alter_table(target, changes)
        return True

    def _takes(self, found: TableSchema, schema: SourceSchema) -> bool:
        try:
            self.changes(found, schema)
        except InvalidRequest:
            return False
        return True

    def check(
        self,
        catalog: Catalog,
        table: SourceTable,
        target: str,
        schema: SourceSchema,
        *,
        follows: bool = False,
    ) -> Sequence[Change]:
        """The pending schema changes of a target that the pipeline follows.

        `follows`: whether the pipeline already follows the table, and may change the target. Raises
        InvalidRequest if a pipeline could not create or use the target.
        """
        if catalog.table_exists(target):
            found = catalog.get_table(target).context.schema
            self._check_existing(found, target, schema, first=not follows)
            if follows:
                return self.changes(found, schema)
        else:
            self._partition_keys(table, schema, target)
        return ()

    def _check_existing(
        self, found: TableSchema, target: str, schema: SourceSchema, *, first: bool
    ) -> None:
        """Raise InvalidRequest if an existing target can never take rows of that schema."""
        schema = named_as(found.names, schema)
        _check_exact(found, schema, table=target)
        if first and target in self.made:
            # Only check that the changes are possible. The sink, which may have the table open,
            # makes the changes before the first row that needs them.
            self.changes(found, schema)
        elif first:
            if not self.widens_existing:
                check_compatible(found, schema, name=target)
            _check_key(found, schema, table=target)

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
                "columns of --primary_keys do not exist",
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
                "columns of --partition_keys do not exist",
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
                "has changed it. To mirror the table again, drop the target",
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
            "the table. Otherwise change the key back, or drop the target",
            **facts,
            primary_key=have.primary_keys,
            source=given.primary_key,
        )
