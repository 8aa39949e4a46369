"""The syntax trees of DuckDB's parser, in the form of DuckDB 2 whatever the installed version.

`json_serialize_sql` gives the tree of a text of SELECT statements. DuckDB 1 gives another form of
it, which is converted here; nothing else in lakecore distinguishes the versions. Converted are the
parts that lakecore reads:

- FUNCTION and WINDOW: `children` become `arguments`. Functions that stand for syntax, such as
  `[1, 2]` and `x AT TIME ZONE 'UTC'`, lose the schema `main`, which the parser of DuckDB 1 adds;
- CONSTANT: a typed value becomes the kind and the text of a literal;
- CAST: `cast_type` becomes `type_expr`;
- NOT IN: one node becomes NOT over IN;
- WITH ... AS MATERIALIZED: the query of WITH is in the tree once, not three times;
- an error has its position in bytes;
- a column, a star, a call without arguments and the query after IN get the length of their text,
  and begin at its first byte. Other nodes have the length 0, and the place that DuckDB 1 gives.

INVARIANT: a node that is not understood keeps a part that DuckDB 2 does not have, or the length 0.
Readers then refuse such a node, or do not use it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import duckdb

from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json: TypeAlias = "str | dict[str, Json] | list[Json] | int | float | bool | None"
Node: TypeAlias = dict[str, Json]
Tree: TypeAlias = "dict[str, Any]"
"""A tree as JSON, whose parts have any type before they are checked."""

NOWHERE = 2**64 - 1
"""The location of a node of which DuckDB does not know the place in the text."""

IS_DUCKDB_1 = int(duckdb.__version__.partition(".")[0]) < 2
_GAP = rb"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*"
_WORD = re.compile(rb'"(?:[^"]|"")*"|[A-Za-z_\x80-\xff][A-Za-z_0-9$\x80-\xff]*')
_DOT = re.compile(_GAP + rb"\." + _GAP)
_NO_ARGUMENTS = re.compile(_GAP + rb"\(" + _GAP + rb"\)")
_TWO_LIMITS = re.compile(r"\blimit\s+\w+\s*(,)", re.IGNORECASE)
_BITS = re.compile(rb"[xXbB]'")
_QUERY = re.compile(
    rb"\(" + _GAP + rb"(?:\(" + _GAP + rb")*(?:SELECT|FROM|WITH|VALUES)\b", re.IGNORECASE
)
_BARE = re.compile(rb"\b(?:TABLE|DESC|DESCRIBE|SHOW|SUMMARIZE)" + _GAP + rb"\Z", re.IGNORECASE)
"""The words that take the name of a table where others take a FROM clause."""
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT"})


def syntax_tree(connection: duckdb.DuckDBPyConnection, text: str) -> Tree:
    """The syntax tree of a text of SELECT statements, or of the error in it.

    Raises duckdb.Error; RecursionError for text that is nested too deeply.
    """
    (answer,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: Tree = json.loads(answer[0])
    if IS_DUCKDB_1 and tree["error"]:
        # DuckDB 2 counts bytes, as everything else here does.
        place = str(tree.get("position", ""))
        two = _TWO_LIMITS.search(text) if "errhint" in tree["error_message"] else None
        if two is not None:  # it has no place, and the message is empty
            tree["error_message"], place = 'syntax error at or near ","', str(two.start(1))
        if place.isdigit():
            tree["position"] = str(len(text[: int(place)].encode()))
    elif IS_DUCKDB_1:
        tree["statements"] = _Text(text).converted(tree["statements"])
    return tree


def text_of(
    connection: duckdb.DuckDBPyConnection, conditions: Sequence[Mapping[str, object]]
) -> str:
    """Conditions, nodes of a tree of `syntax_tree`, as SQL, connected by AND. Raises duckdb.Error.

    DuckDB converts a parsed query to text.
    """
    ((answer,),) = connection.execute("SELECT json_serialize_sql('SELECT 1 WHERE 1')").fetchall()
    tree: Tree = json.loads(answer)
    pieces = []
    for each in conditions:
        own = each.origin if isinstance(each, _Converted) else each
        tree["statements"][0]["node"]["where_clause"] = own
        ((text,),) = connection.execute(
            "SELECT json_deserialize_sql(?)", [json.dumps(tree)]
        ).fetchall()
        pieces.append("(" + str(text).partition(" WHERE ")[2] + ")")
    return " AND ".join(pieces)


# --- conversion of the trees of DuckDB 1 ----------------------------------------------------------


class _Converted(dict[str, "Json"]):
    """A converted node, with the node that DuckDB gave."""

    __slots__ = ("origin",)
    origin: Node


@dataclass(frozen=True)
class _Text:
    """Converts the tree of a text."""

    text: str

    @cached_property
    def data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def brackets(self) -> list[int]:
        """The places of all round brackets that are neither in a string nor in a comment."""
        kinds = (duckdb.token_type.operator,)
        tokens = [place for place, kind in duckdb.tokenize(self.text) if kind in kinds]
        return [place for place in tokens if self.data[place : place + 1] in (b"(", b")")]

    def converted(self, tree: Json) -> Json:
        """A part of the tree in the form of DuckDB 2."""
        if isinstance(tree, list):
            return [self.converted(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        if tree.get("type") == "CTE_NODE" and _repeats_its_query(tree):
            return self.converted(tree["child"])
        node = _Converted({key: self.converted(value) for key, value in tree.items()})
        node.origin = tree
        if "query_location" in node:
            node["query_location_length"] = 0
        match node.get("class"):
            case "CAST":
                return self._cast(node, tree)
            case "CONSTANT":
                return self._constant(node)
            case "FUNCTION" | "WINDOW":
                self._call(node)
            case "LAMBDA":
                arrow = self.data[self._place(node) :].startswith(b"->")
                node["syntax_type"] = "SINGLE_ARROW" if arrow else "LAMBDA_KEYWORD"
            case "OPERATOR" if node["type"] == "COMPARE_NOT_IN":
                inner = {**node, "type": "COMPARE_IN", "alias": ""}
                node |= {"type": "OPERATOR_NOT", "children": [cast("Json", inner)]}
        self._put(node)
        return node

    # --- meaning ----------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        children = cast("list[Node]", node.pop("children"))
        node["arguments"] = [
            {"name": child.get("alias", ""), "expression": child} for child in children
        ]
        place, name = self._place(node), str(node["function_name"])
        words, end = self._name(place)
        if node.get("schema") == "main" and not node.get("catalog") and words[:1] != ["main"]:
            node["schema"] = ""
        path = [node.get("catalog"), node.get("schema"), name]
        node["qualified_name"] = {"path": [part for part in path if part]}
        empty = None if children else _NO_ARGUMENTS.match(self.data, end)
        if empty is not None and words[-1:] == [name.lower()]:
            node["query_location_length"] = empty.end() - place

    def _constant(self, node: _Converted) -> Node:
        value = cast("Node", node.pop("value"))
        kind = str(cast("Node", value["type"])["id"])
        if kind == "VARCHAR" and _BITS.match(self.data, self._place(node)):
            raise Unsupported(
                "DuckDB before version 2 reads x'AB' and b'01' as strings; install duckdb>=2, or "
                "write a cast of a string to BLOB or BIT",
                duckdb=duckdb.__version__,
            )
        if kind == "BLOB":
            child = _Converted({**node, "alias": "", "literal": _literal("VARCHAR", value)})
            child.origin = node.origin
            node |= {"class": "CAST", "type": "OPERATOR_CAST", "child": child, "try_cast": False}
            node["type_expr"] = _type("BLOB", None)
        else:
            node["literal"] = _literal(kind, value)
        return node

    def _cast(self, node: _Converted, origin: Node) -> Node:
        """Convert a cast; TRUE and FALSE, which DuckDB 1 parses as casts, become literals."""
        child = cast("_Converted", node["child"])
        target = cast("Node", origin["cast_type"])
        word = self._name(self._place(child))[0]
        if target["id"] == "BOOLEAN" and child["class"] == "CONSTANT" and len(word) == 1:
            expected = {"t": ["true"], "f": ["false"]}
            text = str(cast("Node", child["literal"])["text"])
            if expected.get(text) == word:
                child |= {"alias": node["alias"], "literal": {"kind": "BOOLEAN", "text": word[0]}}
                child.origin = origin
                return child
        del node["cast_type"]
        node["type_expr"] = _type(str(target["id"]), target["type_info"])
        return node

    # --- places -----------------------------------------------------------------------------------

    def _put(self, node: Node) -> None:
        match node.get("class", node.get("type")):
            case "BASE_TABLE":
                if _BARE.search(self.data, 0, self._place(node)):
                    node["query_location"] = NOWHERE
            case "COLUMN_REF":
                self._put_column(node)
            case "STAR":
                self._put_star(node)
            case "SUBQUERY" if node.get("subquery_type") == "ANY":
                self._put_query(node)

    def _put_column(self, node: Node) -> None:
        place = self._place(node)
        words, end = self._name(place)
        names = cast("list[Json]", node["column_names"])
        if words == [str(name).lower() for name in names]:
            node["query_location_length"] = end - place
        else:
            node["query_location"] = NOWHERE

    def _put_star(self, node: Node) -> None:
        """The place of a star. DuckDB 1 gives one also if the text has no star, as in `FROM t`."""
        place = self._place(node)
        relation = str(node.get("relation_name") or "").lower()
        words, end = self._name(place)
        dot = _DOT.match(self.data, end) if relation else None
        star = dot.end() if dot is not None else place
        if words == ([relation] if relation else []) and self.data[star : star + 1] == b"*":
            node["query_location_length"] = star + 1 - place
        else:
            node["query_location"] = NOWHERE

    def _put_query(self, node: Node) -> None:
        """The place of the query after IN: DuckDB 1 gives the place of the operator."""
        depth, first = 0, bisect_left(self.brackets, self._place(node))
        if not _QUERY.match(self.data, self.brackets[first] if first < len(self.brackets) else 0):
            return
        for place in self.brackets[first:]:
            depth += 1 if self.data[place : place + 1] == b"(" else -1
            if depth == 0:
                start = self.brackets[first]
                node |= {"query_location": start, "query_location_length": place + 1 - start}
                return
            if depth < 0:
                return

    def _place(self, node: Node) -> int:
        """The place of a node; the end of the text if DuckDB does not know it."""
        place = node.get("query_location")
        return min(place, len(self.data)) if isinstance(place, int) else len(self.data)

    def _name(self, place: int) -> tuple[list[str], int]:
        """The parts, in lower case, of the name at a place, and its end."""
        words: list[str] = []
        end = start = place
        while (match := _WORD.match(self.data, start)) is not None:
            word, end = match[0].decode(), match.end()
            words.append((word[1:-1].replace('""', '"') if word[0] == '"' else word).lower())
            dot = _DOT.match(self.data, end)
            if dot is None:
                break
            start = dot.end()
        return words, end


def _repeats_its_query(node: Node) -> bool:
    """Whether the query of WITH is also in the map of the query that follows."""
    child = node.get("child")
    ctes = child.get("cte_map") if isinstance(child, dict) else None
    entries = cast("list[Node]", ctes.get("map") if isinstance(ctes, dict) else [])
    return not node.get("modifiers") and node.get("cte_name") in [each["key"] for each in entries]


def _literal(kind: str, value: Node) -> Node:
    """The kind and text of a literal; for a value that lakecore does not read, its type."""
    held = value.get("value")
    if value["is_null"]:
        return {"kind": "NULL_LITERAL", "text": ""}
    if kind == "VARCHAR":
        return {"kind": "STRING", "text": str(held)}
    if kind == "BOOLEAN":
        return {"kind": "BOOLEAN", "text": "true" if held else "false"}
    if isinstance(held, dict) and "upper" in held:  # a large integer
        held = (cast("int", held["upper"]) << 64) + cast("int", held["lower"])
    if kind in _INTEGERS:
        return {"kind": "INTEGER", "text": str(held)}
    if kind == "DOUBLE":
        # Without an exponent, a text would be a decimal.
        text = repr(held)
        return {"kind": "NUMERIC", "text": text if "e" in text else f"{text}e0"}
    if kind == "DECIMAL":
        scale = cast("int", cast("Node", cast("Node", value["type"])["type_info"])["scale"])
        sign, digits = "-" * (cast("int", held) < 0), str(abs(cast("int", held)))
        digits = digits.rjust(scale + 1, "0")
        point = len(digits) - scale
        return {"kind": "NUMERIC", "text": f"{sign}{digits[:point]}.{digits[point:]}"}
    return {"kind": kind, "text": ""}


def _type(name: str, info: Json) -> Node:
    """A type by its name. `children` are its parameters, in no particular form."""
    return {
        "class": "TYPE",
        "type": "TYPE",
        "alias": "",
        "query_location": NOWHERE,
        "query_location_length": 0,
        "type_name": name,
        "children": [] if info is None else [info],
        "qualified_name": {"path": [name]},
    }
