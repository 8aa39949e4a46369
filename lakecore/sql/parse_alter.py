"""The parser of ALTER TABLE, ALTER VIEW and COMMENT ON, in the spellings of Flink and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.catalog.views import RemoveViewOption, SetViewOption, UpdateViewComment, ViewChange
from lakecore.errors import Unsupported
from lakecore.model.schema_change import Change, Move, SchemaChange
from lakecore.sql import statements as s
from lakecore.sql.cursor import Cursor, options
from lakecore.sql.parse_tables import partition, read_column, read_type
from lakecore.sql.tokens import Kind

if TYPE_CHECKING:
    from collections.abc import Callable


_COMMENT = "comment"
_TAG_VERBS = ("CREATE", "REPLACE", "DELETE")


def parse_alter(cursor: Cursor) -> s.Statement:
    """Parse ALTER TABLE and ALTER VIEW; the word ALTER has been read."""
    if cursor.at("DATABASE") or cursor.at("SCHEMA"):
        raise Unsupported("a database has no properties to change", statement=cursor.text)
    if cursor.skip("VIEW"):
        return _alter_view(cursor)
    cursor.expect("TABLE")
    exists = cursor.skip("IF", "EXISTS")
    chain = cursor.chain("the name of the table")
    if cursor.skip("RENAME"):
        return _rename(cursor, chain, exists=exists)
    if cursor.skip("CREATE", "OR", "REPLACE", "TAG"):
        return _tag(cursor, chain, "CREATE OR REPLACE")
    for verb in _TAG_VERBS:
        if cursor.skip(verb, "TAG"):
            return _tag(cursor, chain, verb)
    if cursor.at("DROP", "PARTITION") or cursor.at("DROP", "IF", "EXISTS", "PARTITION"):
        cursor.expect("DROP")
        cursor.skip("IF", "EXISTS")
        return _drop_partitions(cursor, chain)
    absent_ok: set[str] = set()
    changes = _changes(cursor, absent_ok)
    return s.AlterTable(
        chain=chain, changes=tuple(changes), if_exists=exists, absent_ok=frozenset(absent_ok)
    )


def parse_comment_on(cursor: Cursor) -> s.CommentOn:
    """Parse COMMENT ON TABLE | COLUMN name IS 'text' | NULL; the word COMMENT has been read."""
    cursor.expect("ON")
    is_column = cursor.skip("COLUMN")
    if not is_column:
        cursor.expect("TABLE")
    chain = cursor.chain()
    if is_column and len(chain) == 1:
        raise cursor.expected("the column as table.column")
    cursor.expect("IS")
    comment = None if cursor.skip("NULL") else cursor.string("the comment")
    if is_column:
        return s.CommentOn(chain=chain[:-1], column=chain[-1], comment=comment)
    return s.CommentOn(chain=chain, comment=comment)


def _alter_view(cursor: Cursor) -> s.Statement:
    exists = cursor.skip("IF", "EXISTS")
    chain = cursor.chain("the name of the view")
    if cursor.skip("RENAME", "TO"):
        to = cursor.chain("the new name of the view")
        return s.RenameTable(chain=chain, to=to, if_exists=exists, view=True)
    if cursor.skip("AS"):
        return s.AlterView(chain=chain, query=cursor.rest(), if_exists=exists)
    changes: list[ViewChange]
    if cursor.skip("SET", "TBLPROPERTIES"):
        changes = [
            UpdateViewComment(value) if key == _COMMENT else SetViewOption(key, value)
            for key, value in options(cursor).items()
        ]
    elif cursor.skip("UNSET", "TBLPROPERTIES"):
        cursor.skip("IF", "EXISTS")
        keys = cursor.listed(lambda: _key(cursor))
        changes = [
            UpdateViewComment(None) if key == _COMMENT else RemoveViewOption(key) for key in keys
        ]
    else:
        raise cursor.expected("RENAME TO, AS, SET TBLPROPERTIES or UNSET TBLPROPERTIES")
    return s.AlterView(chain=chain, changes=tuple(changes), if_exists=exists)


def _rename(cursor: Cursor, chain: s.Chain, *, exists: bool) -> s.Statement:
    if cursor.skip("TAG"):
        old = _tag_name(cursor)
        cursor.expect("TO")
        return s.ChangeTag(chain=chain, verb="RENAME", tag=old, to=_tag_name(cursor))
    if cursor.skip("TO"):
        to = cursor.chain("the new name")
        return s.RenameTable(chain=chain, to=to, if_exists=exists)
    cursor.skip("COLUMN")
    path = cursor.chain("a column")
    cursor.expect("TO")
    change = SchemaChange.rename_column(_path(path), cursor.name("the new name"))
    return s.AlterTable(chain=chain, changes=(change,), if_exists=exists)


def _changes(cursor: Cursor, absent_ok: set[str]) -> list[Change]:
    if cursor.skip("SET"):
        cursor.skip("TBLPROPERTIES")
        stated = options(cursor)
        return [
            SchemaChange.update_comment(value)
            if key == _COMMENT
            else SchemaChange.set_option(key, value)
            for key, value in stated.items()
        ]
    if cursor.skip("RESET") or cursor.skip("UNSET", "TBLPROPERTIES"):
        cursor.skip("IF", "EXISTS")
        return [_unset(key) for key in cursor.listed(lambda: _key(cursor))]
    if cursor.skip("ADD"):
        return _add(cursor)
    if cursor.skip("MODIFY"):
        _refuse(cursor)
        cursor.skip("COLUMN")
        return _several(cursor, _modify)
    if cursor.skip("DROP"):
        return _drop(cursor, absent_ok)
    if cursor.skip("ALTER"):
        cursor.skip("COLUMN")
        return _alter_column(cursor)
    if cursor.skip("CHANGE"):
        cursor.skip("COLUMN")
        return _change(cursor)
    if cursor.at("REPLACE", "COLUMNS"):
        raise Unsupported("REPLACE COLUMNS would drop columns; use ADD, MODIFY and DROP")
    raise cursor.expected("SET, RESET, ADD, MODIFY, RENAME, DROP, ALTER COLUMN or CHANGE COLUMN")


def _key(cursor: Cursor) -> str:
    return cursor.string("the key of an option")


def _unset(key: str) -> Change:
    if key == _COMMENT:
        return SchemaChange.update_comment(None)
    return SchemaChange.remove_option(key)


def _add(cursor: Cursor) -> list[Change]:
    if cursor.at("PARTITION") or cursor.at("IF", "NOT", "EXISTS", "PARTITION"):
        raise Unsupported("a partition exists as soon as it has rows; ADD PARTITION is not needed")
    _refuse(cursor)
    if not cursor.skip("COLUMNS"):
        cursor.skip("COLUMN")
    return _several(cursor, _add_one)


def _refuse(cursor: Cursor) -> None:
    for word in ("WATERMARK", "PRIMARY", "CONSTRAINT", "DISTRIBUTION"):
        if cursor.at(word):
            raise Unsupported(
                "the primary key, watermark and distribution of a table do not change", clause=word
            )


def _several(cursor: Cursor, one: Callable[[Cursor], list[Change]]) -> list[Change]:
    if not cursor.at_symbol("("):
        found = one(cursor)
        while cursor.skip_symbol(","):
            found = [*found, *one(cursor)]
        return found
    return [change for changes in cursor.listed(lambda: one(cursor)) for change in changes]


def _add_one(cursor: Cursor) -> list[Change]:
    path, column = _column(cursor)
    kind = column.type
    change = SchemaChange.add_column(_path(path), kind, comment=column.comment, move=_move(cursor))
    if column.default is None:
        return [change]
    return [change, SchemaChange.update_column_default_value(_path(path), column.default)]


def _modify(cursor: Cursor) -> list[Change]:
    path, column = _column(cursor)
    return _redefined(path, column.type, column.comment, _move(cursor))


def _column(cursor: Cursor) -> tuple[s.Chain, s.Column]:
    """A column name and its definition. The name may be a path into a ROW."""
    prefix: list[str] = []
    while cursor.ahead(1).kind is Kind.OTHER and cursor.ahead(1).value == ".":
        prefix.append(cursor.name("a column"))
        cursor.expect_symbol(".")
    column, _ = read_column(cursor)
    return (*prefix, column.name), column


def _redefined(path: s.Chain, kind: str, comment: str | None, move: Move | None) -> list[Change]:
    """The changes of a column, given its full new definition."""
    words = kind.upper().split()
    nullable = words[-2:] != ["NOT", "NULL"]
    bare = kind if nullable else " ".join(kind.split(" ")[:-2])
    found: list[Change] = [
        SchemaChange.update_column_type(_path(path), bare, keep_nullability=True),
        SchemaChange.update_column_nullability(_path(path), nullable),
    ]
    if comment is not None:
        found.append(SchemaChange.update_column_comment(_path(path), comment))
    if move is not None:
        found.append(SchemaChange.update_column_position(path[-1], move))
    return found


def _drop(cursor: Cursor, absent_ok: set[str]) -> list[Change]:
    _refuse(cursor)
    if not cursor.skip("COLUMNS"):
        cursor.skip("COLUMN")
    if_exists = cursor.skip("IF", "EXISTS")
    if cursor.at_symbol("("):
        paths = cursor.listed(lambda: cursor.chain("a column"))
    else:
        paths = [cursor.chain("a column")]
        while cursor.skip_symbol(","):
            paths.append(cursor.chain("a column"))
    if if_exists:
        absent_ok.update(".".join(path) for path in paths)
    return [SchemaChange.drop_column(_path(path)) for path in paths]


def _alter_column(cursor: Cursor) -> list[Change]:
    path = _path(cursor.chain("a column"))
    if cursor.skip("SET", "NOT", "NULL"):
        return [SchemaChange.update_column_nullability(path, False)]
    if cursor.skip("DROP", "NOT", "NULL"):
        return [SchemaChange.update_column_nullability(path, True)]
    if cursor.skip("SET", "DEFAULT"):
        text = cursor.rest("a value")
        literal = text[1:-1].replace("''", "'") if text[0] == text[-1] == "'" else text
        return [SchemaChange.update_column_default_value(path, literal)]
    if cursor.skip("DROP", "DEFAULT"):
        return [SchemaChange.update_column_default_value(path, None)]
    if cursor.skip("SET", "DATA"):
        cursor.expect("TYPE")
        return [SchemaChange.update_column_type(path, read_type(cursor), keep_nullability=True)]
    if cursor.skip("TYPE"):
        return [SchemaChange.update_column_type(path, read_type(cursor), keep_nullability=True)]
    if cursor.skip("COMMENT"):
        return [SchemaChange.update_column_comment(path, cursor.string("the comment"))]
    move = _move(cursor)
    if move is None:
        raise cursor.expected("TYPE, COMMENT, FIRST, AFTER, SET or DROP")
    return [SchemaChange.update_column_position(path if isinstance(path, str) else path[-1], move)]


def _change(cursor: Cursor) -> list[Change]:
    """CHANGE COLUMN old new TYPE [COMMENT] [FIRST | AFTER]."""
    old = cursor.chain("a column")
    new, column = _column(cursor)
    found: list[Change] = []
    if new[-1] != old[-1]:
        found.append(SchemaChange.rename_column(_path(old), new[-1]))
    path = (*old[:-1], new[-1])
    return found + _redefined(path, column.type, column.comment, _move(cursor))


def _move(cursor: Cursor) -> Move | None:
    if cursor.skip("FIRST"):
        return Move.first()
    if cursor.skip("LAST"):
        return Move.last()
    if cursor.skip("AFTER"):
        return Move.after(cursor.name("a column"))
    if cursor.skip("BEFORE"):
        return Move.before(cursor.name("a column"))
    return None


def _drop_partitions(cursor: Cursor, chain: s.Chain) -> s.DropPartition:
    found: list[dict[str, str | None]] = []
    while True:
        cursor.expect("PARTITION")
        found.append(partition(cursor))
        if not cursor.skip_symbol(","):
            return s.DropPartition(chain=chain, partitions=tuple(found))


def _tag_name(cursor: Cursor) -> str:
    if cursor.token.kind in {Kind.STRING, Kind.WORD, Kind.QUOTED, Kind.NUMBER}:
        return cursor.take().value
    raise cursor.expected("the name of a tag")


def _tag(cursor: Cursor, chain: s.Chain, verb: str) -> s.ChangeTag:
    exists = cursor.skip("IF", "EXISTS")
    absent = cursor.skip("IF", "NOT", "EXISTS")
    name = _tag_name(cursor)
    snapshot_id = retain = None
    if cursor.skip("AS", "OF", "VERSION"):
        snapshot_id = cursor.whole("the id of a snapshot")
    if cursor.skip("RETAIN"):
        retain = cursor.rest("a duration, such as 2 DAYS")
    return s.ChangeTag(
        chain=chain,
        verb=verb,
        tag=name,
        snapshot_id=snapshot_id,
        retain=retain,
        if_exists=exists,
        if_not_exists=absent,
    )


def _path(chain: s.Chain) -> str | s.Chain:
    """A column in the form that `SchemaChange` takes: its name, or the path to a field of a ROW."""
    return chain[0] if len(chain) == 1 else chain
