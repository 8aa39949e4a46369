"""Checks the clauses of a MERGE INTO whose expressions hold queries, and qualifies their columns.

INVARIANT: an expression uses only the columns of its own rows. Aggregates, window functions and
parameters are therefore refused. A query within an expression cannot read a whole row of the merge
(`source.*`), because the rows that DuckDB pairs have additional columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported, did_you_mean
from lakecore.model.data_types import DataType, Row
from lakecore.model.rows import ROW_KIND
from lakecore.scalar.engine import parse
from lakecore.scalar.syntax import check_fields, check_nodes
from lakecore.sql.references import placeholders
from lakecore.sql.tokens import Kind, Token, quoted, quoted_text, tokenize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import duckdb
    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions
    from lakecore.scalar.syntax_trees import Json, Node
    from lakecore.sql.statements import Chain, Merge, MergeClause


# --- assignments ---------------------------------------------------------------------------------
# Converts `SET column = expression` to the new value of each column, as an SQL expression.
#
# `SET row.field = expression` sets one field of a ROW. The new value is the whole ROW, built from
# the expression and the old values of the other fields. As in Spark, a null ROW becomes a ROW whose
# other fields are null.


def assigned(
    values: Mapping[Chain, str], schema: TableSchema, qualifier: str = ""
) -> dict[str, str]:
    """The new value of each assigned column, as SQL. Its column names start with `qualifier`."""
    types = {field.name: field.type for field in schema.fields}
    parts: dict[str, dict[Chain, str]] = {}
    for path, text in values.items():
        parts.setdefault(column_of(path[0], list(types)), {})[path[1:]] = text
    return {
        name: _value(types[name], f"{qualifier}{quoted(name)}", inner, (name,))
        for name, inner in parts.items()
    }


def _value(kind: DataType, old: str, parts: Mapping[Chain, str], path: Chain) -> str:
    """The SQL of a value.

    `parts` maps the paths of its parts to their new values; the path `()` is the whole value.
    """
    if () in parts:
        if len(parts) > 1:
            raise InvalidRequest("set the whole column or fields of it", column=".".join(path))
        return parts[()]
    if not isinstance(kind, Row):
        raise InvalidRequest(
            "only a field of a ROW can be set alone", column=".".join(path), type=str(kind)
        )
    names = [field.name for field in kind.fields]
    inner: dict[str, dict[Chain, str]] = {}
    for rest, text in parts.items():
        inner.setdefault(column_of(rest[0], names), {})[rest[1:]] = text
    fields = (
        f"{quoted_text(field.name)}: "
        + _value(
            field.type,
            f"{old}.{quoted(field.name)}",
            inner.get(field.name, {(): f"{old}.{quoted(field.name)}"}),
            (*path, field.name),
        )
        for field in kind.fields
    )
    return "{" + ", ".join(fields) + "}"


def column_of(name: str, columns: Sequence[str]) -> str:
    """The column that a name refers to: an exact match, else a case-insensitive one."""
    if name in columns:
        return name
    found = [each for each in columns if each.lower() == name.lower()]
    if len(found) != 1:
        raise InvalidRequest(
            "unknown column", column=name, **did_you_mean(name, columns), columns=list(columns)
        )
    return found[0]


def check_nested(relation: duckdb.DuckDBPyRelation, target: pa.Schema) -> None:
    """Raise InvalidRequest if the rows of a query have a nested field that its column lacks.

    `target` holds a column for each column of the query, in their order, and maybe more.
    """
    if not any("STRUCT" in str(kind) for kind in relation.types):
        return
    given = relation.limit(0).to_arrow_table().schema
    for kind, wanted in zip(given.types, target, strict=False):
        check_fields(wanted.name, kind, wanted.type)


# --- merge texts ---------------------------------------------------------------------------------

# --- qualifiers ----------------------------------------------------------------------------------
# Replaces the table names and aliases that qualify columns in an expression.
#
# In a MERGE, `source` or `target` replaces them; in an UPDATE or DELETE, they are dropped. A query
# within an expression, `(SELECT ...)`, has names of its own, and is copied unchanged.

_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def has_query(text: str) -> bool:
    """Whether an expression holds a query in parentheses."""
    tokens = tokenize(text)
    return any(
        token.word == "SELECT" or _opens_query(tokens, place) for place, token in enumerate(tokens)
    )


def renamed(text: str, names: Mapping[str, str], columns: Collection[str] = ()) -> str:
    """The text with each qualifier of `names` replaced; an empty replacement drops the qualifier.

    `names` maps a qualifier, which may have dots, to its replacement. Names match without regard to
    case. Backquotes become double quotes.

    A qualifier may also be one of `columns`. Then `name.part` means the table's column `part`, or,
    if there is no such column, the field `part` of the column `name`.
    """
    held = {column.lower() for column in columns}
    known = {tuple(name.lower().split(".")): new for name, new in names.items()}
    tokens = tokenize(text)
    pieces: list[str] = []
    copied = place = 0
    while tokens[place].kind is not Kind.END:
        token = tokens[place]
        if _opens_query(tokens, place):
            place = _end_of_query(tokens, place)
            pieces.append(text[copied : tokens[place].start])
            copied = tokens[place].start
            continue
        parts = _chain(tokens, place)
        lowered = [part.lower() for part in parts]
        size = next((n for n in (3, 2, 1) if len(parts) > n and tuple(lowered[:n]) in known), 0)
        if size == 1 and lowered[0] in held and lowered[1] not in held:
            size = 0
        pieces.append(text[copied : token.start])
        if size:
            new = known[tuple(lowered[:size])]
            pieces.append(f"{new}." if new else "")
            place += 2 * size
            copied = tokens[place].start
            parts = parts[size:]
        else:
            copied = token.start
        # The rest of the chain is copied unchanged, except for backquotes.
        steps = max(2 * len(parts) - 1, 1)
        for each in tokens[place : place + steps]:
            if each.kind is Kind.QUOTED and text[each.start] == "`":
                pieces += [text[copied : each.start], quoted(each.value)]
                copied = each.end
        place += steps
    return "".join([*pieces, text[copied:]])


def _chain(tokens: Sequence[Token], place: int) -> list[str]:
    """The names separated by dots that start at a token; empty if the token is not a name."""
    found: list[str] = []
    while tokens[place].kind in {Kind.WORD, Kind.QUOTED}:
        found.append(tokens[place].value)
        if not (tokens[place + 1].kind is Kind.OTHER and tokens[place + 1].value == "."):
            break
        place += 2
    return found


def _opens_query(tokens: Sequence[Token], place: int) -> bool:
    return _is(tokens[place], "(") and tokens[place + 1].word in _STARTS


def _end_of_query(tokens: Sequence[Token], place: int) -> int:
    """The place after the parenthesis that closes the one at `place`."""
    depth = 0
    while tokens[place].kind is not Kind.END:
        depth += _is(tokens[place], "(") - _is(tokens[place], ")")
        place += 1
        if depth == 0:
            break
    return place


def _is(token: Token, symbol: str) -> bool:
    return token.kind is Kind.OTHER and token.value == symbol


# --- merge texts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The new value of a column, of DuckDB's type `type`.

    A star sets the value of the source, in the source's type: it must fit the column exactly. Other
    values are cast to the type of the column. Two values are equal if they have the same column and
    `star`: they then have the same type, and share a column of the result.
    """

    column: str
    star: bool
    text: str = field(compare=False)
    type: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A checked clause: WHEN MATCHED, NOT MATCHED or NOT MATCHED BY SOURCE, and its action."""

    match: str
    action: str
    condition: str | None
    values: tuple[Value, ...]


def holds_query(statement: Merge) -> bool:
    """Whether ON, a condition or a value of the statement holds a query in parentheses."""
    return any(map(has_query, _texts(statement)))


def _texts(statement: Merge) -> Iterator[str]:
    yield statement.on
    for clause in statement.clauses:
        yield clause.condition or ""
        yield from (clause.values or {}).values()
        yield from clause.row or ()


def with_named_values(statement: Merge, columns: Sequence[str]) -> Merge:
    """The statement with INSERT (column, ...) VALUES in place of INSERT VALUES.

    Raises InvalidRequest unless there is a value for each column of the table.
    """
    clauses: list[MergeClause] = []
    for each in statement.clauses:
        clause, row = each, each.row
        if row is not None and len(row) != len(columns):
            raise InvalidRequest(
                "INSERT VALUES without names gives each column of the table one value",
                columns=list(columns),
                values=len(row),
            )
        if row is not None:
            values: dict[Chain, str] = dict(zip(((name,) for name in columns), row, strict=True))
            clause = replace(clause, values=values, row=None)
        clauses.append(clause)
    return replace(statement, clauses=tuple(clauses))


def side_names(statement: Merge, target: str, source: str) -> dict[str, str]:
    """The qualifiers of columns in the statement, and those that replace them.

    A name that both sides have is left out: it would not say which one is meant.
    """
    own, other = _short_names(statement)
    owns, others = {own}, {other} - {""}
    if statement.alias is None:
        owns.add(".".join(statement.chain))
    if statement.source_chain is not None and statement.source_alias is None:
        others.add(".".join(statement.source_chain))
    both = {name.lower() for name in owns} & {name.lower() for name in others}
    names = dict.fromkeys(owns, target) | dict.fromkeys(others, source)
    return {name: side for name, side in names.items() if name.lower() not in both}


def _short_names(statement: Merge) -> tuple[str, str]:
    """The names of the table and of the source, which may be equal; "" for a source without one."""
    own = statement.alias or statement.chain[-1]
    return own, statement.source_alias or (statement.source_chain or ("",))[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The expressions of a statement.

    `types` maps the columns of the table to their DuckDB types, `columns` those of the source.
    """

    statement: Merge
    schema: TableSchema
    options: TableOptions
    types: Mapping[str, str]
    columns: Mapping[str, str]

    @property
    def target(self) -> str:
        """The name of the table's rows in the expressions."""
        return self._names[0]

    @property
    def source(self) -> str:
        """The name of the source's rows in the expressions."""
        return self._names[1]

    @property
    def _names(self) -> tuple[str, str]:
        own, other = _short_names(self.statement)
        if own.lower() == other.lower():
            return "target", "source"
        return own, other or ("source" if own.lower() != "source" else "using")

    def on(self) -> str:
        """The condition ON, with qualified columns."""
        return self._text(self.statement.on)

    def steps(self) -> tuple[Step, ...]:
        """The clauses, in their order."""
        if ROW_KIND in self.columns and not self.words() & {ROW_KIND}:
            raise InvalidRequest(
                "the source has row kinds, which a merge does not follow: name the column in "
                "conditions, as in WHEN MATCHED AND source._row_kind = '-D', or leave it out",
                column=ROW_KIND,
            )
        return tuple(map(self._step, self.statement.clauses))

    def words(self) -> frozenset[str]:
        """All words in the expressions, in lower case: the names of columns are among them."""
        found = {token.value for text in _texts(self.statement) for token in tokenize(text)}
        for clause in self.statement.clauses:
            # A new value of a field becomes a new value of its whole column, which is read.
            found |= {path[0] for path in clause.values or {} if len(path) > 1}
        return frozenset(word.lower() for word in found)

    def _step(self, clause: MergeClause) -> Step:
        condition = None
        if clause.condition is not None:
            condition = self._text(clause.condition, clause.match)
        values: tuple[Value, ...] = ()
        if clause.action != "delete":
            values = tuple(self._starred(clause) if clause.values is None else self._set(clause))
        return Step(match=clause.match, action=clause.action, condition=condition, values=values)

    def _set(self, clause: MergeClause) -> Iterator[Value]:
        given = (clause.values or {}).items()
        texts = {path: self._text(text, clause.match) for path, text in given}
        for name, text in assigned(texts, self.schema, f"{quoted(self.target)}.").items():
            yield Value(column=name, star=False, text=text, type=self.types[name])

    def _starred(self, clause: MergeClause) -> Iterator[Value]:
        wanted = [name for name in self.schema.names if name != self.options.rowkind_field]
        lower = {name.lower(): name for name in self.columns}
        own = {name: name if name in self.columns else lower.get(name.lower()) for name in wanted}
        missing = [name for name, found in own.items() if found is None]
        if missing:
            raise InvalidRequest(
                "the source lacks columns of the table: name the columns and their values",
                clause=f"{clause.action} all",
                columns=missing,
            )
        keys = self.schema.primary_keys if clause.action == "update" else ()
        for name, found in own.items():
            if found is not None and name not in keys:
                text = f"{quoted(self.source)}.{quoted(found)}"
                yield Value(column=name, star=True, text=text, type=self.columns[found])

    def _text(self, text: str, match: str = "matched") -> str:
        """The checked expression, with the names of the sides as qualifiers."""
        target, source = quoted(self.target), quoted(self.source)
        names = {"target": target, "source": source} | side_names(self.statement, target, source)
        found = renamed(text, names)
        tree = parse(placeholders(found)[0])
        check_nodes(tree, queries=True)
        sides = {self.target.lower(): self.schema.names, self.source.lower(): tuple(self.columns)}
        _check_no_row(tree, sides)
        absent = {"not_matched": ("target", self.target), "by_source": ("source", self.source)}
        _check_names(tree, sides, absent.get(match, ("", "")))
        return found


def _check_names(tree: Json, sides: Mapping[str, Sequence[str]], absent: tuple[str, str]) -> None:
    """Raise InvalidRequest for a column that a side lacks, outside of queries.

    `absent` is the side that has no row in this clause, and its name.
    """
    if isinstance(tree, list):
        for each in tree:
            _check_names(each, sides, absent)
    if not isinstance(tree, dict):
        return
    if tree.get("class") == "SUBQUERY":
        _check_names(tree.get("child"), sides, absent)
        return
    parts = _column(tree)
    known = sides.get(parts[0].lower()) if len(parts) > 1 else None
    if known is not None and parts[0].lower() == absent[1].lower():
        raise InvalidRequest(f"there is no row of the {absent[0]} here", column=".".join(parts))
    if known is not None and parts[1].lower() not in {name.lower() for name in known}:
        raise InvalidRequest("unknown column", column=".".join(parts[:2]), columns=list(known))
    for value in tree.values():
        _check_names(value, sides, absent)


def _check_no_row(tree: Json, sides: Mapping[str, Sequence[str]]) -> None:
    """Raise Unsupported for `side.*`, and for the name of a side that is no column."""
    if isinstance(tree, list):
        for each in tree:
            _check_no_row(each, sides)
    if not isinstance(tree, dict):
        return
    row = str(tree.get("relation_name") or "") if tree.get("class") == "STAR" else ""
    parts = _column(tree)
    columns = {name.lower() for names in sides.values() for name in names}
    if len(parts) == 1 and parts[0].lower() not in columns:
        row = parts[0]
    if row.lower() in sides:
        raise Unsupported(
            "a query in MERGE INTO reads columns of the two sides, not a whole row; name the "
            "columns, or give the side another alias than the table in the query",
            row=row,
        )
    for value in tree.values():
        _check_no_row(value, sides)


def _column(node: Node) -> list[str]:
    """The parts of the name of a column; empty for another node."""
    parts = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
    return [str(part) for part in parts] if isinstance(parts, list) else []
