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
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, InvalidRequest
from lakecore.model.casts import check_default, may_cast
from lakecore.model.column_directives import (
    apply_directive,
    refuse_directive,
    without_column,
)
from lakecore.model.merge_rules import check_have_effect
from lakecore.model.paths import change_fields, change_type, find_path, index_of
from lakecore.model.schema import SCHEMA_VERSION, TableSchema, number_type
from lakecore.model.schema_change import (
    AddColumn,
    Change,
    DropColumn,
    Move,
    MoveKind,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnComment,
    UpdateColumnDefaultValue,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)
from lakecore.model.types import Atomic, DataType, Field, is_blob, with_nullable
from lakecore.model.validation import check_stored, key_columns, lift_keys, validate_schema
from lakecore.options import (
    check_option_change,
    parse_known,
    parse_options,
    rename_in_options,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["evolve"]


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
