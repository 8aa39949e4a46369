"""Text that nests JSON too deeply raises RecursionError, which no caller of lakecore must see."""

from __future__ import annotations

import ast
from pathlib import Path

import lakecore

ROOT = Path(lakecore.__file__).parent
# What a parser gets from lakecore itself, or from DuckDB or Polars; and functions whose callers, or
# context managers, catch the error.
TRUSTED = {
    "catalog/rest/wire.py",
    "cdc/file_source.py",
    "plan/predicate/polars_form.py",
    "rows/read_rules_json.py",
    "scalar/syntax_trees.py",
    "sql/native_views.py",
}
CAUGHT_BY_CALLERS = {
    "cdc/formats/debezium.py:parsed_json",
    "cdc/types/debezium.py:text",
    "cdc/types/debezium.py:_vectors",
    "cdc/state.py:_join",
    "format/avro_container.py:_stored",
    "format/avro_container.py:container_columns",
    "format/avro_container.py:read_batches",
}


def test_every_parser_of_json_catches_the_error_of_deep_nesting() -> None:
    bare: set[str] = set()
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        if name not in TRUSTED:
            _collect(ast.parse(path.read_text()), name, "", caught=False, bare=bare)

    assert bare == CAUGHT_BY_CALLERS


def _collect(node: ast.AST, name: str, function: str, *, caught: bool, bare: set[str]) -> None:
    if isinstance(node, ast.FunctionDef):
        function, caught = node.name, False
    if isinstance(node, ast.Try):
        handled = any("RecursionError" in ast.dump(each.type or node) for each in node.handlers)
        for body in node.body:
            _collect(body, name, function, caught=caught or handled, bare=bare)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            _collect(part, name, function, caught=caught, bare=bare)
        return
    if isinstance(node, ast.With):
        items = [ast.dump(each) for each in node.items]
        # `cdc/state.py:stored` catches it.
        caught = caught or any("RecursionError" in each or "id='stored'" in each for each in items)
    match node:
        case ast.Attribute(value=ast.Name(id="json"), attr="loads") if not caught:
            bare.add(f"{name}:{function}")
    for child in ast.iter_child_nodes(node):
        _collect(child, name, function, caught=caught, bare=bare)
