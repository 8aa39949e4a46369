"""Schema evolution: `evolve` applies a list of changes atomically.

1. Each change is checked against the schema after the previous changes, and applied.
2. A rename also changes keys, and options that name the column.
3. The result must satisfy every rule of `validation.py`.

INVARIANT: columns are identified by id. New ids are above `highest_field_id`, so the columns of a
file with any older schema are still found. Options that decide where rows are stored and how they
merge cannot change after the first snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, did_you_mean
from lakecore.model.casts import check_default, may_cast
from lakecore.model.column_rules import apply_directive, refuse_directive, without_column
from lakecore.model.merge_rules import check_have_effect
from lakecore.model.rows import ROW_KIND
from lakecore.model.schema import SCHEMA_VERSION, TableSchema, number_type
from lakecore.model.schema_change import (
    AddColumn,
    Change,
    DropColumn,
    Move,
    MoveKind,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateColumnDefaultValue,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
    from_arrow,
    is_blob,
    plain_type,
    with_nullable,
)
from lakecore.model.validation import check_stored, key_columns, lift_keys, validate_schema
from lakecore.options import (
    check_option_change,
    parse_known,
    parse_options,
    rename_in_options,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


# --- paths ---------------------------------------------------------------------------------------
# Changes at a path into nested columns: ROW fields by name, array elements, map values.

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = tuple[Field, ...]


def find_path(fields: Sequence[Field], given: Path, *, adding: bool = False) -> Path:
    """Resolve a path: `a.b` means field `b` of column `a`, unless a column is named `a.b`.

    When `adding` a column, this is so only if the column `a` exists.
    """
    names = {column.name for column in fields}
    if len(given) > 1 or given[0] in names or "." not in given[0]:
        return given
    steps = tuple(given[0].split("."))
    return given if adding and steps[0] not in names else steps


def index_of(fields: Sequence[Field], name: str) -> int:
    """The position of the column of that name. Raises NotFound, listing the known names."""
    for index, column in enumerate(fields):
        if column.name == name:
            return index
    columns = [column.name for column in fields]
    raise NotFound("no such column", column=name, **did_you_mean(name, columns), columns=columns)


def change_fields(fields: Fields, path: Path, change: Callable[[Fields, str], Fields]) -> Fields:
    """The fields, with `change` applied to the list of fields that contains the end of the path."""
    name, *rest = path
    if not rest:
        return change(fields, name)
    at = index_of(fields, name)

    def inside(data_type: DataType, steps: Path) -> DataType:
        if isinstance(data_type, Row) and not isinstance(data_type, Variant):
            return replace(data_type, fields=change_fields(data_type.fields, steps, change))
        step, *further = steps
        if not further:
            raise InvalidRequest(
                "only a field of a ROW has a name of its own", column=".".join(path), type=data_type
            )
        return _within(data_type, step, path, lambda part: inside(part, tuple(further)))

    changed = replace(fields[at], type=inside(fields[at].type, tuple(rest)))
    return (*fields[:at], changed, *fields[at + 1 :])


def change_type(fields: Fields, path: Path, change: Callable[[DataType], DataType]) -> Fields:
    """The fields, with `change` applied to the type at the path (a field, element or value)."""
    at = index_of(fields, path[0])

    def inside(data_type: DataType, steps: Path) -> DataType:
        if not steps:
            return change(data_type)
        if isinstance(data_type, Row) and not isinstance(data_type, Variant):
            return replace(data_type, fields=change_type(data_type.fields, steps, change))
        return _within(data_type, steps[0], path, lambda part: inside(part, steps[1:]))

    changed = replace(fields[at], type=inside(fields[at].type, path[1:]))
    return (*fields[:at], changed, *fields[at + 1 :])


def _within(
    data_type: DataType, step: str, path: Path, change: Callable[[DataType], DataType]
) -> DataType:
    match data_type:
        case Array() | Multiset() if step == "element":
            return replace(data_type, element=change(data_type.element))
        case Map() if step == "value":
            return replace(data_type, value=change(data_type.value))
        case Map() if step == "key":
            raise InvalidRequest("the key type of a MAP cannot change", column=".".join(path))
        case Atomic() | Array() | Multiset() | Map() | Row():
            raise NotFound(
                "the path does not lead into this type",
                column=".".join(path),
                step=step,
                type=data_type,
            )


# --- schema merge --------------------------------------------------------------------------------
# Schema changes that a write makes with Paimon's option `write.merge-schema`.
#
# - A column that the table does not have is added after the others, and is nullable; so is a new
#   field of a ROW.
# - If types may widen, a column gets the type of the incoming values if that type holds every value
#   of the old one exactly. If all casts are allowed, it gets every type that an explicit cast leads
#   to; stored values that do not fit are then read as after an `ALTER TABLE`. Otherwise the column
#   keeps its type, and the incoming values must fit it.
# - Keys, array elements, map keys and map values keep their types. Strings and bytes keep their
#   lengths, because Arrow types have none.
#
# See https://paimon.apache.org/docs/master/spark/sql-write/#write-merge-schema

_t = pa.types
_DIGITS = dict(zip(INTEGERS, (3, 5, 10, 19), strict=True))
_EXACT = {Root.FLOAT: frozenset(INTEGERS[:2]), Root.DOUBLE: frozenset({*INTEGERS[:3], Root.FLOAT})}


class TypeChanges(Enum):
    """Which types of columns a write may change."""

    NONE = auto()
    WIDENING = auto()
    CASTS = auto()


def merge_changes(
    fields: Sequence[Field], given: pa.Schema, *, types: TypeChanges, fixed: Collection[str]
) -> list[Change]:
    """The schema changes by which the table gets the given columns; empty if it has them already.

    Columns in `fixed` keep their type. Raises InvalidRequest for a new column whose name differs
    from another's only by case, or whose type is unknown.
    """
    columns = [each for each in given if each.name != ROW_KIND]
    return list(_merged(fields, columns, (), types, fixed))


def _merged(
    fields: Sequence[Field],
    given: Sequence[pa.Field],
    path: tuple[str, ...],
    types: TypeChanges,
    fixed: Collection[str] = (),
) -> Iterator[Change]:
    known = {each.name: each.type for each in fields}
    for each in given:
        here = (*path, each.name)
        if each.name in known:
            own = TypeChanges.NONE if each.name in fixed else types
            yield from _changed(known[each.name], plain_type(each.type), here, own)
            continue
        _check_new(each, here, [*known, *(() if path else (ROW_KIND,))])
        kind = from_arrow(plain_type(each.type), context=".".join(here))
        yield SchemaChange.add_column(list(here), with_nullable(kind, nullable=True))


def _changed(
    old: DataType, given: pa.DataType, path: tuple[str, ...], types: TypeChanges
) -> Iterator[Change]:
    if isinstance(old, Row) and _t.is_struct(given):
        yield from _merged(old.fields, list(given), path, types)
    elif isinstance(old, Array) and (_t.is_list(given) or _t.is_large_list(given)):
        yield from _changed(old.element, given.value_type, (*path, "element"), TypeChanges.NONE)
    elif isinstance(old, Map) and _t.is_map(given):
        yield from _changed(old.value, given.item_type, (*path, "value"), TypeChanges.NONE)
    elif isinstance(old, Atomic) and not _t.is_nested(given) and _is_known(given):
        new = from_arrow(given, nullable=old.nullable, context=".".join(path))
        assert isinstance(new, Atomic), "the Arrow type is not nested"
        if types is not TypeChanges.NONE and (
            _is_wider(old, new) or (types is TypeChanges.CASTS and _is_cast(old, new))
        ):
            yield SchemaChange.update_column_type(list(path), new)


def _is_known(given: pa.DataType) -> bool:
    """Whether the Arrow type has a Paimon type; writing values of other types fails later."""
    others = (_t.is_null, _t.is_duration, _t.is_interval)
    return not any(is_other(given) for is_other in others) and not (
        _t.is_decimal(given) and (given.precision > 38 or given.scale < 0)
    )


def _is_wider(old: Atomic, new: Atomic) -> bool:
    """Whether the new type is a different one that holds every value of the old type."""
    if new.root in INTEGERS:
        return old.root in INTEGERS and INTEGERS.index(new.root) > INTEGERS.index(old.root)
    if new.root in _EXACT:
        return old.root in _EXACT[new.root]
    if new.root is Root.DECIMAL:
        digits, scale = new.digits - new.decimals, new.decimals
        if old.root is Root.DECIMAL:
            before = old.decimals
            whole = old.digits - before
            return (digits, scale) != (whole, before) and digits >= whole and scale >= before
        return digits >= _DIGITS.get(old.root, 39)
    return new.root in TIMESTAMPS and new.root is old.root and new.digits > old.digits


def _is_cast(old: Atomic, new: Atomic) -> bool:
    """Whether a column's type may change by a cast that can lose values."""
    alike = (STRINGS, BINARIES, frozenset({Root.DECIMAL}))
    if old == new or any(old.root in kinds and new.root in kinds for kinds in alike):
        return False
    return may_cast(old, new, explicit=True)


def _check_new(column: pa.Field, path: tuple[str, ...], known: Sequence[str]) -> None:
    like = [name for name in known if name.lower() == column.name.lower()]
    if like:
        raise InvalidRequest(
            "a new column differs from another column only by upper and lower case",
            column=".".join(path),
            did_you_mean=like,
        )
    if _t.is_null(column.type):
        raise InvalidRequest(
            "a new column has only nulls, so its type is unknown: leave it out, or cast it",
            column=".".join(path),
        )


# --- evolution -----------------------------------------------------------------------------------


def evolve(
    schema: TableSchema,
    changes: Sequence[Change],
    *,
    now_ms: int,
    has_snapshots: bool,
    table: str = "",
) -> TableSchema:
    """The schema after all changes, with the next id.

    Raises NotFound and AlreadyExists for columns, InvalidRequest for a change that is not allowed.
    """
    draft = _Draft(
        fields=schema.fields,
        highest_id=schema.highest_field_id,
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        options=schema.stated_options,
        comment=schema.comment,
        has_snapshots=has_snapshots,
        table=table,
    )
    for change in changes:
        draft.apply(change)
    primary, partitions, kept = lift_keys(
        draft.options, draft.primary_keys, draft.partition_keys, table=table
    )
    options = parse_known(kept, table=table)
    outcome = TableSchema(
        id=schema.id + 1,
        fields=key_columns(draft.fields, primary, nullable=options.primary_key_nullable),
        highest_field_id=draft.highest_id,
        partition_keys=partitions,
        primary_keys=primary,
        options=kept,
        comment=draft.comment,
        time_ms=now_ms,
        version=SCHEMA_VERSION,
    )
    validate_schema(outcome, options, table=table)
    check_have_effect((each.key for each in changes if isinstance(each, SetOption)), options)
    return outcome


@dataclass(kw_only=True)
class _Draft:
    """A mutable schema, used while changes are applied, and dropped if a change fails."""

    fields: tuple[Field, ...]
    highest_id: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None
    has_snapshots: bool
    table: str

    def apply(self, change: Change) -> None:
        match change:
            case AddColumn():
                self.add_column(change)
            case RenameColumn():
                self.rename_column(change)
            case DropColumn():
                self.drop_column(change)
            case UpdateColumnType():
                self.update_type(change)
            case UpdateColumnNullability():
                self.update_nullability(change)
            case UpdateColumnComment(path=path, comment=comment):
                refuse_directive(comment, path, table=self.table)
                self.update_field(path, lambda old: replace(old, description=comment))
            case UpdateColumnDefaultValue(path=path, default_value=text):
                self.update_default(path, text)
            case UpdateColumnPosition(name=name, move=move):
                self.move_column(name, move)
            case SetOption(key=key, value=value):
                check_option_change(
                    self.options, key, value, has_snapshots=self.has_snapshots, table=self.table
                )
                self.set_option(key, value)
            case RemoveOption(key=key):
                check_option_change(
                    self.options, key, None, has_snapshots=self.has_snapshots, table=self.table
                )
                self.options.pop(key, None)
            case UpdateComment(comment=comment):
                self.comment = comment

    def add_column(self, change: AddColumn) -> None:
        path = find_path(self.fields, change.path, adding=True)
        if not change.type.nullable:
            raise InvalidRequest(
                "a new column must be nullable: rows already written have no value for it",
                column=".".join(path),
                type=change.type,
                table=self.table,
            )
        column = Field(
            id=self.highest_id + 1, name=path[-1], type=change.type, description=change.comment
        )
        if len(path) == 1:
            column, self.options = apply_directive(column, self.options, table=self.table)
        else:
            refuse_directive(change.comment, path, table=self.table)
        data_type, next_id = number_type(column.type, self.highest_id + 2)
        column = replace(column, type=data_type)
        self.highest_id = next_id - 1

        def insert(fields: tuple[Field, ...], name: str) -> tuple[Field, ...]:
            self.need_absent(fields, name, path)
            place = self.place(fields, change.move, nested=len(path) > 1)
            return (*fields[:place], column, *fields[place:])

        self.fields = change_fields(self.fields, path, insert)

    def place(self, fields: tuple[Field, ...], move: Move | None, *, nested: bool) -> int:
        if move is None:
            before_partition = parse_options(
                {key: self.options[key] for key in (_BEFORE_PARTITION,) if key in self.options}
            ).add_column_before_partition
            if before_partition and not nested:
                at = (i for i, old in enumerate(fields) if old.name in self.partition_keys)
                return next(at, len(fields))
            return len(fields)
        match move.kind:
            case MoveKind.FIRST:
                return 0
            case MoveKind.LAST:
                return len(fields)
            case MoveKind.AFTER | MoveKind.BEFORE:
                assert move.column is not None
                at_column = index_of(fields, move.column)
                return at_column + (move.kind is MoveKind.AFTER)

    def rename_column(self, change: RenameColumn) -> None:
        path = find_path(self.fields, change.path)
        self.keep(path, self.partition_keys, "a partition key cannot be renamed")
        blobs = [field.name for field in self.fields if is_blob(field.type)]
        self.keep(path, blobs, "a BLOB column cannot be renamed")

        def rename(fields: tuple[Field, ...], name: str) -> tuple[Field, ...]:
            at = index_of(fields, name)
            self.need_absent(fields, change.name, (*path[:-1], change.name))
            return (*fields[:at], replace(fields[at], name=change.name), *fields[at + 1 :])

        self.fields = change_fields(self.fields, path, rename)
        if len(path) == 1:
            self.primary_keys = tuple(
                change.name if name == path[0] else name for name in self.primary_keys
            )
            self.options = rename_in_options(self.options, path[0], change.name)

    def drop_column(self, change: DropColumn) -> None:
        path = find_path(self.fields, change.path)
        self.keep(path, self.partition_keys, "a partition key cannot be dropped")
        self.keep(path, self.primary_keys, "a primary-key column cannot be dropped")

        def drop(fields: tuple[Field, ...], name: str) -> tuple[Field, ...]:
            at = index_of(fields, name)
            if len(fields) == 1:
                raise InvalidRequest(
                    "the last column cannot be dropped", column=".".join(path), table=self.table
                )
            return fields[:at] + fields[at + 1 :]

        self.fields = change_fields(self.fields, path, drop)
        if len(path) == 1:
            self.options = without_column(self.options, path[0])

    def update_type(self, change: UpdateColumnType) -> None:
        path = find_path(self.fields, change.path)
        self.keep(path, self.partition_keys, "the type of a partition key cannot change")
        self.keep(path, self.primary_keys, "the type of a primary-key column cannot change")
        options = parse_known(self.options, table=self.table)
        self.keep(
            path,
            options.bucket_key,
            "the type of a bucket key cannot change: its rows lie in buckets by the old one",
        )
        if len(path) > 1 and any(f.name == path[0] and is_blob(f.type) for f in self.fields):
            raise InvalidRequest(
                "the types within a BLOB column cannot change",
                column=".".join(path),
                table=self.table,
            )

        def retype(old: DataType) -> DataType:
            new = change.type
            if change.keep_nullability:
                new = with_nullable(new, nullable=old.nullable)
            self.check_nullability(old, path, nullable=new.nullable)
            if isinstance(new, Atomic) and not isinstance(old, Atomic):
                raise InvalidRequest(
                    "the column's type cannot become this one: no change leads from it back to a "
                    "nested type; add a column and fill it by an update",
                    column=".".join(path),
                    type=old,
                    new_type=new,
                    table=self.table,
                )
            if not may_cast(old, new, explicit=not options.disable_explicit_type_casting):
                raise InvalidRequest(
                    "the column's type cannot become this one",
                    column=".".join(path),
                    type=old,
                    new_type=new,
                    explicit_casts=not options.disable_explicit_type_casting,
                    table=self.table,
                )
            return new

        self.fields = change_type(self.fields, path, retype)
        self.check_defaults()

    def update_nullability(self, change: UpdateColumnNullability) -> None:
        path = find_path(self.fields, change.path)
        if change.nullable:
            self.keep(path, self.primary_keys, "a primary-key column must be NOT NULL")

        def renull(old: DataType) -> DataType:
            self.check_nullability(old, path, nullable=change.nullable)
            return with_nullable(old, nullable=change.nullable)

        self.fields = change_type(self.fields, path, renull)

    def check_nullability(self, old: DataType, path: tuple[str, ...], *, nullable: bool) -> None:
        options = parse_known(self.options, table=self.table)
        if old.nullable and not nullable and options.alter_column_null_to_not_null_disabled:
            raise InvalidRequest(
                "a nullable column cannot become NOT NULL, as rows may hold null",
                column=".".join(path),
                way_out="set alter-column-null-to-not-null.disabled=false",
                table=self.table,
            )

    def update_default(self, path: tuple[str, ...], text: str | None) -> None:
        def redefault(old: Field) -> Field:
            check_default(old.type, text, column=".".join(path))
            return replace(old, default_value=text)

        self.update_field(path, redefault)

    def update_field(self, given: tuple[str, ...], change: Callable[[Field], Field]) -> None:
        path = find_path(self.fields, given)

        def update(fields: tuple[Field, ...], name: str) -> tuple[Field, ...]:
            at = index_of(fields, name)
            return (*fields[:at], change(fields[at]), *fields[at + 1 :])

        self.fields = change_fields(self.fields, path, update)

    def check_defaults(self) -> None:
        for column in self.fields:
            check_default(column.type, column.default_value, column=column.name)

    def move_column(self, name: str, move: Move) -> None:
        at = index_of(self.fields, name)
        if move.column == name:
            raise InvalidRequest(
                "a column cannot move next to itself", column=name, table=self.table
            )
        others = self.fields[:at] + self.fields[at + 1 :]
        place = self.place(others, move, nested=False)
        self.fields = (*others[:place], self.fields[at], *others[place:])

    def set_option(self, key: str, value: str) -> None:
        declared = {"primary-key": self.primary_keys, "partition": self.partition_keys}.get(key)
        if declared is None or (not declared and not self.has_snapshots):
            check_stored({key: value}, table=self.table)
            self.options.pop(key, None)
            self.options |= tidy({key: value})
        elif tuple(name.strip() for name in value.split(",")) != declared:
            raise InvalidRequest(
                "the keys of a table cannot change", option=key, keys=declared, table=self.table
            )

    def keep(self, path: tuple[str, ...], names: Sequence[str], why: str) -> None:
        if path[0] in names:
            raise InvalidRequest(why, column=".".join(path), table=self.table)

    def need_absent(self, fields: tuple[Field, ...], name: str, path: tuple[str, ...]) -> None:
        if any(old.name == name for old in fields):
            raise AlreadyExists(
                "there is a column of that name", column=".".join(path), table=self.table
            )


_BEFORE_PARTITION = "add-column-before-partition"
