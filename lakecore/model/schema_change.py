"""The changes of a schema, as frozen values that the methods of SchemaChange create.

A column is given by its name, or by a path into ROWs: `["a", "b"]`, or `"a.b"` if no column has
that name. The step `element` enters an ARRAY or MULTISET, `value` a MAP. `evolution.evolve` applies
the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeGuard

import pyarrow as pa

from lakecore.errors import InvalidRequest, check_flags
from lakecore.model.types import Array, Atomic, DataType, Map, Multiset, Row, from_arrow, parse_type
from lakecore.options import OptionValue, option_text

ColumnPath: TypeAlias = "str | Sequence[str]"


class MoveKind(StrEnum):
    """The kinds of positions of a column."""

    FIRST = "first"
    AFTER = "after"
    BEFORE = "before"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Move:
    """A position among the columns: first, last, or directly before or after `column`.

    move, change = lakecore.Move, lakecore.SchemaChange.update_column_position
    places = [move.first(), move.last(), move.before("item"), move.after("item")]
    session.alter_table("shop.orders", [change("n", each) for each in places])
    """

    kind: MoveKind
    column: str | None = None

    @staticmethod
    def first() -> Move:
        """The position before all columns."""
        return Move(MoveKind.FIRST)

    @staticmethod
    def after(column: str) -> Move:
        """The position directly after a column."""
        return Move(MoveKind.AFTER, column)

    @staticmethod
    def before(column: str) -> Move:
        """The position directly before a column."""
        return Move(MoveKind.BEFORE, column)

    @staticmethod
    def last() -> Move:
        """The position after all columns."""
        return Move(MoveKind.LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """Adds a nullable column, or a nullable field of a ROW."""

    path: tuple[str, ...]
    type: DataType
    comment: str | None
    move: Move | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """Renames a column; its id does not change."""

    path: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    """Drops a column; its id is never used again."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnType:
    """Changes the type of a column; with `keep_nullability`, the nullability does not change."""

    path: tuple[str, ...]
    type: DataType
    keep_nullability: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnNullability:
    """Makes a column nullable or NOT NULL."""

    path: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnComment:
    """Changes the comment of a column; None removes it."""

    path: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnDefaultValue:
    """Changes the default value of a column, given as a string; None removes it."""

    path: tuple[str, ...]
    default_value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnPosition:
    """Moves a column to another position."""

    name: str
    move: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption:
    """Sets a table option."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOption:
    """Resets a table option to its default."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateComment:
    """Changes the comment of the table; None removes it."""

    comment: str | None


Change: TypeAlias = (
    AddColumn
    | RenameColumn
    | DropColumn
    | UpdateColumnType
    | UpdateColumnNullability
    | UpdateColumnComment
    | UpdateColumnDefaultValue
    | UpdateColumnPosition
    | SetOption
    | RemoveOption
    | UpdateComment
)


class SchemaChange:
    """Makes the changes that `Session.alter_table` accepts.

    A type is Paimon's type string (`"DECIMAL(10, 2)"`), an Arrow type or a lakecore type. The rules
    of type changes are Paimon's (https://paimon.apache.org/docs/master/concepts/spec/schema/).

        change, move = lakecore.SchemaChange, lakecore.Move
        changes = [
            change.add_column("note", "STRING", "by the buyer", move.after("item")),
            change.update_column_type("n", "BIGINT"),
            change.update_column_nullability("n", nullable=True),
            change.update_column_comment("n", "pieces"),
            change.update_column_default_value("n", "1"),
            change.update_column_position("n", move.first()),
            change.rename_column("item", "product"),
            change.drop_column("price"),
            change.set_option("snapshot.time-retained", "7 d"),
            change.remove_option("num-sorted-run.compaction-trigger"),
            change.update_comment("orders of the shop"),
        ]
        session.alter_table("shop.orders", changes)
    """

    @staticmethod
    def add_column(
        name: ColumnPath,
        type: str | DataType | pa.DataType,  # noqa: A002  the word of the public surface
        comment: str | None = None,
        move: Move | None = None,
    ) -> Change:
        """Add a nullable column, last unless `move` is given; existing rows read as null."""
        path = _path(name)
        return AddColumn(
            path=path, type=_type(type, path), comment=_comment(comment), move=_move(move)
        )

    @staticmethod
    def rename_column(name: ColumnPath, new_name: str) -> Change:
        """Rename a column; its id and its values do not change."""
        return RenameColumn(path=_path(name), name=_text("the name of a column", new_name))

    @staticmethod
    def drop_column(name: ColumnPath) -> Change:
        """Drop a column. A column that is added later with the same name is a different column."""
        return DropColumn(path=_path(name))

    @staticmethod
    def update_column_type(
        name: ColumnPath,
        type: str | DataType | pa.DataType,  # noqa: A002  the word of the public surface
        keep_nullability: bool = False,  # noqa: FBT001, FBT002  Paimon's place for it
    ) -> Change:
        """Change the type of a column; Paimon must be able to cast the old type to the new one."""
        check_flags(keep_nullability=keep_nullability)
        path = _path(name)
        return UpdateColumnType(
            path=path, type=_type(type, path), keep_nullability=keep_nullability
        )

    @staticmethod
    def update_column_nullability(name: ColumnPath, nullable: bool) -> Change:  # noqa: FBT001  Paimon's place for it
        """Make a column nullable or NOT NULL."""
        check_flags(nullable=nullable)
        return UpdateColumnNullability(path=_path(name), nullable=nullable)

    @staticmethod
    def update_column_comment(name: ColumnPath, comment: str | None) -> Change:
        """Change the comment of a column; None removes it."""
        return UpdateColumnComment(path=_path(name), comment=_comment(comment))

    @staticmethod
    def update_column_default_value(name: ColumnPath, default_value: str | None) -> Change:
        """Change the default value of a column, given as a string; existing rows do not change."""
        if default_value is not None:
            _text("a default value", default_value)
        return UpdateColumnDefaultValue(path=_path(name), default_value=default_value)

    @staticmethod
    def update_column_position(name: str, move: Move) -> Change:
        """Move a column to a `Move`: `first()`, `last()`, `after(other)` or `before(other)`."""
        place = _move(move)
        if place is None:
            raise InvalidRequest("a column moves to a lakecore.Move", given=None)
        return UpdateColumnPosition(name=_text("the name of a column", name), move=place)

    @staticmethod
    def set_option(key: str, value: OptionValue) -> Change:
        """Set a table option; the value is a string, a number or a boolean."""
        return SetOption(key=_text("the key of an option", key), value=option_text(key, value))

    @staticmethod
    def remove_option(key: str) -> Change:
        """Reset a table option to its default."""
        return RemoveOption(key=_text("the key of an option", key))

    @staticmethod
    def update_comment(comment: str | None) -> Change:
        """Change the comment of the table; None removes it."""
        return UpdateComment(comment=_comment(comment))


def check_changes(changes: object) -> None:
    """Raise InvalidRequest unless `changes` is a list of schema changes."""
    strange = (
        [each for each in changes if not isinstance(each, Change)] if _is_list(changes) else []
    )
    if strange or not _is_list(changes):
        raise InvalidRequest(
            "alter_table takes a list of what lakecore.SchemaChange makes",
            given=type(strange[0] if strange else changes).__name__,
        )


def _is_list(changes: object) -> TypeGuard[Sequence[object]]:
    return isinstance(changes, Sequence) and not isinstance(changes, str | bytes)


def _path(name: ColumnPath) -> tuple[str, ...]:
    if not _is_path(name):
        raise InvalidRequest("a column is named by a text, or a path of texts", column=name)
    path = (name,) if isinstance(name, str) else tuple(name)
    for part in path:
        _text("the name of a column", part)
    if not path or not all(path):
        raise InvalidRequest("a column needs a name", column=name)
    return path


def _type(source: str | DataType | pa.DataType, path: tuple[str, ...]) -> DataType:
    context = ".".join(path)
    if isinstance(source, Atomic | Array | Multiset | Map | Row):
        return source
    if isinstance(source, pa.DataType):
        return from_arrow(source, context=context)
    return parse_type(_text("a type", source), context=context)


def _is_path(name: object) -> bool:
    return isinstance(name, Sequence) and not isinstance(name, bytes)


def _text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} is a text", given=given)
    return given


def _comment(given: object) -> str | None:
    return None if given is None else _text("a comment", given)


def _move(given: object) -> Move | None:
    if given is not None and not isinstance(given, Move):
        raise InvalidRequest("a column moves to a lakecore.Move", given=type(given).__name__)
    return given
