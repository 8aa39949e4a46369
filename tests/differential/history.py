"""A history: a table, and the steps that change it, in the order they are played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import datasketches
from pyroaring import BitMap

from lakecore.merge.aggregators import roaring64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.interop.columns import Column, Json
    from tests.interop.model import Case
    from tests.interop.values import Row


@dataclass(frozen=True, slots=True)
class Write:
    """One commit of changes: (kind, row)."""

    changes: tuple[tuple[str, Row], ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """A compaction of every bucket."""

    full: bool


Step: TypeAlias = Write | Compact


@dataclass(frozen=True, kw_only=True)
class History:
    """A table without rows, and the steps.

    `order_free` names columns of lists whose order is not defined. `tags` say what is special about
    the rows, for `differences`. `relayed`: of lakecore's table Java writes every other commit.
    """

    seed: int
    table: Case
    steps: tuple[Step, ...]
    order_free: frozenset[str] = field(default=frozenset())
    tags: frozenset[str] = field(default=frozenset())
    relayed: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.table.columns

    @property
    def engine(self) -> str:
        return self.table.options.get("merge-engine", "deduplicate")

    @property
    def producer(self) -> str:
        return self.table.options.get("changelog-producer", "none")

    def with_steps(self, steps: Iterable[Step]) -> History:
        return replace(self, steps=tuple(steps))

    def comparable(self, rows: Iterable[Row], columns: Sequence[Column] | None = None) -> list[Row]:
        """The rows in a form that is equal where they mean the same.

        Lists without a defined order are sorted, bitmaps are the numbers in them, and sketches what
        they estimate.
        """
        forms = [self._form(column.name) for column in (columns or self.columns)]
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
            for column in self.columns
        ]
        lines += [
            "    ], [],",
            f"    primary_keys={list(self.table.primary_keys)!r},",
            f"    partition_keys={list(self.table.partition_keys)!r},",
            f"    options={dict(self.table.options)!r},",
            "), steps=(",
        ]
        for step in self.steps:
            if isinstance(step, Compact):
                lines.append(f"    {step!r},")
                continue
            lines.append("    Write((")
            lines += [f"        ({kind!r}, {row!r})," for kind, row in step.changes]
            lines.append("    )),")
        lines.append(
            f"), order_free={_set(self.order_free)}, tags={_set(self.tags)}, "
            f"relayed={self.relayed})"
        )
        return "\n".join(lines)


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
    "rbm64": lambda value: list(roaring64.decode(bytes.fromhex(str(value)))),
    "hll_sketch": lambda value: _estimate(datasketches.hll_sketch, value),
    "theta_sketch": lambda value: _estimate(datasketches.compact_theta_sketch, value),
}
