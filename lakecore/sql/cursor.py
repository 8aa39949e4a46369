"""A cursor over the tokens of one statement, used by all parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.tokens import Kind, Token, syntax_error, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    T = TypeVar("T")

_OPEN, _CLOSE = "([{", ")]}"
QUERY_STARTS = frozenset(
    {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE"}
)
"""The first words of a query."""


class Cursor:
    """The tokens of a statement and the position of the next one.

    `spark_types`: whether names of types have Spark's meaning.
    """

    def __init__(self, text: str, *, spark_types: bool = False) -> None:
        self.text = text
        self.spark_types = spark_types
        self._tokens = tokenize(text)
        self._next = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._next]

    def ahead(self, steps: int) -> Token:
        """The token some steps after the next one."""
        return self._tokens[min(self._next + steps, len(self._tokens) - 1)]

    def done(self) -> bool:
        """Whether all tokens are read."""
        return self.token.kind is Kind.END

    def take(self) -> Token:
        """Read one token."""
        token = self.token
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def mark(self) -> int:
        """The position of the next token, for `back`."""
        return self._next

    def back(self, mark: int) -> None:
        """Return to a position."""
        self._next = mark

    def error(self, message: str, token: Token | None = None) -> InvalidRequest:
        """An error at a token; by default the next one."""
        return syntax_error(self.text, (token or self.token).start, message)

    def expected(self, what: str) -> InvalidRequest:
        """The error `expected WHAT, but found ...` at the next token."""
        shown = "the statement ends" if self.done() else f"found {self._shown()}"
        return self.error(f"expected {what}, but {shown}")

    def _shown(self) -> str:
        return repr(self.text[self.token.start : self.token.end])

    # --- keywords and symbols ---------------------------------------------------------------------

    def at(self, *words: str) -> bool:
        """Whether these keywords come next."""
        return all(self.ahead(step).word == word for step, word in enumerate(words))

    def skip(self, *words: str) -> bool:
        """Read these keywords if they come next. Returns whether they did."""
        if not self.at(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Read these keywords, or raise."""
        for word in words:
            if not self.skip(word):
                raise self.expected(" ".join(words))

    def at_kind(self, *kinds: Kind) -> bool:
        """Whether a token of one of these kinds comes next."""
        return self.token.kind in kinds

    def at_symbol(self, symbol: str) -> bool:
        """Whether this symbol comes next."""
        return self.token.kind is Kind.OTHER and self.token.value == symbol

    def skip_symbol(self, symbol: str) -> bool:
        """Read a symbol if it comes next. Returns whether it did."""
        found = self.at_symbol(symbol)
        if found:
            self.take()
        return found

    def expect_symbol(self, symbol: str) -> None:
        """Read a symbol, or raise."""
        if not self.skip_symbol(symbol):
            raise self.expected(repr(symbol))

    def end(self) -> None:
        """Raise unless all tokens are read."""
        if not self.done():
            raise self.expected("the end of the statement")

    # --- larger parts -----------------------------------------------------------------------------

    def name(self, what: str = "a name") -> str:
        """Read an identifier, quoted or not."""
        if self.token.kind not in {Kind.WORD, Kind.QUOTED}:
            raise self.expected(what)
        return self.take().value

    def chain(self, what: str = "a name") -> tuple[str, ...]:
        """Read names separated by dots, such as `catalog.database.table`."""
        names = [self.name(what)]
        while self.skip_symbol("."):
            names.append(self.name(what))
        return tuple(names)

    def string(self, what: str = "a string in quotes") -> str:
        """Read a string literal, and return its value."""
        if self.token.kind is not Kind.STRING:
            raise self.expected(what)
        return self.take().value

    def whole(self, what: str = "a whole number") -> int:
        """Read a whole number, and return its value."""
        if self.token.kind is not Kind.NUMBER or not self.token.value.isdecimal():
            raise self.expected(what)
        return int(self.take().value)

    def listed(self, one: Callable[[], T]) -> list[T]:
        """Parse a list `( item, item, ... )` with at least one item; `one` parses an item."""
        self.expect_symbol("(")
        found = [one()]
        while self.skip_symbol(","):
            found.append(one())
        self.expect_symbol(")")
        return found

    def group(self) -> str:
        """Read an expression in parentheses, and return the text within them."""
        self.expect_symbol("(")
        start = self.token.start
        depth = 1
        while depth:
            if self.done():
                raise self.expected("')'")
            token = self.take()
            if token.kind is Kind.OTHER:
                depth += (token.value in _OPEN) - (token.value in _CLOSE)
        return self.text[start : token.start].strip()

    def until(self, *ends: Iterable[str] | str, symbols: str = "") -> str:
        """Read and return the text up to one of these keywords, or to the end.

        Keywords within parentheses or CASE do not count. A tuple stands for a sequence of keywords.
        Raises if there is no text.
        """
        start, depth, cases = self.token.start, 0, 0
        last = start
        while not self.done():
            token = self.token
            if depth == 0 and cases == 0:
                if any(self.at(*((end,) if isinstance(end, str) else tuple(end))) for end in ends):
                    break
                if token.kind is Kind.OTHER and token.value in (*symbols, *_CLOSE):
                    break
            if token.kind is Kind.OTHER:
                depth += (token.value in _OPEN) - (token.value in _CLOSE)
            elif token.word == "CASE":
                cases += 1
            elif token.word == "END" and cases:
                cases -= 1
            last = token.end
            self.take()
        if last == start:
            raise self.expected("an expression")
        return self.text[start:last]

    def rest(self, what: str = "a query") -> str:
        """The text from here to the end. Raises if there is none."""
        if self.done():
            raise self.expected(what)
        start = self.token.start
        self._next = len(self._tokens) - 1
        return self.text[start:].rstrip()

    def query(self, what: str = "a query") -> str:
        """The text from here to the end. Raises unless it begins as a query does."""
        if self.token.word not in QUERY_STARTS and not self.at_symbol("("):
            raise self.expected(what)
        return self.rest(what)

    def tokens_before(self, mark: int) -> list[Token]:
        """The tokens between a mark and the next token."""
        return self._tokens[mark : self._next]


# --- parse options -------------------------------------------------------------------------------
# The parser of `('key' = 'value', ...)` after WITH, TBLPROPERTIES and OPTIONS.


def options(cursor: Cursor) -> dict[str, str]:
    """Parse `( 'key' = 'value', ... )`; keys and values may be bare words and numbers."""
    found: dict[str, str] = {}

    def text(what: str) -> str:
        token = cursor.token
        if token.kind in {Kind.STRING, Kind.NUMBER, Kind.QUOTED}:
            return cursor.take().value
        if token.kind is Kind.WORD:
            start = token.start
            cursor.take()
            while cursor.at_symbol(".") or cursor.at_symbol("-"):
                cursor.take()
                cursor.take()
            return cursor.text[start : cursor.tokens_before(0)[-1].end]
        raise cursor.expected(what)

    def one() -> None:
        key_token = cursor.token
        key = text("the key of an option")
        cursor.expect_symbol("=")
        if key in found:
            raise cursor.error(f"the option {key!r} is given twice", key_token)
        found[key] = text("the value of an option")

    cursor.listed(one)
    return found


# --- hints ---------------------------------------------------------------------------------------
# `/*+ OPTIONS('key'='value') */`: dynamic options of one table in one statement.


def hint_options(cursor: Cursor) -> dict[str, str]:
    """The options of the hint that comes next; empty if there is none."""
    if cursor.token.kind is not Kind.HINT:
        return {}
    return read_hint(cursor.take())


def read_hint(token: Token) -> dict[str, str]:
    """The options in a hint. Raises Unsupported for any other hint."""
    inner = Cursor(token.value[3:-2])
    if not inner.skip("OPTIONS"):
        raise Unsupported("only the hint /*+ OPTIONS(...) */ is known", hint=token.value)
    found = options(inner)
    inner.end()
    return found
