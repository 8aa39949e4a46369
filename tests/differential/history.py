"""A history: a table, and the steps that change it, in the order they are played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import datasketches
from pyroaring import BitMap

from lakecore.merge.aggregators import sketches
from tests.differential.shape import first_shape
from tests.differential.steps import Alter, Branch, Overwrite, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.differential.layout_draws import Layout
    from tests.differential.shape import Shape
    from tests.differential.steps import Step
    from tests.interop.columns import Json
    from tests.interop.model import Case
    from tests.interop.values import Row


@dataclass(frozen=True, kw_only=True)
class History:
    """A table without rows, and the steps.

    `order_free` names columns of lists whose order is not defined. `tags` say what is special about
    the rows, for `differences`. `relayed`: of lakecore's table Java writes every other commit.
    `foreign`: a table that lakecore reads, and does not write. `layout`: see `layout_draws`.
    """

    seed: int
    table: Case
    steps: tuple[Step, ...]
    order_free: frozenset[str] = field(default=frozenset())
    tags: frozenset[str] = field(default=frozenset())
    relayed: bool = False
    foreign: bool = False
    layout: Layout = "plain"

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The columns before each step, and after the last."""
        shapes = [first_shape(self.table.columns)]
        for number, step in enumerate(self.steps):
            shape = shapes[-1]
            added = f"+{number}"
            shapes.append(shape.after(step.change, added) if isinstance(step, Alter) else shape)
        return tuple(shapes)

    def keys(self, shape: Shape) -> list[int]:
        """Where the primary key is among the columns."""
        return [shape.identities.index(name) for name in self.table.primary_keys]

    @property
    def engine(self) -> str:
        if not self.table.primary_keys:
            return "append"
        return self.table.options.get("merge-engine", "deduplicate")

    @property
    def producer(self) -> str:
        return self.table.options.get("changelog-producer", "none")

    def with_steps(self, steps: Iterable[Step]) -> History:
        return replace(self, steps=tuple(steps))

    def comparable(self, rows: Iterable[Row], shape: Shape) -> list[Row]:
        """The rows in a form that is equal where they mean the same.

        Lists without a defined order are sorted, bitmaps are the numbers in them, and sketches what
        they estimate.
        """
        forms = [self._form(identity) for identity in shape.identities]
        if not any(forms):
            return list(rows)
        return [
            [form(value) if form and value is not None else value for form, value in pairs]
            for pairs in (zip(forms, row, strict=True) for row in rows)
        ]

    def _form(self, name: str) -> Callable[[Json], Json] | None:
        if name in self.order_free:
            return _sorted_list
        return _NUMBERS.get(self.table.options.get(f"fields.{name}.aggregate-function", ""))

    def __str__(self) -> str:
        """The history as Python that makes it again."""
        lines = [f"History(seed={self.seed}, table=case(", f"    {self.table.name!r},", "    ["]
        lines += [
            f"        Column({column.name!r}, parse_type({column.type.text!r})),"
            for column in self.table.columns
        ]
        lines += [
            "    ], [],",
            f"    primary_keys={list(self.table.primary_keys)!r},",
            f"    partition_keys={list(self.table.partition_keys)!r},",
            f"    options={dict(self.table.options)!r},",
            "), steps=(",
        ]
        for step in self.steps:
            match step:
                case Write() | Overwrite() | Branch():
                    lines.append(f"    {type(step).__name__}(changes=(")
                    lines += [f"        ({kind!r}, {row!r})," for kind, row in step.changes]
                    lines.append(f"    ){_given(step)}),")
                case _:
                    lines.append(f"    {step!r},")
        lines.append(
            f"), order_free={_set(self.order_free)}, tags={_set(self.tags)}, "
            f"relayed={self.relayed}, foreign={self.foreign}, layout={self.layout!r})"
        )
        return "\n".join(lines)


def _given(step: Write | Overwrite | Branch) -> str:
    """What a step has besides changes, as arguments."""
    match step:
        case Overwrite():
            return f", partition={step.partition!r}, dynamic={step.dynamic}"
        case Branch():
            return f", name={step.name!r}, forward={step.forward}"
    return ""


def _set(names: frozenset[str]) -> str:
    return f"frozenset({sorted(names)!r})"


def _sorted_list(value: Json) -> Json:
    assert isinstance(value, list)
    return sorted(value, key=repr)


def _estimate(library: Any, value: Json) -> Json:
    """How many values a sketch counts, to two digits: the libraries differ in those behind."""
    return f"{library.deserialize(bytes.fromhex(str(value))).get_estimate():.2g}"


_NUMBERS: Mapping[str, Callable[[Json], Json]] = {
    "rbm32": lambda value: list(BitMap.deserialize(bytes.fromhex(str(value)))),
    "rbm64": lambda value: list(sketches.decode(bytes.fromhex(str(value)))),
    "hll_sketch": lambda value: _estimate(datasketches.hll_sketch, value),
    "theta_sketch": lambda value: _estimate(datasketches.compact_theta_sketch, value),
}
