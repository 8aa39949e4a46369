"""Writes the pages of the APIs: every public name with its parameters and its docstring.

python -m tests.api_page api > docs/api.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from importlib import import_module
from typing import TYPE_CHECKING

import lakecore as lc
from lakecore import errors
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

__all__ = ["SECTIONS", "api_page", "page_of"]

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
The names of `{module}`. They are imported when they are first used. Each has its docstring, which
`help({example})` shows, too, and its parameters. This page is generated:
`python -m tests.api_page {page} > docs/{page}.md`."""

_EXAMPLES = """

In the examples, `session` is a session, `table` its table `shop.orders` with the columns `id`,
`item`, `price` and `n`, and `rows` are rows of it; examples of partitions have a table that is
partitioned by `day`. A comment after an expression shows its value. The tests run each example
alone."""

PAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "api-spark": (
        "Spark API",
        "spark_bridge",
        {
            "Writing": "write prepare",
            "Reading": "read changes",
            "Changing rows": "delete update merge",
            "Operating": "compact expire_snapshots remove_orphan_files rescale analyze",
            "SQL": "sql attach register",
            "Streams": "read_stream foreach_batch cdc",
        },
    ),
    "api-testing": (
        "Testing API",
        "lakecore.testing",
        {
            "A model": "Model assert_same_rows",
            "Strategies": "schemas rows options conditions schema_changes histories",
            "Machines": "TableMachine",
            "Storage that fails": "faulty_warehouse every_call Faults",
            "Time and chance": "Clock seeded_ambient",
            "Golden tables": "golden golden_names",
            "Compliance": "suite",
        },
    ),
}
"""By the name of the page: its title, its module, and the names of each section."""


def api_page() -> str:
    """The text of docs/api.md."""
    named = {name for names in SECTIONS.values() for name in names}
    public = [name for name in lc.__all__ if not name.startswith("_")]
    failures = [name for name in public if name in errors.__all__]
    results = [name for name in public if name not in named and name not in failures]
    introduction = _INTRODUCTION.format(
        module="lakecore", example="lakecore.Table.write", page="api"
    )
    sections = {**SECTIONS, "Results": results, "Errors": failures}
    return _page("Python API", introduction + _EXAMPLES, lc, sections)


def page_of(page: str) -> str:
    """The text of another page, such as "api-spark": names of no section come last."""
    title, name, chosen = PAGES[page]
    sections = {title: names.split() for title, names in chosen.items()}
    module = import_module(name)
    named = {each for names in sections.values() for each in names}
    sections["Classes of arguments and results"] = [
        each for each in module.__all__ if each not in named
    ]
    example = f"{name}.{next(iter(sections.values()))[0]}"
    introduction = _INTRODUCTION.format(module=name, example=example, page=page)
    return _page(title, introduction, module, sections)


def _page(
    title: str, introduction: str, module: ModuleType, sections: Mapping[str, Sequence[str]]
) -> str:
    lines = [f"# {title}", "", introduction]
    for section, names in sections.items():
        lines += ["", f"## {section}"]
        for name in names:
            value: object = getattr(module, name)
            lines += [""] if [*names] != [section] else []
            lines += _described(name, value, 2 if [*names] == [section] else 3)
    return "\n".join(lines) + "\n"


def _described(name: str, value: object, level: int = 3) -> Iterator[str]:
    """A name with its docstring and members; at level 2, the section is its heading."""
    if level > 2:
        yield f"### {name}"
    if inspect.isclass(value):
        yield ""
        yield from _docstring(value)
        if dataclasses.is_dataclass(value) and (fields := dataclasses.fields(value)):
            yield ""
            yield from (f"- `{each.name}: {each.type}`" for each in fields)
        if not issubclass(value, LakecoreError):
            yield from _members(value)
    elif inspect.ismodule(value):
        yield ""
        yield from _docstring(value)
        for each in getattr(value, "__all__", ()):
            if inspect.isclass(member := getattr(value, each)):
                yield ""
                yield from _described(f"{name}.{each}", member)
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
    types = []
    for each in shown:
        default = "" if each.default is each.empty else f", default `{each.default!r}`"
        types.append(f"- `{each.name}`: `{_type(each.annotation)}`{default}")
    if found.return_annotation not in (found.empty, None, "None"):
        types.append(f"- returns `{_type(found.return_annotation)}`")
    yield from ["", *types] if types else []


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
    [wanted] = sys.argv[1:]
    print(api_page() if wanted == "api" else page_of(wanted), end="")
