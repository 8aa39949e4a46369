"""Views of a catalog in SQL: CREATE, ALTER, DROP, DESCRIBE, SHOW CREATE VIEW, and SHOW VIEWS.

Any session can read a stored view, so its text must mean the same in all of them:

- its tables are named with their databases, `database.table`. A name of one part would depend on
  the current database of the reader, and raises an error when the view is created or read;
- these tables are in the catalog of the view, whichever catalog is the current one.

Whoever stores a view writes text that runs in the processes of its readers. Two checks, each of
them sufficient, keep the text from files, networks, settings and other databases:

1. `check_stored_query`: every node of DuckDB's syntax tree is of a kind that is listed here, and
   every function is one that computes a value from its arguments, the clock or chance;
2. `check_sealed`: after views have replaced the tables, the text is bound in a DuckDB without
   access to files and networks, with locked settings, which holds nothing but these views.

A reader's own macros, attached databases, settings and variables are therefore out of reach, too,
and hints must not have options of the reader. How much a query computes is not limited: a reader
stops one that is too expensive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import duckdb

from lakecore.catalog.identifier import MAIN_BRANCH, Identifier, parse_identifier
from lakecore.deferred import deferred
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError, NotFound, Unsupported
from lakecore.sql.query_errors import error_of
from lakecore.sql.references import Node, nodes, placeholders
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.views import View, Views, new_view
    from lakecore.scalar.engine import bind, syntax_tree
    from lakecore.scalar.syntax import is_function, refusal_in_query
    from lakecore.sql.references import Reference
    from lakecore.sql.statements import AlterView, Chain, CreateView
    from lakecore.sql.workspace import Workspace
else:
    bind = deferred("lakecore.scalar.engine", "bind")
    is_function = deferred("lakecore.scalar.syntax", "is_function")
    refusal_in_query = deferred("lakecore.scalar.syntax", "refusal_in_query")
    syntax_tree = deferred("lakecore.scalar.engine", "syntax_tree")
    new_view = deferred("lakecore.catalog.views", "new_view")

_FULL = 3
_OF_READERS = ("lakecore.", "blob-descriptor.")
_NO_VIEWS = "this catalog stores no views; CREATE TEMPORARY VIEW makes one"


def in_view(reference: Reference, view: str, catalog: str) -> Reference:
    """The reference to a table within a stored view, completed with the view's catalog."""
    chain = reference.chain
    own = [key for key in reference.options if key.startswith(_OF_READERS)]
    if own:
        raise InvalidRequest(
            "a stored view cannot set this option: it says what the process of a reader may do; "
            "whoever reads the view sets it",
            view=view,
            option=own[0],
        )
    if len(chain) == 1:
        raise InvalidRequest(
            "a stored view names its tables with their databases: database.table",
            view=view,
            name=chain[0],
        )
    if len(chain) == _FULL and chain[0] != catalog:
        raise InvalidRequest(
            "a stored view reads tables of its own catalog", view=view, name=".".join(chain)
        )
    return replace(reference, chain=(catalog, *chain)) if len(chain) < _FULL else reference


def check_stores_views(workspace: Workspace, chain: Chain) -> None:
    """Raise Unsupported unless the catalog of a name stores views."""
    _place(workspace, chain)


def create_view(workspace: Workspace, statement: CreateView, schema: pa.Schema) -> None:
    """Store a view whose query has the columns of the schema."""
    catalog, name, views = _place(workspace, statement.chain)
    if not catalog.database_exists(name.database):
        raise NotFound("no such database", database=name.database)
    query = with_columns(statement.query, statement.columns)
    view = new_view(query, schema, statement.comment, statement.options)
    stored = views.replace(name, view) if statement.replace else views.create(name, view)
    if not stored and not statement.if_not_exists:
        raise AlreadyExists("a table or view of that name exists", view=name)


def alter_view(workspace: Workspace, statement: AlterView, schema: pa.Schema | None) -> None:
    """Give a stored view other options, another comment, or another query with these columns.

    A new query replaces the texts of all dialects, because the old ones would no longer match it.
    """
    _, name, views = _place(workspace, statement.chain)
    if statement.query is None or schema is None:
        if not views.alter(name, statement.changes) and not statement.if_exists:
            raise _missing(name, views)
        return
    before = views.find(name)
    if before is None:
        if statement.if_exists:
            return
        raise _missing(name, views)
    view = new_view(statement.query, schema, before.comment, before.options)
    if not views.replace(name, view):
        raise _missing(name, views)


def with_columns(query: str, columns: tuple[str, ...]) -> str:
    """The query with its columns renamed to these names; without names, the query itself."""
    if not columns:
        return query
    listed = ", ".join(quoted(each) for each in columns)
    return f"SELECT * FROM ({query}\n) AS _rows({listed})"  # noqa: S608 - both are of the user


def drop_view(workspace: Workspace, chain: Chain, *, if_exists: bool) -> None:
    """Remove a stored view."""
    catalog, _ = workspace.identifier(chain)
    if catalog.views is None:
        if not if_exists:
            raise NotFound("no temporary view of that name", view=".".join(chain))
        return
    _, name, views = _place(workspace, chain)
    if not views.drop(name) and not if_exists:
        raise _missing(name, views)


def rename_view(workspace: Workspace, source: Chain, target: Chain, *, if_exists: bool) -> None:
    """Rename a stored view. A new name without a database keeps the view in its database."""
    catalog, old, views = _place(workspace, source)
    to = (*source[:-1], *target) if len(target) == 1 else target
    other, new, _ = _place(workspace, to)
    if other is not catalog:
        raise Unsupported("a view cannot be moved to another catalog", view=old)
    if if_exists and views.find(old) is None:
        return
    views.rename(old, new)


def list_views(workspace: Workspace, chain: Chain) -> list[str]:
    """The names of the stored views of a database, and those of temporary views, sorted."""
    stored: tuple[str, ...] = ()
    if workspace.catalogs:
        catalog, database = workspace.databases(chain)
        if catalog.views is not None and catalog.database_exists(database):
            stored = catalog.views.names(database)
    return sorted({*stored, *workspace.views})


def view_of(workspace: Workspace, chain: Chain) -> View | None:
    """The stored view of that name; None if there is none."""
    if len(chain) > _FULL or "$" in chain[-1]:
        return None
    catalog, identifier = workspace.identifier(chain)
    return None if catalog.views is None else catalog.views.find(parse_identifier(identifier))


def create_view_text(workspace: Workspace, chain: Chain) -> str:
    """A CREATE VIEW statement that creates an equal view."""
    if len(chain) == 1 and chain[0] in workspace.views:
        return f"CREATE TEMPORARY VIEW {quoted(chain[0])} AS\n{workspace.views[chain[0]]}"
    _, name, views = _place(workspace, chain)
    view = views.find(name)
    if view is None:
        raise _missing(name, views)
    text = f"CREATE VIEW {'.'.join(map(quoted, workspace.full(chain)))}"
    if view.comment is not None:
        text += f"\nCOMMENT {quoted_text(view.comment)}"
    if view.options:
        listed = ", ".join(
            f"{quoted_text(key)} = {quoted_text(value)}"
            for key, value in sorted(view.options.items())
        )
        text += f"\nTBLPROPERTIES ({listed})"
    return f"{text}\nAS {view.own_query}"


def _missing(name: Identifier, views: Views) -> NotFound:
    return NotFound("no such view", view=name, views=list(views.names(name.database)))


def _place(workspace: Workspace, chain: Chain) -> tuple[Catalog, Identifier, Views]:
    catalog, identifier = workspace.identifier(chain)
    if catalog.views is None:
        raise Unsupported(_NO_VIEWS)
    name = parse_identifier(identifier)
    if name.system is not None or name.branch != MAIN_BRANCH:
        raise InvalidRequest("a view has no branches and no system tables", view=identifier)
    return catalog, name, catalog.views


# --- stored queries ------------------------------------------------------------------------------

_NO_SELECT = "Only SELECT"
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
_PARTS = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
        "CTE_NODE",
        "BASE_TABLE",
        "EMPTY",
        "EXPRESSION_LIST",
        "JOIN",
        "PIVOT",
        "SUBQUERY",
        "TABLE_FUNCTION",
        "DISTINCT_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "ORDER_MODIFIER",
        "ASCENDING",
        "DESCENDING",
        "ORDER_DEFAULT",
    }
)
_EXPRESSIONS = frozenset(
    {
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "DEFAULT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    }
)
_PLACES = frozenset("/\\.:*?[")
"""Characters of a path or a URL. No query of WITH has one in its name, so that no such name can be
taken for a file."""


def check_stored_query(text: str, view: str, *, foreign: bool = False) -> None:
    """Raise InvalidRequest unless the text is one SELECT over tables, with functions that compute.

    `foreign` says that the text may be of another engine: text that DuckDB cannot parse and
    functions that it does not know are then accepted.
    """
    try:
        plain, references = placeholders(text)
    except LakecoreError:
        if foreign:
            return
        raise
    _check(plain, view, tables=True, foreign=foreign)
    for reference in references:
        # These expressions are no part of the text that DuckDB gets, but are evaluated before it.
        for expression in (reference.moment, *reference.arguments):
            if expression is not None:
                _check(f"SELECT ({expression}\n)", view, tables=False, foreign=foreign)


def check_sealed(text: str, views: Mapping[str, Mapping[str, str]]) -> None:
    """Raise an error unless the text binds in a sealed DuckDB that has only these views.

    `views` has the types of the columns of each view, by its name.
    """
    used = {name: types for name, types in views.items() if quoted(name) in text}
    try:
        bind(text, used)
    except duckdb.Error as error:
        raise error_of(error) from error


def _check(text: str, view: str, *, tables: bool, foreign: bool) -> None:
    tree = syntax_tree(text)
    reason = str(tree.get("error_message", "")).partition("\n")[0]
    if tree["error"] and foreign and not reason.startswith(_NO_SELECT):
        return
    statements = cast("list[Node]", tree.get("statements", []))
    if len(statements) != 1:
        facts = {"reason": reason} if reason and not reason.startswith(_NO_SELECT) else {}
        raise InvalidRequest("the query of a stored view must be one SELECT", view=view, **facts)
    sources: list[int] = []
    """The calls of table functions, which have a list of their own."""
    for node in nodes(statements):
        name = str(node.get("function_name", ""))
        if node.get("type") == "TABLE_FUNCTION":
            sources.append(id(node["function"]))
        refusal = _refusal(node, tables=tables)
        if refusal is None and name:
            refusal = _refusal_of_call(node, name, source=id(node) in sources)
            if foreign and not is_function(name):
                refusal = None
        if refusal is not None:
            what, found = refusal
            raise InvalidRequest(
                "the query of a stored view may only read tables of its catalog and compute; it "
                f"has {what}",
                view=view,
                found=found,
            )


def _refusal(node: Node, *, tables: bool) -> tuple[str, object] | None:
    """What is wrong with a node, apart from the function that it calls; None if it may stay."""
    kind, group = node.get("type"), node.get("class")
    if isinstance(group, str):
        if group not in _EXPRESSIONS:
            return "an expression of this kind", group.lower()
    elif isinstance(kind, str) and kind not in _PARTS and not kind.endswith("_TYPE_INFO"):
        return "a part of this kind", kind.lower()
    if kind == "BASE_TABLE" and not tables:
        return "a query in a version or a time", node.get("table_name")
    like_files = [name for name in _named_queries(node) if _PLACES & set(name)]
    return ("a name of WITH that could be a file", like_files[0]) if like_files else None


def _refusal_of_call(call: Node, name: str, *, source: bool) -> tuple[str, str] | None:
    if call.get("catalog") or call.get("schema"):
        return "a function with a schema", name
    if source:
        return None if name.lower() in _TABLE_FUNCTIONS else ("this table function", name)
    refusal = refusal_in_query(name)
    return None if refusal is None else (f"a function that {refusal}", name)


def _named_queries(node: Node) -> list[str]:
    ctes = node.get("cte_map")
    entries = ctes.get("map") if isinstance(ctes, dict) else None
    names = [each.get("key") for each in entries or () if isinstance(each, dict)]
    return [str(name) for name in (*names, node.get("cte_name")) if name]
