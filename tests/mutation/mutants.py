"""Source code -> its mutants: one operator, constant, condition, result or statement is changed.

A mutant is a span of the source and the text that takes its place, so that all else stays as it is.
Only what functions do is changed. Messages, annotations, docstrings and what is only imported for
types are left alone.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_QUIET = frozenset({"log", "warnings"})
"""Calls on these names tell people something; no row depends on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change of one module: the bytes from `start` to `end` become `text`.

    `function` is the qualified name of the function around it; `outermost_line` is where the
    outermost of its functions begins, which is no method of a class inside a function;
    `statement_line` is where its statement begins.
    """

    path: str
    function: str
    line: int
    outermost_line: int
    statement_line: int
    start: int
    end: int
    before: str
    text: str
    ordinal: int = 1

    @property
    def key(self) -> str:
        """What names it, wherever lines move to; equal changes of a function have ordinals."""
        which = "" if self.ordinal == 1 else f" (no. {self.ordinal})"
        return f"{self.path} {self.function}{which}: {self.before} -> {self.text}"

    def applied(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a module, in order; some may not compile, see `compiles`."""
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for each in _Finder(path, source).found():
        change = (each.function, each.before, each.text)
        seen[change] += 1
        found.append(replace(each, ordinal=seen[change]))
    return found


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        lines = source.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def found(self) -> Iterator[Mutant]:
        yield from self._of(ast.parse(self._source), "", 0, 0)

    def _of(
        self, node: ast.AST, function: str, outermost_line: int, statement_line: int
    ) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            statement_line = node.lineno
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            if isinstance(node, ast.FunctionDef):
                outermost_line = outermost_line or node.lineno
            for part in node.body:
                yield from self._of(part, function, outermost_line, statement_line)
            return
        if _is_quiet(node):
            return
        if isinstance(node, ast.AnnAssign):
            children: list[ast.AST] = [] if node.value is None else [node.value]
        else:
            children = [*ast.iter_child_nodes(node)]
        if outermost_line:
            for text in _changes(node):
                yield self._mutant(node, function, outermost_line, statement_line, text)
        for child in children:
            yield from self._of(child, function, outermost_line, statement_line)

    def _mutant(
        self, node: ast.AST, function: str, outermost_line: int, statement_line: int, text: str
    ) -> Mutant:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(
            path=self._path,
            function=function,
            line=node.lineno,
            outermost_line=outermost_line,
            statement_line=statement_line,
            start=start,
            end=end,
            before=" ".join(self._source[start:end].decode().split()),
            text=text,
        )


def _is_quiet(node: ast.AST) -> bool:
    """Whether nothing that a test could see comes of it."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _QUIET
    return False


def _changes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _COMPARISONS:
            yield _text(ast.Compare(left, [_COMPARISONS[type(op)]()], right))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield _text(ast.BoolOp(other, values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield _text(ast.BinOp(left, _OPERATORS[type(op)](), right))
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield _text(operand)
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.IfExp(test=test, body=body, orelse=other):
            yield _text(ast.IfExp(test, other, body))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "pass"
        case ast.Break() | ast.Continue():
            yield "pass"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Whether the module with the change is code."""
    try:
        compile(mutant.applied(source), mutant.path, "exec")
    except (SyntaxError, ValueError):
        return False
    return True
