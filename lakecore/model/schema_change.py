"""The changes that a schema can undergo: closed values, made by the methods of SchemaChange.

A column is named by its name, or by a path into ROWs: `["a", "b"]`, or `"a.b"` where no column has
that very name. `element` and `value` step into an ARRAY or MULTISET and a MAP. Carrying a change
out is `evolution.evolve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeGuard

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.arguments import check_flags
from lakecore.model.types import Array, Atomic, DataType, Map, Multiset, Row, from_arrow, parse_type
from lakecore.options import OptionValue, option_text

__all__ = ["Change", "ColumnPath", "Move", "SchemaChange", "check_changes"]

ColumnPath: TypeAlias = "str | Sequence[str]"


class MoveKind(StrEnum):
    """Where a column goes."""

    FIRST = "first"
    AFTER = "after"
    BEFORE = "before"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Move:
    """A place among the columns: the first, the last, or beside the column `beside`."""

    kind: MoveKind
    beside: str | None = None

    @staticmethod
    def first() -> Move:
        """The place before all columns."""
        return Move(MoveKind.FIRST)

    @staticmethod
    def after(column: str) -> Move:
        """The place right after a column."""
        return Move(MoveKind.AFTER, column)

    @staticmethod
    def before(column: str) -> Move:
        """The place right before a column."""
        return Move(MoveKind.BEFORE, column)

    @staticmethod
    def last() -> Move:
        """The place after all columns."""
        return Move(MoveKind.LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """A new, nullable column, or field of a ROW."""

    path: tuple[str, ...]
    type: DataType
    comment: str | None
    move: Move | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """Another name for a column; its id stays."""

    path: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    """A column goes; its id is never given out again."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnType:
    """Another type for a column; the old nullability stays if `keep_nullability`."""

    path: tuple[str, ...]
    type: DataType
    keep_nullability: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnNullability:
    """A column takes nulls, or no longer does."""

    path: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnComment:
    """Another comment for a column; None removes it."""

    path: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnDefaultValue:
    """Another default value for a column, as text; None removes it."""

    path: tuple[str, ...]
    default_value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateColumnPosition:
    """Another place for a column."""

    name: str
    move: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption:
    """A table option gets a value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOption:
    """A table option goes back to its default."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateComment:
    """Another comment for the table; None removes it."""

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
    """Makes the changes that `alter_table` takes. Types: Paimon's text, Arrow's or lakecore's."""

    @staticmethod
    def add_column(
        name: ColumnPath,
        type: str | DataType | pa.DataType,  # noqa: A002  the word of the public surface
        comment: str | None = None,
        move: Move | None = None,
    ) -> Change:
        """Add a nullable column; old rows read as null. It goes last, unless `move` says where."""
        path = _path(name)
        return AddColumn(
            path=path, type=_type(type, path), comment=_comment(comment), move=_move(move)
        )

    @staticmethod
    def rename_column(name: ColumnPath, new_name: str) -> Change:
        """Give a column another name."""
        return RenameColumn(path=_path(name), name=_text("the name of a column", new_name))

    @staticmethod
    def drop_column(name: ColumnPath) -> Change:
        """Drop a column; one added later under its name is another column."""
        return DropColumn(path=_path(name))

    @staticmethod
    def update_column_type(
        name: ColumnPath,
        type: str | DataType | pa.DataType,  # noqa: A002  the word of the public surface
        keep_nullability: bool = False,  # noqa: FBT001, FBT002  Paimon's place for it
    ) -> Change:
        """Give a column another type, into which Paimon can cast the old one."""
        check_flags(keep_nullability=keep_nullability)
        path = _path(name)
        return UpdateColumnType(
            path=path, type=_type(type, path), keep_nullability=keep_nullability
        )

    @staticmethod
    def update_column_nullability(name: ColumnPath, nullable: bool) -> Change:  # noqa: FBT001  Paimon's place for it
        """Let a column take nulls, or no longer."""
        check_flags(nullable=nullable)
        return UpdateColumnNullability(path=_path(name), nullable=nullable)

    @staticmethod
    def update_column_comment(name: ColumnPath, comment: str | None) -> Change:
        """Give a column another comment."""
        return UpdateColumnComment(path=_path(name), comment=_comment(comment))

    @staticmethod
    def update_column_default_value(name: ColumnPath, default_value: str | None) -> Change:
        """Give a column another default value, as text; rows already written keep theirs."""
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
        """Set a table option; a number, True or False may be stated as they are."""
        return SetOption(key=_text("the key of an option", key), value=option_text(key, value))

    @staticmethod
    def remove_option(key: str) -> Change:
        """Set a table option back to its default."""
        return RemoveOption(key=_text("the key of an option", key))

    @staticmethod
    def update_comment(comment: str | None) -> Change:
        """Give the table another comment."""
        return UpdateComment(comment=_comment(comment))


def check_changes(changes: object) -> None:
    """Raise InvalidRequest unless these are schema changes, in a list."""
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
