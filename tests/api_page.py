"""Writes docs/api.md: every public name with its signature and the first sentence of its docstring.

python -m tests.api_page > docs/api.md
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING

import lakecore as lc
from lakecore import errors
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SECTIONS", "api_page"]

SECTIONS: dict[str, tuple[str, ...]] = {
    "Opening": ("connect", "open_table", "sql", "Session"),
    "Tables": ("Table", "ChangeStream", "Lookup", "MergeInto", "StreamWrite"),
    "Schema changes": ("SchemaChange", "Move"),
    "Values": ("sql_expr", "SqlExpression", "BlobDescriptor", "BlobView"),
}
"""The names of each section. The errors come last, and before them all other names, as results."""

_INTRODUCTION = (
    "The names of `lakecore`. They are imported when they are first used. Each has its signature "
    "and a summary; `help(lakecore.Table.write)` shows the whole text, with errors and examples. "
    "This page is generated: `python -m tests.api_page > docs/api.md`."
)


def api_page() -> str:
    """The text of the page."""
    named = {name for names in SECTIONS.values() for name in names}
    public = [name for name in lc.__all__ if not name.startswith("_")]
    failures = [name for name in public if name in errors.__all__]
    results = [name for name in public if name not in named and name not in failures]
    sections = {**SECTIONS, "Results and other values": results, "Errors": failures}
    lines = [
        "# Python API",
        "",
        _INTRODUCTION,
    ]
    for title, names in sections.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *_described(name)]
    return "\n".join(lines) + "\n"


def _described(name: str) -> Iterator[str]:
    value: object = getattr(lc, name)
    yield f"### {name}"
    yield ""
    if inspect.isclass(value):
        yield _summary(value)
        if dataclasses.is_dataclass(value):
            fields = [f"`{each.name}: {each.type}`" for each in dataclasses.fields(value)]
            yield ""
            yield f"Fields: {', '.join(fields)}."
        members = [] if issubclass(value, LakecoreError) else list(_members(value))
        if members:
            yield ""
            yield from members
    elif inspect.ismodule(value):
        yield _summary(value)
    elif callable(value):
        yield f"`{name}{_signature(value)}`"
        yield ""
        yield _summary(value)
    else:
        yield f"`{value!r}`"


def _members(owner: type) -> Iterator[str]:
    """The fields of a dataclass, and the public methods and properties, each in one line."""
    for name in sorted(dir(owner)):
        member = inspect.getattr_static(owner, name)
        if name.startswith("_") or not (inspect.getdoc(getattr(owner, name)) or "").strip():
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {_summary(member)}"
        elif isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            called = getattr(owner, name)
            yield f"- `{name}{_signature(called)}`: {_summary(called)}"


def _signature(called: Callable[..., object]) -> str:
    """The signature without `self`, and without the clock that only tests give."""
    found = inspect.signature(called)
    shown = [each for name, each in found.parameters.items() if name not in {"self", "ambient"}]
    text = str(found.replace(parameters=shown))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _summary(value: object) -> str:
    """The first sentence of the docstring, on one line."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", text, maxsplit=1)[0]


if __name__ == "__main__":
    print(api_page(), end="")
