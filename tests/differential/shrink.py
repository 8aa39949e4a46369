"""A failing history made smaller while it still fails: fewer steps, rows, columns, options."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.differential.shape import Shape, first_shape
from tests.differential.steps import (
    Alter,
    Branch,
    Overwrite,
    Step,
    Write,
    columns_named,
    with_columns,
    with_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tests.differential.history import History
    from tests.differential.steps import Changes
    from tests.interop.engines import SchemaStep
    from tests.interop.model import Case


def shrink(history: History, fails: Callable[[History], bool], tries: int) -> History:
    """The smallest failing history found in so many tries."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(history):
            if tries == 0:
                return history
            tries -= 1
            if fails(candidate):
                history, smaller = candidate, True
                break
    return history


def _candidates(history: History) -> Iterator[History]:
    """Histories a little smaller, the boldest cuts first."""
    steps = history.steps
    for index in range(len(steps)):
        if len(steps) > 1:
            yield _rebuilt(history, history.table, (), without=index)
    for index, step in enumerate(steps):
        if isinstance(step, (Write, Overwrite, Branch)):
            for changes in _cuts(step.changes):
                smaller = replace(step, changes=changes)
                yield history.with_steps((*steps[:index], smaller, *steps[index + 1 :]))
    yield from _fewer_columns(history)
    for key in history.table.options:
        if not key.startswith(("merge-engine", "write-only", "bucket", "fields.")):
            yield _with_options(history, key)


def _cuts(changes: Changes) -> Iterator[Changes]:
    size = len(changes) // 2
    while size:
        for start in range(0, len(changes), size):
            left = changes[:start] + changes[start + size :]
            if left:
                yield left
        size //= 2


def _fewer_columns(history: History) -> Iterator[History]:
    """Without one column that no option names (but its own function)."""
    table = history.table
    for index, column in enumerate(table.columns):
        own = f"fields.{column.name}."
        options = {
            key: text
            for key, text in table.options.items()
            if not key.startswith(own) or key.endswith("sequence-group")
        }
        named = {
            name
            for key, text in options.items()
            for name in (*text.split(","), *key.removeprefix("fields.").split(".")[0].split(","))
        }
        if column.name in named or column.name in table.primary_keys:
            continue
        left = (*table.columns[:index], *table.columns[index + 1 :])
        yield _rebuilt(history, replace(table, columns=left, options=options), (column.name,))
    for number, step in enumerate(history.steps):
        if isinstance(step, Alter) and step.change[0] == "add":
            yield _rebuilt(history, table, (f"+{number}",), without=number)


def _rebuilt(
    history: History, table: Case, gone: Collection[str], without: int | None = None
) -> History:
    """The history of another table: without some columns, by identity, and without a step.

    Rows lose and gain values with the columns; steps that name a column that is gone go, too.
    """
    shape = first_shape(table.columns)
    steps: list[Step] = []
    for number, step in enumerate(history.steps):
        before = history.shapes[number]
        if number == without:
            continue
        names = columns_named(step)
        now = {name: _named_now(name, before, shape) for name in names}
        if None in now.values():
            continue
        if isinstance(step, Alter):
            change = _change_now(step.change, before, shape)
            if change is not None:
                steps.append(Alter(change))
                shape = shape.after(change, f"+{number}")
            continue
        found = with_rows(step, partial(before.row, target=shape))
        steps.append(with_columns(found, {name: str(new) for name, new in now.items()}))
    assert not set(gone) & set(shape.identities)
    return replace(history, table=table, steps=tuple(steps))


def _change_now(change: SchemaStep, before: Shape, shape: Shape) -> SchemaStep | None:
    """The change by the names that columns have now; None if one is gone, or its name is taken."""
    verb, name, *given = change
    if verb == "set":
        return change
    if isinstance(name, tuple):
        top = _named_now(str(name[0]), before, shape)
        return None if top is None else (verb, (top, *name[1:]), *given)
    if verb != "add":
        found = _named_now(str(name), before, shape)
        if found is None:
            return None
        name = found
    elif str(name) in shape.names:
        return None
    if verb == "rename" and str(given[0]) in shape.names:
        return None
    placed = given[-1] if given else None
    if isinstance(placed, tuple) and len(placed) == 2:
        beside = _named_now(str(placed[1]), before, shape)
        if beside is None or beside == name:
            return None
        given = [*given[:-1], (placed[0], beside)]
    return (verb, name, *given)


def _named_now(name: str, before: Shape, shape: Shape) -> str | None:
    identity = before.identity_of(name)
    return None if identity not in shape.identities else shape.name_of(str(identity))


def _with_options(history: History, left_out: str) -> History:
    options = {key: text for key, text in history.table.options.items() if key != left_out}
    return replace(history, table=replace(history.table, options=options))
