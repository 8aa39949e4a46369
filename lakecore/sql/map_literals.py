"""Flink's `MAP['k', 1, 'l', 2]` as DuckDB's `MAP{'k': 1, 'l': 2}`; all positions stay the same."""

from __future__ import annotations

import re

from lakecore.sql.tokens import Kind, tokenize

__all__ = ["with_maps"]

_MAY_HAVE = re.compile(r"\bmap\s*\[", re.IGNORECASE)


def with_maps(text: str) -> str:
    """The text with maps written as DuckDB writes them."""
    if _MAY_HAVE.search(text) is None:
        return text
    characters = list(text)
    commas: list[int | None] = []
    """For each open bracket, the number of commas in a map; None in other brackets."""
    before = ""
    for token in tokenize(text):
        symbol = token.value if token.kind is Kind.OTHER else ""
        if symbol and symbol in "([{":
            is_map = symbol == "[" and before == "MAP"
            commas.append(0 if is_map else None)
            characters[token.start] = "{" if is_map else symbol
        elif symbol and symbol in ")]}" and commas:
            characters[token.start] = symbol if commas.pop() is None else "}"
        elif symbol == "," and commas and (count := commas[-1]) is not None:
            characters[token.start] = "," if count % 2 else ":"
            commas[-1] = count + 1
        before = token.word
    return "".join(characters)
