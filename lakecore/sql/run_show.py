"""SHOW and DESCRIBE: catalogs, databases, tables and their details, as rows."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import parse_identifier
from lakecore.errors import InvalidRequest, NotFound, Unsupported, did_you_mean
from lakecore.model.types import Field, with_nullable
from lakecore.sql.stored_views import create_view_text, list_views, view_of
from lakecore.sql.tokens import quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakecore.catalog.views import View
    from lakecore.model.schema import TableSchema
    from lakecore.sql.statements import Chain, Describe, Show
    from lakecore.sql.workspace import Workspace

Rows = tuple[tuple[str, ...], list[tuple[object, ...]]]
"""The names of the columns, and the rows."""


def show(workspace: Workspace, statement: Show) -> Rows:
    """The rows of a SHOW statement."""
    match statement.what:
        case "current catalog":
            return ("catalog",), [(workspace.catalog_name,)]
        case "current database":
            return ("database",), [(workspace.database,)]
        case "variables":
            return ("key", "value"), sorted(workspace.variables.items())
        case "create":
            return ("statement",), [(create_text(workspace, statement),)]
        case "create database":
            return ("statement",), [(_database_text(workspace, statement.chain),)]
        case "create view":
            return ("statement",), [(create_view_text(workspace, statement.chain),)]
        case "properties":
            schema = workspace.table(statement.chain).schema
            stated = schema.stated_options.items()
            return ("key", "value"), sorted(
                (key, value) for key, value in stated if statement.like in {None, key}
            )
        case "partitions" if statement.partition:
            return ("partition",), [
                (name,)
                for name in _partitions(workspace, statement.chain)
                if _is_within(workspace, statement, name)
            ]
    find = _NAMES.get(statement.what)
    if find is None:
        raise Unsupported("SHOW has no such list", what=statement.what)
    return _listed(
        statement.what.removesuffix("s").replace("branche", "branch"),
        find(workspace, statement.chain),
        statement.like,
    )


def _databases(workspace: Workspace, chain: Chain) -> list[str]:
    catalog = workspace.catalog_of(chain[0]) if chain else workspace.catalog
    return list(catalog.list_databases())


def _tables(workspace: Workspace, chain: Chain) -> list[str]:
    catalog, database = workspace.databases(chain)
    if chain:
        return list(catalog.list_tables(database))
    stored = catalog.list_tables(database) if catalog.database_exists(database) else ()
    return [*stored, *sorted({*workspace.temporary, *workspace.generators})]


def _columns(workspace: Workspace, chain: Chain) -> list[str]:
    return [field.name for field in workspace.table(chain).schema.fields]


def _partitions(workspace: Workspace, chain: Chain) -> list[str]:
    rows = workspace.table((*chain[:-1], f"{chain[-1]}$partitions")).to_arrow(["partition"])
    return sorted(rows.column(0).to_pylist())


def _is_within(workspace: Workspace, statement: Show, name: str) -> bool:
    """Whether a partition, named as `dt=a/hh=1`, has the values of the statement's PARTITION."""
    keys = workspace.table(statement.chain).schema.partition_keys
    wanted = statement.partition or {}
    for key in wanted:
        if key not in keys:
            raise InvalidRequest("this is not a partition key", column=key, partition_keys=keys)
    values = dict(zip(keys, (each.partition("=")[2] for each in name.split("/")), strict=True))
    return all(values[key] == value for key, value in wanted.items())


def _tags(workspace: Workspace, chain: Chain) -> list[str]:
    catalog, identifier = workspace.identifier(chain)
    return list(catalog.list_tags(identifier))


def _branches(workspace: Workspace, chain: Chain) -> list[str]:
    catalog, identifier = workspace.identifier(chain)
    return list(catalog.list_branches(identifier))


def _functions(workspace: Workspace, chain: Chain) -> list[str]:
    catalog, database = workspace.known_database(chain)
    return [] if catalog.functions is None else list(catalog.functions.names(database))


_NAMES: dict[str, Callable[[Workspace, Chain], list[str]]] = {
    "catalogs": lambda workspace, _chain: sorted([*workspace.catalogs, *workspace.sources]),
    "databases": _databases,
    "tables": _tables,
    "views": list_views,
    "columns": _columns,
    "partitions": _partitions,
    "tags": _tags,
    "branches": _branches,
    "functions": _functions,
}


def is_like(name: str, like: str) -> bool:
    """Whether a name fits a pattern with the wildcards `%` and `_` of SQL, or `*` of Spark."""
    return name == like or fnmatchcase(name, like.replace("%", "*").replace("_", "?"))


def _listed(column: str, names: list[str], like: str | None) -> Rows:
    """Names as rows."""
    if like is not None:
        names = [name for name in names if is_like(name, like)]
    return (column,), [(name,) for name in names]


def describe(workspace: Workspace, statement: Describe) -> Rows:
    """The rows of DESCRIBE: a row for each column; with EXTENDED, facts of the table follow."""
    if statement.database:
        catalog, name = workspace.known_database(statement.chain)
        return ("name", "value"), [("database", name), ("warehouse", catalog.warehouse)]
    if statement.function:
        return _describe_function(workspace, statement)
    try:
        table = workspace.table(statement.chain)
    except (NotFound, Unsupported):
        view = view_of(workspace, statement.chain)
        if view is None:
            raise
        return describe_view(".".join(workspace.full(statement.chain)), view, statement)
    schema = table.schema
    facts: dict[str, str] = {}
    if statement.extended:
        facts = {
            "# table": table.identifier,
            "# path": getattr(table, "path", ""),
            "# comment": schema.comment or "",
            "# schema id": str(schema.id),
        } | {f"# option {key}": value for key, value in sorted(schema.stated_options.items())}
    return _described(schema.fields, facts, partial(_key, schema))


def describe_view(name: str, view: View, statement: Describe) -> Rows:
    """The rows of DESCRIBE for a view; with EXTENDED, its query follows."""
    facts = {"# view": name, "# comment": view.comment or "", "# query": view.own_query}
    facts |= {f"# dialect {key}": text for key, text in sorted(view.dialects.items())}
    facts |= {f"# option {key}": text for key, text in sorted(view.options.items())}
    return _described(view.fields, facts if statement.extended else {}, lambda _column: None)


def _described(
    fields: Iterable[Field], facts: Mapping[str, str], key: Callable[[str], str | None]
) -> Rows:
    """A row for each column, with what `key` says of it, then a row for each fact."""
    rows: list[tuple[object, ...]] = [
        (
            each.name,
            str(with_nullable(each.type, nullable=True)),
            each.type.nullable,
            key(each.name),
            each.description,
        )
        for each in fields
    ]
    rows += [(name, value, None, None, None) for name, value in facts.items()]
    return ("name", "type", "null", "key", "comment"), rows


def _describe_function(workspace: Workspace, statement: Describe) -> Rows:
    """The rows that describe a stored function.

    With EXTENDED, the definition for each engine follows.
    """
    catalog, identifier = workspace.identifier(statement.chain)
    name = parse_identifier(identifier)
    found = None if catalog.functions is None else catalog.functions.find(name)
    if found is None:
        known = _functions(workspace, workspace.full(statement.chain)[:2])
        raise NotFound(
            "no such function", function=name, **did_you_mean(str(name), known), functions=known
        )

    def listed(fields: tuple[Field, ...] | None) -> str | None:
        return None if fields is None else ", ".join(f"{each.name} {each.type}" for each in fields)

    facts: dict[str, object] = {
        "function": str(name),
        "input": listed(found.inputs),
        "returns": listed(found.returns),
        "deterministic": str(found.deterministic).lower(),
        "comment": found.comment,
        "engines": ", ".join(sorted(found.definitions)),
    }
    if statement.extended:
        definitions = sorted(found.definitions.items())
        facts |= {f"definition {engine}": json.dumps(each) for engine, each in definitions}
        facts |= {f"option {key}": text for key, text in sorted(found.options.items())}
    return ("name", "value"), list(facts.items())


def _key(schema: TableSchema, column: str) -> str | None:
    parts = []
    if column in schema.primary_keys:
        parts.append(f"PRI({', '.join(schema.primary_keys)})")
    if column in schema.partition_keys:
        parts.append("PARTITION")
    return ", ".join(parts) or None


def create_text(workspace: Workspace, statement: Show) -> str:
    """A CREATE TABLE statement that creates an equal table, valid in lakecore and Flink."""
    schema = workspace.table(statement.chain).schema
    names = ".".join(map(_name, workspace.full(statement.chain)))
    lines = [
        f"  {_name(field.name)} {field.type}"
        + ("" if field.default_value is None else f" DEFAULT {quoted_text(field.default_value)}")
        + (f" COMMENT {quoted_text(field.description)}" if field.description else "")
        for field in schema.fields
    ]
    if schema.primary_keys:
        lines.append(f"  PRIMARY KEY ({', '.join(map(_name, schema.primary_keys))}) NOT ENFORCED")
    text = f"CREATE TABLE {names} (\n" + ",\n".join(lines) + "\n)"
    if schema.comment:
        text += f" COMMENT {quoted_text(schema.comment)}"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({', '.join(map(_name, schema.partition_keys))})"
    options = {key: value for key, value in schema.stated_options.items() if key != "path"}
    if options:
        listed = ",\n".join(
            f"  {quoted_text(key)} = {quoted_text(value)}" for key, value in sorted(options.items())
        )
        text += f"\nWITH (\n{listed}\n)"
    return text


def _database_text(workspace: Workspace, chain: Chain) -> str:
    """A CREATE DATABASE statement. Raises NotFound if there is no such database."""
    workspace.known_database(chain)
    return "CREATE DATABASE " + ".".join(map(_name, chain))


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
