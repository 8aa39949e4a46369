"""Parses an SQL string into a checked expression over the columns of a schema.

1. DuckDB's parser makes a tree of the text (`engine.py`).
2. Expressions that read several rows, other tables or files, or depend on chance, raise an error:
   the class of a node, or the function that it calls, decides.
3. Columns are found as SQL finds them: by exact name, else case-insensitively. A column may be
   qualified with the name of the table; the parts after the column are fields of a ROW.
4. In the text, each column gets a unique name, because DuckDB does not distinguish `ID` from `id`
   and could take the wrong column. Functions of the clock become the time of the statement.
5. DuckDB binds the text to empty columns of these types, which gives the result type (`bound`).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported, did_you_mean
from lakecore.rows.fit import check_names
from lakecore.scalar import engine
from lakecore.scalar.engine import catalog, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore.scalar.syntax_trees import Json, Node


# --- names ---------------------------------------------------------------------------------------
# Finds columns by names in SQL text: exact match first, then case-insensitive.

Find: TypeAlias = "Callable[[list[str]], tuple[str, list[str]]]"
"""Returns the column that a dotted name means, and the parts of the name that select a field."""


def finder(types: Mapping[str, object], table: str) -> Find:
    """A function that finds columns of one table, also if qualified with the table's name."""
    own = [part.lower() for part in table.rstrip("/").replace("/", ".").split(".") if part]

    def find(parts: list[str]) -> tuple[str, list[str]]:
        found = find_name(parts[0], types)
        if found is not None:
            return found, parts[1:]
        # `orders.id` or `shop.orders.id`: the column is qualified with the end of the table's name.
        for length in range(1, len(parts)):
            words = [part.lower() for part in parts[:length]]
            found = find_name(parts[length], types)
            if found is not None and own[-length:] == words:
                return found, parts[length + 1 :]
        raise unknown_column(".".join(parts), types)

    return find


def find_name(name: str, types: Mapping[str, object]) -> str | None:
    """The column of that name, in any case; None if there is none.

    Raises InvalidRequest if several columns match.
    """
    if name in types:
        return name
    found = [other for other in types if other.lower() == name.lower()]
    if len(found) > 1:
        raise InvalidRequest("ambiguous column", column=name, columns=found)
    return found[0] if found else None


def unknown_column(name: str, types: Mapping[str, object]) -> InvalidRequest:
    """The error for a name that is not a column; it suggests the most similar column."""
    return InvalidRequest(
        "unknown column", column=name, **did_you_mean(name, types), columns=list(types)
    )


# --- struct fields -------------------------------------------------------------------------------
# Checks that values for a ROW column have only its fields: DuckDB's cast would drop others.


def check_fields(column: str, given: pa.DataType, wanted: pa.DataType) -> None:
    """Raise InvalidRequest if values of type `given` have a field that the column's type lacks.

    Names are compared in any case, as DuckDB does. Fields that are missing become null. The fields
    of `ROW(1, 2)`, which has no names (DuckDB 2 counts them), are taken by position.
    """
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in given]
        if not any(names) or names == [f"element{each}" for each in range(1, len(names) + 1)]:
            pairs = list(zip(given, wanted, strict=False))
        else:
            known = {field.name.lower(): field for field in wanted}
            strange = [name for name in names if name.lower() not in known]
            check_names(strange, [field.name for field in wanted], inside=f"{column}.")
            pairs = [(field, known[field.name.lower()]) for field in given]
        for field, other in pairs:
            check_fields(f"{column}.{other.name}", field.type, other.type)
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        check_fields(f"{column}.key", given.key_type, wanted.key_type)
        check_fields(f"{column}.value", given.item_type, wanted.item_type)
    elif _is_list(given) and _is_list(wanted):
        check_fields(f"{column}.element", given.value_type, wanted.value_type)


def _is_list(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


# --- syntax --------------------------------------------------------------------------------------

# --- functions -----------------------------------------------------------------------------------
# The functions that an expression may call: those that depend only on their arguments.
#
# DuckDB's own catalog describes each function. Deterministic scalar functions are allowed, and
# macros made of them. These are refused: aggregates and window functions, which need several rows;
# functions that change the number of rows; random functions; and functions that describe the
# database itself. The clock is read once per statement, by `syntax.py`.

_ROWS = frozenset({"unnest", "unlist"})
_SURROUNDINGS = frozenset(
    {
        "alias",
        "current_database",
        "current_schema",
        "current_schemas",
        "current_setting",
        "getenv",
        "getvariable",
        "in_search_path",
        "json_deserialize_sql",
        "json_serialize_plan",
        "json_serialize_sql",
        "txid_current",
        "version",
    }
)
_CHANCE = frozenset({"gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
_PURE = frozenset({"error"})
"""Functions that are allowed although DuckDB calls them volatile: the argument decides the result.
"""


def check_function(name: str, argument_count: int) -> None:
    """Raise Unsupported for a function that an expression may not call."""
    refusal = _refusal(name.lower())
    if name.lower() == "age" and argument_count == 1:
        refusal = "reads the clock: give it now() as its first argument"
    if refusal is not None:
        raise Unsupported(f"an SQL expression cannot call a function that {refusal}", function=name)


def is_function(name: str) -> bool:
    """Whether DuckDB has a function of that name."""
    return name.lower() in _kinds()


def refusal_in_query(name: str) -> str | None:
    """The reason why the query of a stored view must not call a function; None if it may.

    The query may call functions of DuckDB that compute a value, also from the clock or by chance,
    and aggregate and window functions.
    """
    name = name.lower()
    kinds = _kinds().get(name, {})
    if name in _CHANCE or name in _ROWS or "aggregate" in kinds or "window" in kinds:
        return None
    return _refusal(name) if kinds else "is none of DuckDB's"


@cache
def reserved_words() -> frozenset[str]:
    """The keywords that cannot be a column name without quotes."""
    rows = catalog(
        "SELECT lower(keyword_name) FROM duckdb_keywords() "
        "WHERE keyword_category IN ('reserved', 'type_function')"
    )
    return frozenset(str(word) for (word,) in rows)


def takes_lambda(name: str) -> bool:
    """Whether an argument of the function may be a lambda."""
    return name.lower() in _lambda_functions()


def calls(tree: Json) -> Iterator[Node]:
    """The function calls of a syntax tree."""
    if isinstance(tree, dict):
        if tree.get("class") == "FUNCTION":
            yield tree
        for value in tree.values():
            yield from calls(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from calls(each)


@cache
def _refusal(name: str) -> str | None:
    """The reason why a function is not allowed; None if it is allowed, or does not exist."""
    if name.startswith("__") or name in _SURROUNDINGS:
        return "tells of the database and not of its arguments"
    if name in _ROWS:
        return "gives another number of rows"
    kinds = _kinds().get(name, {})
    if "scalar" in kinds:
        volatile = "VOLATILE" in kinds["scalar"] and name not in _PURE
        return "gives another value at each call" if volatile else None
    if "macro" in kinds:
        return next(filter(None, map(_refusal_of_macro, kinds["macro"])), None)
    if "aggregate" in kinds or "window" in kinds:
        return "looks at several rows: an aggregate or window function"
    return "gives a table" if kinds else None


def _refusal_of_macro(definition: str) -> str | None:
    tree = parse(definition)
    if _holds(tree, "SUBQUERY"):
        return "is a query"
    for call in calls(tree):
        refusal = _refusal(str(call["function_name"]).lower())
        if refusal is not None:
            return refusal
    words = {str(name) for name in _column_words(tree)}
    clock = words & {"current_timestamp", "current_date", "current_time"}
    return "reads the clock: use now()" if clock else None


def _holds(tree: Json, kind: str) -> bool:
    if isinstance(tree, dict):
        return tree.get("class") == kind or any(_holds(each, kind) for each in tree.values())
    return isinstance(tree, list) and any(_holds(each, kind) for each in tree)


def _column_words(tree: Json) -> Iterator[Json]:
    if isinstance(tree, dict):
        names = tree.get("column_names")
        if isinstance(names, list) and len(names) == 1:
            yield names[0]
        for value in tree.values():
            yield from _column_words(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from _column_words(each)


@cache
def _kinds() -> dict[str, dict[str, frozenset[str]]]:
    """For each function name and kind: its stabilities, or the definitions of a macro."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    rows = catalog(
        "SELECT lower(function_name), function_type, coalesce(macro_definition, stability, '') "
        "FROM duckdb_functions()"
    )
    for name, kind, fact in rows:
        kinds = found.setdefault(str(name), {})
        kinds[str(kind)] = kinds.get(str(kind), frozenset()) | {str(fact)}
    return found


@cache
def _lambda_functions() -> frozenset[str]:
    rows = catalog(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
        "WHERE list_contains(parameter_types, 'LAMBDA')"
    )
    return frozenset(str(name) for (name,) in rows)


# --- syntax --------------------------------------------------------------------------------------

ROWS = "_lakecore_rows"
_COLUMN = re.compile(r'"?_lakecore_column_(\d+)"?')
_REFUSED = {
    "SUBQUERY": "a query",
    "WINDOW": "a window function",
    "STAR": "a star",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its number",
    "DEFAULT": "DEFAULT",
}
_GRAMMAR = frozenset(
    re.findall(
        r"\w+",
        """
    all and any array as between both case cast collate distinct else end escape exists false
    for from glob ilike in is isnull lambda leading like map not notnull null or select
    similar some struct then trailing true try_cast when
""",
    )
)
"""Keywords that an expression is made of: as names of columns they need their quotes."""
_CLOCK = {
    "now": "TIMESTAMPTZ",
    "get_current_timestamp": "TIMESTAMPTZ",
    "transaction_timestamp": "TIMESTAMPTZ",
    "current_timestamp": "TIMESTAMPTZ",
    "current_date": "DATE",
    "today": "DATE",
    "localtimestamp": "TIMESTAMP",
    "current_localtimestamp": "TIMESTAMP",
    "localtime": "TIME",
    "current_localtime": "TIME",
    "current_time": "TIMETZ",
    "get_current_time": "TIMETZ",
}
_CLOCK_WORDS = ("current_timestamp", "current_date", "current_time", "localtime", "localtimestamp")
_UNIX = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The context of a statement.

    A clock, a time zone (empty: the machine's), and the name of the table, whose last parts may
    qualify a column.
    """

    now_ms: Callable[[], int]
    zone: str = ""
    table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """A checked expression; `text` is what the caller wrote.

    In `sql`, columns have numbers instead of names; `columns[i]` is the name of column number i.
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    zone: str
    type: pa.DataType
    tree: Node = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


def parse_sql(
    text: str,
    types: Mapping[str, pa.DataType],
    setting: Setting,
    find: Find | None = None,
    what: str = "expression",
) -> Sql:
    """Parse an expression over columns of these types. The result type is not determined yet.

    `what` names the text in errors. Raises InvalidRequest for bad SQL, names or types; Unsupported
    for SQL that an expression over one row may not contain.
    """
    if "\0" in text:
        reason = "a text cannot hold a zero byte"
        raise InvalidRequest(f"bad SQL {what}", text=repr(text), reason=reason)
    tree, plain = _tree(text, types, what)
    check_nodes(tree)
    zone = setting.zone or engine.local_zone()
    writer = _Writer(text=plain, find=find or finder(types, setting.table), setting=setting)
    sql = writer.rewritten(tree)
    columns = tuple(writer.columns)
    for name in columns:
        _check_type(name, types[name])
    new_tree = engine.parse(sql)
    numbers = {column_number(names[0]) for names in _free_names(new_tree, frozenset())}
    if numbers != set(range(len(columns))):
        raise Unsupported("this SQL text is not understood", text=text)
    return Sql(text=text, sql=sql, columns=columns, zone=zone, type=pa.null(), tree=new_tree)


def bound(sql: Sql, types: Mapping[str, pa.DataType], what: str = "expression") -> Sql:
    """The expression with the type of its value.

    Raises InvalidRequest for a function or operator that does not exist for these types.
    """
    return replace(sql, type=_type_of(sql, types, what))


def _tree(text: str, types: Mapping[str, pa.DataType], what: str) -> tuple[Node, str]:
    """The syntax tree of a text, and the text, in which columns named like a keyword are quoted.

    `at < 2` is not valid SQL, because AT is a keyword. If the table has a column `at`, the word
    means the column.
    """
    try:
        return engine.parse(text, what), text
    except InvalidRequest as error:
        if "position" not in error.facts:
            raise
        names = {part for name in types for part in (name.lower(), name.lower().rpartition(".")[2])}
        plain = engine.quoted_words(text, (names & reserved_words()) - _GRAMMAR)
        if plain == text:
            raise
        try:
            return engine.parse(plain, what), plain
        except InvalidRequest:
            raise error from None


def _type_of(sql: Sql, types: Mapping[str, pa.DataType], what: str) -> pa.DataType:
    """The type of the value. Raises InvalidRequest if the expression does not fit its columns."""
    empty = {name: pa.array([], types[name]) for name in sql.columns}
    query = f"SELECT ({sql.sql}\n) AS value FROM {ROWS}"
    try:
        value = engine.evaluate(query, {ROWS: placed(pa.table(empty), sql.columns)}, sql.zone)
    except duckdb.Error as error:
        raise explained(error, sql, f"bad SQL {what}") from error
    return value.schema.field(0).type


def placed(rows: pa.Table, columns: tuple[str, ...], begin: int = 0) -> pa.Table:
    """The columns renamed to their numbers (`Sql.sql`), in types that DuckDB compares exactly."""
    arrays = [_shown(rows.column(name)) for name in columns]
    if not arrays:
        arrays = [pa.chunked_array([pa.nulls(rows.num_rows)])]
    names = [f"_lakecore_column_{begin + number}" for number in range(len(arrays))]
    return pa.table(dict(zip(names, arrays, strict=True)))


def explained(error: duckdb.Error, sql: Sql, message: str, **facts: object) -> InvalidRequest:
    """The error for an expression that DuckDB rejects, with the table's own column names."""

    def name(match: re.Match[str]) -> str:
        number = int(match[1])
        return sql.columns[number] if number < len(sql.columns) else match[0]

    reason = _COLUMN.sub(name, engine.reason_of(error))
    return InvalidRequest(message, text=sql.text, reason=reason, **facts)


def _shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that DuckDB compares exactly with the literals of the expression.

    DuckDB would round a literal to the unit of a timestamp column in seconds or milliseconds.
    """
    kind = _shown_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _shown_type(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    if t.is_dictionary(kind):
        return _shown_type(kind.value_type)
    if t.is_struct(kind):
        return pa.struct([_shown_field(kind.field(index)) for index in range(kind.num_fields)])
    if t.is_map(kind):
        return pa.map_(_shown_field(kind.key_field), _shown_field(kind.item_field))
    return pa.list_(_shown_field(kind.value_field)) if t.is_list(kind) else kind


def _shown_field(field: pa.Field) -> pa.Field:
    return field.with_type(_shown_type(field.type))


def _check_type(name: str, kind: pa.DataType) -> None:
    """Raise Unsupported for a column whose fields DuckDB cannot distinguish."""
    if pa.types.is_struct(kind):
        fields = [kind.field(index).name.lower() for index in range(kind.num_fields)]
        if len(set(fields)) < len(fields):
            raise Unsupported(
                "SQL cannot distinguish fields of a ROW that differ only by case", column=name
            )
    for index in range(kind.num_fields):
        _check_type(name, kind.field(index).type)


# --- what is refused ----------------------------------------------------------------------------


def check_nodes(tree: Json, *, queries: bool = False) -> None:
    """Raise Unsupported for a node that reads several rows or depends on chance.

    With `queries`, a query is allowed, and what it consists of is not checked.
    """
    if isinstance(tree, list):
        for each in tree:
            check_nodes(each, queries=queries)
    if not isinstance(tree, dict):
        return
    kind = str(tree.get("class"))
    if kind == "SUBQUERY" and queries:
        check_nodes(tree.get("child"), queries=True)
        return
    refused = _REFUSED.get(kind)
    if refused is not None:
        raise Unsupported(f"an SQL expression over one row cannot hold {refused}")
    if kind == "FUNCTION":
        _check_call(tree)
    for value in tree.values():
        check_nodes(value, queries=queries)


def _check_call(call: Node) -> None:
    name, arguments = str(call["function_name"]), call.get("arguments")
    if call.get("schema") or call.get("catalog"):
        raise Unsupported("a function is called by its name alone", function=name)
    extras = ("filter", "distinct", "export_state")
    orders = call.get("order_bys")
    ordered = isinstance(orders, dict) and bool(orders.get("orders"))
    if ordered or any(call.get(key) for key in extras):
        raise Unsupported(
            "an SQL expression cannot call a function that looks at several rows", function=name
        )
    if name.lower() not in _CLOCK:
        check_function(name, len(arguments) if isinstance(arguments, list) else 0)


# --- names --------------------------------------------------------------------------------------


def _free_names(tree: Json, bound: frozenset[str]) -> Iterator[list[str]]:
    """The dotted names in a tree, except parameters of a lambda."""
    for node in _free_columns(tree, bound):
        yield _parts(node)


def _free_columns(tree: Json, bound: frozenset[str], *, called: bool = False) -> Iterator[Node]:
    if isinstance(tree, list):
        for each in tree:
            yield from _free_columns(each, bound, called=called)
    if not isinstance(tree, dict):
        return
    match tree.get("class"):
        case "COLUMN_REF":
            if _parts(tree)[0].lower() not in bound:
                yield tree
        case "LAMBDA" if called or tree.get("syntax_type") == "LAMBDA_KEYWORD":
            inner = bound | {parts[0].lower() for parts in _free_names(tree["lhs"], frozenset())}
            yield from _free_columns(tree["expr"], inner)
        case "FUNCTION":
            lambdas = takes_lambda(str(tree["function_name"]))
            yield from _free_columns(tree["arguments"], bound, called=lambdas)
        case None:  # the argument of a call, with its name
            for value in tree.values():
                yield from _free_columns(value, bound, called=called)
        case _:
            for value in tree.values():
                yield from _free_columns(value, bound)


def _parts(node: Node) -> list[str]:
    names = node["column_names"]
    assert isinstance(names, list)
    return [str(name) for name in names]


def column_number(name: str) -> int:
    """The number of the column with this name in `Sql.sql`; -1 for other names."""
    match = _COLUMN.fullmatch(name)
    return -1 if match is None else int(match[1])


@dataclass(kw_only=True)
class _Writer:
    """Writes the text with columns replaced by numbers, in order of appearance."""

    text: str
    find: Find
    setting: Setting
    columns: dict[str, int] = field(default_factory=dict)
    _now: str = ""

    def rewritten(self, tree: Node) -> str:
        """The text with each column and each function of the current time replaced."""
        changes: list[tuple[int, int, str]] = []
        for node in _free_columns(tree, frozenset()):
            begin, end = _span(node, self.text)
            quoted = self.text.encode()[begin:end].startswith(b'"')
            changes.append((begin, end, self._named(_parts(node), quoted=quoted)))
        for call in calls(tree):
            kind = _CLOCK.get(str(call["function_name"]).lower())
            if kind is not None:
                if call.get("arguments"):
                    raise InvalidRequest("the clock takes no argument", text=self.text)
                changes.append((*_span(call, self.text), self._clock(kind)))
        data = self.text.encode()
        for begin, end, new in sorted(changes, reverse=True):
            data = data[:begin] + new.encode() + data[end:]
        return data.decode()

    def _named(self, parts: list[str], *, quoted: bool) -> str:
        try:
            name, fields = self.find(parts)
        except InvalidRequest as error:
            word = parts[0].lower()
            if len(parts) == 1 and word in _CLOCK_WORDS:
                return self._clock(_CLOCK[word])
            # "tea" is the name of a column, 'tea' a text.
            hint = "; a text stands in single quotes" if quoted and len(parts) == 1 else ""
            raise InvalidRequest(error.message + hint, **error.facts, text=self.text) from error
        number = self.columns.setdefault(name, len(self.columns))
        rest = ['"' + each.replace('"', '""') + '"' for each in fields]
        return ".".join([f"_lakecore_column_{number}", *rest])

    def _clock(self, kind: str) -> str:
        if not self._now:
            at = _UNIX + dt.timedelta(milliseconds=self.setting.now_ms())
            self._now = f"CAST('{at:%Y-%m-%d %H:%M:%S.%f}+00' AS TIMESTAMPTZ)"
        if kind == "TIME":  # a time of day is only in a time without zone
            return f"CAST(CAST({self._now} AS TIMESTAMP) AS TIME)"
        return self._now if kind == "TIMESTAMPTZ" else f"CAST({self._now} AS {kind})"


def _span(node: Node, text: str) -> tuple[int, int]:
    begin, length = node["query_location"], node["query_location_length"]
    assert isinstance(begin, int)
    assert isinstance(length, int)
    if begin < 0 or length <= 0:
        raise Unsupported("this SQL text is not understood", text=text)
    return begin, begin + length
