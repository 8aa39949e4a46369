"""Splits SQL text into tokens, each with its position in the text.

The lexical rules are DuckDB's; backquotes quote identifiers too, as in Flink and Spark. A comment
`/*+ ... */` is a hint and stays a token; other comments, white space and byte order marks are
dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from lakecore.errors import InvalidRequest


class Kind(Enum):
    """The kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    NUMBER = "number"
    PARAMETER = "parameter"
    HINT = "hint"
    OTHER = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `value` is the text of a string or a quoted identifier without its quotes."""

    kind: Kind
    value: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token as a keyword, in upper case; empty if it cannot be a keyword."""
        return self.value.upper() if self.kind is Kind.WORD else ""


_TOKEN = re.compile(
    r"""
      (?P<blank>[\s\ufeff]+|--[^\n]*)
    | (?P<hint>/\*\+.*?\*/)
    | (?P<comment>/\*)
    | (?P<estring>[eE]'(?:[^'\\]|''|\\.)*')
    | (?P<xstring>[xX]'[^']*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<dollar>\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$)
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    | (?P<number>(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<parameter>\$\w+|\?\d*)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<other>=>|->>|->|::|:=|<=>|<>|!=|>=|<=|==|\|\||\*\*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "hint": Kind.HINT,
    "estring": Kind.STRING,
    "xstring": Kind.OTHER,
    "string": Kind.STRING,
    "dollar": Kind.STRING,
    "quoted": Kind.QUOTED,
    "number": Kind.NUMBER,
    "parameter": Kind.PARAMETER,
    "word": Kind.WORD,
    "other": Kind.OTHER,
}
_UNCLOSED = {"'": "string", '"': "quoted identifier", "`": "quoted identifier"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; the last one has the kind END.

    Raises InvalidRequest, with line and column, for a string, identifier or comment without end.
    """
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        assert found is not None, "the last alternative matches any character"
        group, start, end = found.lastgroup or "", place, found.end()
        if group == "tag":
            group = "dollar"
        if group == "comment":
            end = _comment_end(text, start)
        elif group != "blank":
            part = text[start:end]
            if group == "other" and part in _UNCLOSED:
                raise syntax_error(text, start, f"this {_UNCLOSED[part]} has no end")
            tokens.append(Token(_KINDS[group], _value(group, part), start, end))
        place = end
    tokens.append(Token(Kind.END, "", len(text), len(text)))
    return tokens


def split(text: str) -> list[str]:
    """The statements of a text, separated by `;`, without empty ones."""
    parts: list[str] = []
    first: int | None = None
    for token in tokenize(text):
        ends = token.kind is Kind.END or (token.kind is Kind.OTHER and token.value == ";")
        if ends and first is not None:
            parts.append(text[first : token.start].rstrip())
            first = None
        elif not ends and first is None:
            first = token.start
    return parts


def syntax_error(text: str, place: int, message: str) -> InvalidRequest:
    """An error that shows the line, with a caret under the position.

    The caret is under the character at `place`; line and column count from 1.
    """
    before = text[:place]
    line_number = before.count("\n") + 1
    start = before.rfind("\n") + 1
    end = text.find("\n", place)
    line = text[start : len(text) if end < 0 else end]
    column = place - start + 1
    shown = line.replace("\t", " ")
    return InvalidRequest(
        f"{message}, at line {line_number}, column {column}\n  {shown}\n  {' ' * (column - 1)}^"
    )


def quoted(name: str) -> str:
    """A name as an identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as a string literal of DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def exactly(path: str) -> str:
    """The path as a glob pattern that only matches this path."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in path)


def _comment_end(text: str, start: int) -> int:
    """The end of a block comment; comments nest, as in DuckDB."""
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    raise syntax_error(text, start, "this comment has no end")


def _value(group: str, part: str) -> str:
    match group:
        case "quoted":
            mark = part[0]
            return part[1:-1].replace(mark * 2, mark)
        case "string":
            return part[1:-1].replace("''", "'")
        case "estring":
            body = part[2:-1].replace("''", "'")
            return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), body)
        case "dollar":
            tag = part[: part.index("$", 1) + 1]
            return part[len(tag) : -len(tag)]
    return part
