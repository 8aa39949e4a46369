"""Writes docs/api.md: every public name with its parameters and its docstring.

python -m tests.api_page > docs/api.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from typing import TYPE_CHECKING

import lakecore as lc
from lakecore import errors
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SECTIONS", "api_page"]

SECTIONS: dict[str, tuple[str, ...]] = {
    "Opening": ("connect", "open_table", "sql"),
    "Session": ("Session",),
    "Table": ("Table",),
    "Handles that a table returns": ("ChangeStream", "Lookup", "MergeInto", "StreamWrite"),
    "Schema changes": ("SchemaChange", "Move"),
    "Values and settings": (
        "sql_expr",
        "SqlExpression",
        "BlobDescriptor",
        "BlobView",
        "variant_to_json",
        "memory",
    ),
}
"""The names of each section. The errors come last, and before them all other names, as results."""
READ = """scan to_polars to_arrow to_pandas to_duckdb to_batches to_arrow_dataset head count explain
    lookup open_lookup changes stream inspect schema"""
WRITE = """write overwrite delete update merge ingest new_write new_stream_write commit
    last_identifier drop_partition truncate"""
HANDLE = "identifier path options context copy refresh"
"""The members of a table by what they are for; all others operate it."""

_INTRODUCTION = """\
The names of `lakecore`. They are imported when they are first used. Each has its docstring, which
`help(lakecore.Table.write)` shows, too, and its parameters. This page is generated:
`python -m tests.api_page > docs/api.md`."""


def api_page() -> str:
    """The text of the page."""
    named = {name for names in SECTIONS.values() for name in names}
    public = [name for name in lc.__all__ if not name.startswith("_")]
    failures = [name for name in public if name in errors.__all__]
    results = [name for name in public if name not in named and name not in failures]
    sections = {**SECTIONS, "Results": results, "Errors": failures}
    lines = ["# Python API", "", _INTRODUCTION]
    for title, names in sections.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *_described(name)] if names != (title,) else _described(name, 2)
    return "\n".join(lines) + "\n"


def _described(name: str, level: int = 3) -> Iterator[str]:
    """A name with its docstring and members; at level 2, the section is its heading."""
    value: object = getattr(lc, name)
    if level > 2:
        yield f"### {name}"
    if inspect.isclass(value):
        yield ""
        yield from _docstring(value)
        if dataclasses.is_dataclass(value):
            yield ""
            yield from (f"- `{each.name}: {each.type}`" for each in dataclasses.fields(value))
        if not issubclass(value, LakecoreError):
            yield from _members(value)
    elif inspect.ismodule(value):
        yield ""
        yield from _docstring(value)
    else:
        assert callable(value), name
        yield from _call(name, value)


def _members(owner: type) -> Iterator[str]:
    """The public methods and properties: a summary of all, then each with its docstring."""
    members = {
        name: inspect.getattr_static(owner, name)
        for name in sorted(dir(owner))
        if not name.startswith("_") and (inspect.getdoc(getattr(owner, name)) or "").strip()
    }
    members = {
        name: member
        for name, member in members.items()
        if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
    }
    for title, names in _groups(owner, list(members)).items():
        yield ""
        if title:
            yield f"### {title}"
            yield ""
        if names:
            yield "| member | summary |"
            yield "|---|---|"
        for name in names:
            summary = _summary(getattr(owner, name)).replace("|", "\\|")
            yield f"| `{name}` | {summary} |"
        for name in names:
            yield ""
            yield f"#### {owner.__name__}.{name}"
            if isinstance(members[name], property):
                yield ""
                yield from _docstring(members[name])
            else:
                yield from _call(name, getattr(owner, name))


def _groups(owner: type, names: list[str]) -> dict[str, list[str]]:
    if owner is not lc.Table:
        return {"": names}
    read, write, handle = READ.split(), WRITE.split(), HANDLE.split()
    chosen = {*read, *write, *handle}
    assert chosen <= set(names), chosen - set(names)
    operate = [name for name in names if name not in chosen]
    return {"Read": read, "Write": write, "Operate": operate, "The handle": handle}


def _call(name: str, called: Callable[..., object]) -> Iterator[str]:
    """A call with the names of its parameters, the docstring, and each parameter with its type."""
    found = inspect.signature(called)
    shown = [each for key, each in found.parameters.items() if key not in {"self", "ambient"}]
    yield ""
    parameters = [each.replace(annotation=each.empty, default=each.empty) for each in shown]
    yield f"`{name}{found.replace(parameters=parameters, return_annotation=found.empty)}`"
    yield ""
    yield from _docstring(called)
    yield ""
    for each in shown:
        default = "" if each.default is each.empty else f", default `{each.default!r}`"
        yield f"- `{each.name}`: `{_type(each.annotation)}`{default}"
    if found.return_annotation not in (found.empty, None, "None"):
        yield f"- returns `{_type(found.return_annotation)}`"


def _type(annotation: object) -> str:
    return re.sub(r"^[\"'](.*)[\"']$", r"\1", str(annotation))


def _docstring(value: object) -> Iterator[str]:
    """The docstring as Markdown: an indented block is an example, in a fence."""
    within = False
    summary, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
    if rest and _is_code(rest):  # an example alone has lost its indentation
        rest = textwrap.indent(rest, "    ")
    lines = f"{summary}\n\n{rest}".strip().splitlines()
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if not within and line.startswith("    ") and not before:
            yield "```py3"
            within = True
        elif within and line and not line.startswith("    "):
            within = False
        if within and not line and not _goes_on(lines[number:]):
            yield "```"
            within = False
        yield line[4:] if within else line
    if within:
        yield "```"


def _is_code(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _goes_on(lines: list[str]) -> bool:
    """Whether an example goes on after empty lines."""
    return next((line.startswith("    ") for line in lines if line), False)


def _summary(value: object) -> str:
    """The first sentence of the docstring, on one line."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", text, maxsplit=1)[0]


if __name__ == "__main__":
    print(api_page(), end="")
