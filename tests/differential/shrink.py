"""A failing history made smaller while it still fails: fewer steps, rows, columns, options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tests.differential.history import History, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.values import Row

Changes: TypeAlias = "tuple[tuple[str, Row], ...]"


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
            yield history.with_steps((*steps[:index], *steps[index + 1 :]))
    for index, step in enumerate(steps):
        if isinstance(step, Write):
            for changes in _cuts(step.changes):
                yield history.with_steps((*steps[:index], Write(changes), *steps[index + 1 :]))
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
        yield replace(
            history,
            table=replace(
                table,
                columns=(*table.columns[:index], *table.columns[index + 1 :]),
                options=options,
            ),
            steps=tuple(
                Write(
                    tuple((kind, [*row[:index], *row[index + 1 :]]) for kind, row in step.changes)
                )
                if isinstance(step, Write)
                else step
                for step in history.steps
            ),
        )


def _with_options(history: History, left_out: str) -> History:
    options = {key: text for key, text in history.table.options.items() if key != left_out}
    return replace(history, table=replace(history.table, options=options))
