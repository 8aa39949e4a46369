"""Parsers of the statements on catalogs, databases and tables."""

from __future__ import annotations

from dataclasses import replace

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql import statements as s
from lakecore.sql.cursor import Cursor, hint_options, options
from lakecore.sql.tokens import Kind, Token

# --- parse mirror --------------------------------------------------------------------------------
# Parses the source in CREATE TABLE ... AS TABLE and CREATE DATABASE ... AS DATABASE.
#
# The statements are those of Realtime Compute for Apache Flink, which Paimon's guides use:
#
#     CREATE TABLE t ... AS TABLE source [/*+ OPTIONS(...) */] [ADD COLUMN (name AS expression,
#     ...)]
#     CREATE DATABASE d ... AS DATABASE source [INCLUDING ALL TABLES | INCLUDING TABLE 'regex']
#         [EXCLUDING TABLE 'regex'] [/*+ OPTIONS(...) */]

_MARKS = ",()="


def read_table_mirror(query: str) -> s.Mirror | None:
    """The source that `AS TABLE name` names; None if any other query follows AS."""
    cursor = Cursor(query)
    if not cursor.skip("TABLE") or not cursor.at_kind(Kind.WORD, Kind.QUOTED):
        return None
    chain = cursor.chain()
    settings = hint_options(cursor)
    computed: list[str] = []
    if cursor.skip("ADD", "COLUMN"):
        if cursor.at_symbol("("):
            computed = cursor.listed(lambda: _computed(cursor))
        else:
            computed = [_computed(cursor)]
        cursor.end()
    if not cursor.done():
        return None
    return s.Mirror(chain=chain, options=settings, computed=tuple(computed))


def _computed(cursor: Cursor) -> str:
    """`name AS function(arguments)` in the form of `--computed_column`, which has no quotes."""
    name = cursor.name("the name of a computed column")
    cursor.expect("AS")
    function = cursor.name("a function of --computed_column")
    arguments: list[str] = []
    cursor.expect_symbol("(")
    while not cursor.at_symbol(")"):
        arguments.append(_argument(cursor))
        if not cursor.skip_symbol(","):
            break
    cursor.expect_symbol(")")
    if cursor.token.word in {"FIRST", "AFTER", "COMMENT"}:
        raise Unsupported(
            "a computed column is the last one, and has no comment",
            column=name,
            clause=cursor.token.word,
        )
    return f"{name}={function}({','.join(arguments)})"


def _argument(cursor: Cursor) -> str:
    """One argument. In the form of a computed column, strings and names have no quotes."""
    place = cursor.token
    if not cursor.at_kind(Kind.STRING, Kind.QUOTED):
        return cursor.until(symbols=",")
    text = cursor.take().value
    if set(text) & set(_MARKS):
        raise cursor.error(f"an argument of a computed column has none of {_MARKS}", place)
    return text


def read_database_mirror(cursor: Cursor) -> s.Mirror:
    """The source after AS DATABASE, to the end of the statement."""
    chain = cursor.chain("the database of a source catalog")
    settings = hint_options(cursor)
    including = excluding = None
    if cursor.skip("INCLUDING", "ALL"):
        cursor.expect("TABLES")
    elif cursor.skip("INCLUDING"):
        cursor.expect("TABLE")
        including = cursor.string("a regular expression in quotes")
    if cursor.skip("EXCLUDING"):
        cursor.expect("TABLE")
        excluding = cursor.string("a regular expression in quotes")
    more = hint_options(cursor)
    twice = sorted(settings.keys() & more.keys())
    if twice:
        raise _given_twice(cursor, twice)
    cursor.end()
    return s.Mirror(
        chain=chain, options={**settings, **more}, including=including, excluding=excluding
    )


def _given_twice(cursor: Cursor, names: list[str]) -> InvalidRequest:
    return cursor.error(f"options are given twice: {', '.join(names)}")


# --- types ---------------------------------------------------------------------------------------
# Converts column types of Flink and Spark to Paimon's type strings.
#
# A type name that both engines have means Flink's type, which is also Paimon's: TIMESTAMP has no
# time zone, and BINARY has one byte. In statements of Spark (`Cursor.spark_types`) it means Spark's
# type: an instant, and any number of bytes. Names that only Spark has mean Spark's types:
# TIMESTAMP_NTZ, LONG, STRUCT.

_RENAMED = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "INT8": "BIGINT",
    "TEXT": "STRING",
    "REAL": "FLOAT",
    "TIMESTAMP_NTZ": "TIMESTAMP(6)",
    "STRUCT": "ROW",
}
_OF_SPARK = {"TIMESTAMP": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "BINARY": "BYTES"}
_ENDS = frozenset({"COMMENT", "PRIMARY", "DEFAULT", "METADATA", "FIRST", "AFTER", "CONSTRAINT"})


def read_type(cursor: Cursor) -> str:
    """The type that comes next, as Paimon's type text, with NOT NULL if it is declared."""
    first = cursor.token
    if first.kind is not Kind.WORD:
        raise cursor.expected("a type")
    parts: list[str] = []
    around: list[str] = []  # the words before the brackets that are open
    while not cursor.done():
        token = cursor.token
        symbol = token.value if token.kind is Kind.OTHER else ""
        if not around and (symbol in {",", ")"} or token.word in _ENDS):
            break
        if around and symbol == ":":  # STRUCT<name: type>
            cursor.take()
            continue
        # A field of a ROW may be called LONG.
        is_name = around[-1:] == ["ROW"] and parts[-1] in {"<", "(", ","}
        parts.append(_spelled(cursor, is_name=is_name))
        for character in symbol:
            if character in "<(":
                around.append(parts[-2].upper())
            elif character in ">)":
                around = around[:-1]
        cursor.take()
    return " ".join(parts)


def _spelled(cursor: Cursor, *, is_name: bool) -> str:
    token = cursor.token
    if token.kind is Kind.QUOTED:
        return "`" + token.value.replace("`", "``") + "`"
    if token.kind is Kind.STRING:
        return "'" + token.value.replace("'", "''") + "'"
    if is_name:
        return token.value
    after = cursor.ahead(1)
    if cursor.spark_types and after.value != "(" and after.word not in {"WITH", "WITHOUT"}:
        return _OF_SPARK.get(token.word, _RENAMED.get(token.word, token.value))
    return _RENAMED.get(token.word, token.value)


# --- parse tables --------------------------------------------------------------------------------

_NO_INDEX = (
    "Paimon's indexes are options of a table, such as 'file-index.bloom-filter.columns' = 'id'"
)
_NO_FUNCTION = "lakecore lists functions of REST catalogs, and makes none; a view may hold a query"
_NOT_CREATED = {
    "AGGREGATE": _NO_FUNCTION,
    "EXTERNAL": "a table outside of a catalog is read by its path: SELECT * FROM '/path/of/table'",
    "FUNCTION": _NO_FUNCTION,
    "INDEX": _NO_INDEX,
    "MACRO": _NO_FUNCTION,
    "MATERIALIZED": "CREATE VIEW, or CREATE TABLE ... AS and INSERT OVERWRITE",
    "SEQUENCE": "Paimon has no sequences",
    "UNIQUE": _NO_INDEX,
}


def parse_create(cursor: Cursor) -> s.Statement:
    """Parse CREATE ...; the word CREATE has been read."""
    replaces = cursor.skip("OR", "REPLACE")
    temporary = cursor.skip("TEMPORARY") or cursor.skip("TEMP")
    if cursor.skip("CATALOG"):
        name = cursor.name("the name of the catalog")
        cursor.expect("WITH")
        return s.CreateCatalog(name=name, options=options(cursor))
    if cursor.skip("DATABASE") or cursor.skip("SCHEMA"):
        return _create_database(cursor)
    if cursor.skip("VIEW"):
        return _create_view(cursor, temporary=temporary, replaces=replaces)
    if cursor.token.word in _NOT_CREATED:
        raise Unsupported(f"CREATE {cursor.token.word}: {_NOT_CREATED[cursor.token.word]}")
    if not cursor.skip("TABLE"):
        raise cursor.expected("CATALOG, DATABASE, TABLE or VIEW")
    if replaces and cursor.at("IF"):
        raise cursor.error("a table that is replaced takes no IF NOT EXISTS")
    return _create_table(cursor, temporary=temporary, replaces=replaces)


def _create_database(cursor: Cursor) -> s.CreateDatabase:
    absent = cursor.skip("IF", "NOT", "EXISTS")
    chain = cursor.chain("the name of the database")
    settings: dict[str, str] = {}
    if cursor.at("WITH") and cursor.ahead(1).value == "(":
        cursor.take()
        settings = options(cursor)
    mirror = read_database_mirror(cursor) if cursor.skip("AS", "DATABASE") else None
    if not cursor.done() or (settings and mirror is None):
        raise Unsupported(
            "a database has no comment, location or properties here: write CREATE DATABASE "
            f"{'.'.join(chain)}, or CREATE DATABASE ... AS DATABASE source.database"
        )
    return s.CreateDatabase(chain=chain, if_not_exists=absent, options=settings, mirror=mirror)


def parse_replace(cursor: Cursor) -> s.Statement:
    """Parse REPLACE TABLE, as in Spark; the word REPLACE has been read."""
    if cursor.at("INTO"):
        raise Unsupported(
            "REPLACE INTO: an INSERT into a table with a primary key replaces the rows of the same "
            "keys"
        )
    cursor.expect("TABLE")
    found = _create_table(cursor, temporary=False, replaces=True)
    if found.query is not None:
        raise cursor.error("REPLACE TABLE takes no query; say CREATE OR REPLACE TABLE ... AS")
    return replace(found, existing=True)


def _create_view(cursor: Cursor, *, temporary: bool, replaces: bool) -> s.CreateView:
    absent = cursor.skip("IF", "NOT", "EXISTS")
    chain = cursor.chain("the name of the view")
    columns = tuple(cursor.listed(cursor.name)) if cursor.at_symbol("(") else ()
    comment = cursor.string("the comment") if cursor.skip("COMMENT") else None
    settings = options(cursor) if cursor.skip("TBLPROPERTIES") else {}
    if comment is None and cursor.skip("COMMENT"):
        comment = cursor.string("the comment")
    cursor.expect("AS")
    return s.CreateView(
        chain=chain,
        comment=comment,
        query=cursor.query(),
        temporary=temporary,
        replace=replaces,
        if_not_exists=absent,
        columns=columns,
        options=settings,
    )


def _create_table(cursor: Cursor, *, temporary: bool, replaces: bool) -> s.CreateTable:
    absent = cursor.skip("IF", "NOT", "EXISTS")
    chain = cursor.chain("the name of the table")
    columns: list[s.Column] = []
    keys: list[str] = []
    partitions: list[str] = []
    settings: dict[str, str] = {}
    comment = query = like = mirror = None
    if cursor.at_symbol("("):
        columns, keys = read_columns(cursor)
    while not cursor.done():
        if cursor.skip("WITH") or cursor.skip("TBLPROPERTIES") or cursor.skip("OPTIONS"):
            settings |= options(cursor)
        elif cursor.skip("PARTITIONED", "BY"):
            more, _ = read_columns(cursor, names_only=True)
            columns += [column for column in more if column.type]
            partitions += [column.name for column in more]
        elif cursor.skip("COMMENT"):
            comment = cursor.string("the comment")
        elif cursor.skip("USING"):
            provider = cursor.name("paimon")
            if provider.lower() not in {"paimon", "lakecore"}:
                raise Unsupported("only Paimon tables can be created: USING paimon", using=provider)
        elif cursor.skip("LIKE"):
            like = cursor.chain("the name of a table")
            _like_options(cursor)
        elif cursor.skip("AS"):
            query = cursor.query()
            mirror = read_table_mirror(query)
        elif cursor.at("DISTRIBUTED") or cursor.at("CLUSTERED") or cursor.at("LOCATION"):
            raise Unsupported(
                "set buckets and the path by options: 'bucket', 'bucket-key', 'path'",
                clause=cursor.token.word,
            )
        else:
            raise cursor.expected("WITH, TBLPROPERTIES, PARTITIONED BY, COMMENT, LIKE or AS")
    stated = _spark_keys(settings)
    if keys and stated:
        raise InvalidRequest("the primary key is stated twice", first=keys, second=stated)
    keys = keys or stated
    return s.CreateTable(
        chain=chain,
        columns=tuple(columns),
        primary_keys=tuple(keys),
        partition_keys=tuple(partitions),
        options=settings,
        comment=comment,
        if_not_exists=absent,
        temporary=temporary,
        replace=replaces,
        query=query,
        like=like,
        mirror=mirror,
    )


def _spark_keys(settings: dict[str, str]) -> list[str]:
    """The primary key in Spark's property `primary-key`, which is removed from the options."""
    text = settings.pop("primary-key", "")
    return [name.strip() for name in text.split(",") if name.strip()]


def _like_options(cursor: Cursor) -> None:
    """Raise an error for `(EXCLUDING OPTIONS)` and similar lists: LIKE copies the whole table."""
    if cursor.at_symbol("("):
        raise Unsupported("LIKE copies columns, keys and options; it takes no list of parts")


def read_columns(cursor: Cursor, *, names_only: bool = False) -> tuple[list[s.Column], list[str]]:
    """`( column type ..., PRIMARY KEY (...) NOT ENFORCED )`: columns and primary key.

    With `names_only`, the type of a column may be missing; it is then empty.
    """
    columns: list[s.Column] = []
    keys: list[str] = []

    def add_keys(names: list[str], place: Token) -> None:
        if keys:
            raise cursor.error("the primary key is stated twice", place)
        keys.extend(names)

    def one() -> None:
        place = cursor.token
        if cursor.skip("CONSTRAINT"):
            cursor.name("the name of the constraint")
        if cursor.skip("PRIMARY", "KEY"):
            add_keys(cursor.listed(cursor.name), place)
            _not_enforced(cursor)
        elif cursor.at("WATERMARK"):
            raise Unsupported(
                "WATERMARK is not supported here; set the watermark when rows are written"
            )
        elif names_only and cursor.ahead(1).kind is Kind.OTHER:
            columns.append(s.Column(name=cursor.name("a column"), type=""))
        else:
            column, is_key = read_column(cursor)
            columns.append(column)
            if is_key:
                add_keys([column.name], place)

    cursor.listed(one)
    return columns, keys


def read_column(cursor: Cursor) -> tuple[s.Column, bool]:
    """A column, and whether it is declared as the primary key."""
    name = cursor.name("the name of a column")
    if cursor.at("AS"):
        raise Unsupported("computed columns are not stored by Paimon", column=name)
    kind = read_type(cursor)
    comment = default = None
    is_key = False
    while True:
        if cursor.skip("COMMENT"):
            comment = cursor.string("the comment")
        elif cursor.skip("DEFAULT"):
            default = _default(cursor.until("COMMENT", "PRIMARY", symbols=","))
        elif cursor.skip("PRIMARY", "KEY"):
            _not_enforced(cursor)
            is_key = True
        elif cursor.at("METADATA"):
            raise Unsupported("Paimon has no METADATA columns", column=name)
        else:
            return s.Column(name=name, type=kind, comment=comment, default=default), is_key


def _default(text: str) -> str:
    """A default value as Paimon stores it: the text of the literal, without quotes."""
    quoted_ = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if quoted_ else text


def _not_enforced(cursor: Cursor) -> None:
    if not cursor.skip("NOT", "ENFORCED"):
        cursor.skip("ENFORCED")


def partition(cursor: Cursor) -> dict[str, str | None]:
    """`( key = value, key )`: values as strings, None for a key without a value."""
    found: dict[str, str | None] = {}

    def one() -> None:
        name = cursor.name("a partition key")
        if not cursor.skip_symbol("="):
            found[name] = None
            return
        cursor.skip("DATE")
        cursor.skip("TIMESTAMP")
        sign = "-" if cursor.skip_symbol("-") else ""
        token = cursor.token
        if token.kind not in {Kind.STRING, Kind.NUMBER} and token.word not in {"TRUE", "FALSE"}:
            raise cursor.expected("the value of a partition key")
        found[name] = sign + cursor.take().value

    cursor.listed(one)
    return found


def parse_drop(cursor: Cursor) -> s.Statement:
    """Parse DROP ...; the word DROP has been read."""
    temporary = cursor.skip("TEMPORARY") or cursor.skip("TEMP")
    what = cursor.take().word
    exists = cursor.skip("IF", "EXISTS")
    match what:
        case "CATALOG":
            return s.DropCatalog(name=cursor.name("the name of the catalog"), if_exists=exists)
        case "DATABASE" | "SCHEMA":
            chain = cursor.chain("the name of the database")
            cascade = cursor.skip("CASCADE")
            if not cascade:
                cursor.skip("RESTRICT")
            return s.DropDatabase(chain=chain, if_exists=exists, cascade=cascade)
        case "TABLE" | "VIEW":
            chain = cursor.chain("the name of the table")
            cursor.skip("PURGE")
            if cursor.at_symbol(","):
                raise Unsupported(f"drop each {what.lower()} by a statement of its own")
            return s.Drop(chain=chain, if_exists=exists, view=what == "VIEW", temporary=temporary)
    raise cursor.error("expected CATALOG, DATABASE, TABLE or VIEW after DROP")


def parse_truncate(cursor: Cursor) -> s.Statement:
    """Parse TRUNCATE [TABLE]; the word TRUNCATE has been read."""
    cursor.skip("TABLE")
    chain = cursor.chain("the name of the table")
    if cursor.skip("PARTITION"):
        return s.DropPartition(chain=chain, partitions=(partition(cursor),))
    return s.Truncate(chain=chain)


def parse_analyze(cursor: Cursor) -> s.Analyze:
    """Parse ANALYZE TABLE; the word ANALYZE has been read."""
    cursor.expect("TABLE")
    chain = cursor.chain("the name of the table")
    cursor.expect("COMPUTE", "STATISTICS")
    if cursor.skip("FOR", "ALL", "COLUMNS"):
        return s.Analyze(chain=chain, columns=None)
    if not cursor.skip("FOR", "COLUMNS"):
        return s.Analyze(chain=chain)
    if cursor.at_symbol("("):
        return s.Analyze(chain=chain, columns=tuple(cursor.listed(cursor.name)))
    names = [cursor.name("a column")]
    while cursor.skip_symbol(","):
        names.append(cursor.name("a column"))
    return s.Analyze(chain=chain, columns=tuple(names))
