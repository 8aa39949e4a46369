"""The arguments that commands share: which table, and which options."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Path = Annotated[str, typer.Argument(metavar="PATH", help="Directory of the table, or its URI.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="Option of table or storage; repeatable."
    ),
]

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}")


def point(text: str | None) -> str | datetime | None:
    """What a text names: a time, if it is one of ISO 8601 with a date and a time, else as it is."""
    if text is None or not _TIME.match(text):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def stated(pairs: Iterable[str] | None, what: str = "an option") -> Mapping[str, str]:
    """The options of KEY=VALUE texts; InvalidRequest for another text, saying what it should be."""
    options: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(f"{what} is written KEY=VALUE", given=pair)
        options[key.strip()] = value.strip()
    return options
