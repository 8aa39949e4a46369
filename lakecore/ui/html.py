"""HTML and SVG put together from elements. Text is escaped when it enters an element.

INVARIANT: only functions of this module make `Html` from values, so no name or value of a table can
become an element, an attribute or a script. In texts, control characters are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote, urlencode

from lakecore.display import one_line, show_bytes

TEXT_MAX = 400
_NOTHING: tuple[object, ...] = (None, "", {}, [], ())
_UNITS = ("_bytes", "_ms", "_seconds")
_VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `_` in attribute names stands for `-`; an attribute of None or False is left out.

    Children are `Html`, other values (shown as text), or None (left out).
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(*children)}</{name}>")


def verbatim(text: str) -> Html:
    """The whole text with its lines, for an element that keeps them."""
    return Html(escape(text))


def joined(*children: object) -> Html:
    """The children, one after the other."""
    return Html(
        "".join(
            each if isinstance(each, Html) else escape(one_line(each, TEXT_MAX))
            for each in children
            if each is not None
        )
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], **attributes: object) -> Html:
    """A table that scrolls within itself. Numbers are right-aligned; a missing value is empty.

    Counts get separators of thousands: a value of a row is passed as an element.
    """

    def cell(value: object) -> Html:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return tag("td", f"{value:,}" if is_number else value, class_="n" if is_number else None)

    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = (tag("tr", *map(cell, row)) for row in rows)
    whole = tag("table", tag("thead", head), tag("tbody", *body), **attributes)
    return tag("div", whole, class_="scroll", tabindex="0")


def records(
    rows: Sequence[Mapping[str, object]],
    *,
    place: str,
    **shown: Callable[[dict[str, object]], Html] | None,
) -> Html:
    """A table, with the id `place`, of records with the same keys; a record may lack the last ones.

    A key without a value in any record is left out.
    `shown`: by key, the function that makes the cells; None leaves the key out. The suffix of the
    key decides how other values are shown: `_bytes`, `_ms`, `_seconds`.
    """
    longest: Mapping[str, object] = max(rows, key=len, default={})
    keys = [
        key
        for key in longest
        if shown.get(key, _shown) is not None and any(row.get(key) not in _NOTHING for row in rows)
    ]

    def cell(row: Mapping[str, object], key: str) -> object:
        own = shown.get(key)
        return _shown(key, row.get(key)) if own is None else own(dict(row))

    cells = ([cell(row, key) for key in keys] for row in rows)
    return table([_head(key) for key in keys], cells, id=place)


def facts(pairs: Mapping[str, object], *, place: str) -> Html:
    """A table of names and values, shown as in `records`; pairs without a value are left out."""
    rows = (
        tag("tr", tag("th", _head(name), scope="row"), tag("td", _shown(name, value)))
        for name, value in pairs.items()
        if value not in _NOTHING
    )
    return tag("table", tag("tbody", *rows), class_="facts", id=place)


def _head(key: str) -> str:
    """The name of a value, without its unit: `size_bytes` is a size."""
    for unit in _UNITS:
        key = key.removesuffix(unit)
    return key.replace("_", " ")


def _shown(key: str, value: object) -> object:
    text: str | None = None
    match value:
        case int() | float() if key.endswith("_bytes"):
            text = show_bytes(int(value))
        case int() if key.endswith("_ms"):
            text = moment(value)
        case int() | float() if key.endswith("_seconds"):
            text = ago(value)
        case Mapping():
            return ", ".join(f"{name} = {each}" for name, each in value.items())
        case tuple():
            return ", ".join(map(str, value))
        case list():
            return joined(*(tag("div", each) for each in value))
        case _:
            return value
    return tag("span", text, class_="whole")


def link(text: object, *parts: object, **query: object) -> Html:
    """A link to the page of these path parts."""
    return tag("a", text, href=address(*parts, **query))


def address(*parts: object, **query: object) -> str:
    """The path and query of a page. A name that ends in `.json` stays apart from a JSON page."""
    names = [quote(str(part), safe="") for part in parts]
    if names and names[-1].endswith(".json"):
        names[-1] = names[-1].removesuffix(".json") + "%2Ejson"
    stated = {key: value for key, value in query.items() if value not in (None, "")}
    return "/" + "/".join(names) + ("?" + urlencode(stated) if stated else "")


def moment(time_ms: int | None) -> str | None:
    """A time in UTC."""
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def ago(seconds: float) -> str:
    """A duration for people: `5 min`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def page(title: str, where: str, crumbs: Sequence[Html], body: object, json: str | None) -> Html:
    """A whole page. `where`: the warehouse; `crumbs`: links above it; `json`: its JSON address."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} - lakecore"),
        tag("link", rel="icon", href="/static/icon.svg"),
        tag("link", rel="stylesheet", href="/static/ui.css"),
        tag("script", src="/static/ui.js", defer=True),
    )
    top = tag(
        "header",
        tag("a", "Skip to content", class_="skip", href="#main"),
        tag("nav", *crumbs, aria_label="Place"),
        tag(
            "form",
            tag(
                "input",
                type="search",
                name="q",
                placeholder="Search tables  ( / )",
                aria_label="Search tables",
                id="search",
            ),
            action="/",
            role="search",
        ),
        tag("nav", link("Tables"), link("SQL", "sql"), aria_label="Pages"),
    )
    foot = tag(
        "footer",
        tag("span", where),
        None if json is None else tag("a", "This page as JSON", href=json),
        tag("a", "Metrics", href="/metrics"),
    )
    main = tag("main", tag("h1", title), body, id="main", tabindex="-1")
    whole = tag("html", head, tag("body", top, main, foot), lang="en")
    return Html(f"<!doctype html>\n{whole}\n")
