"""A case: a table, the commits that fill it, and the rows that every engine must then see.

The expected rows come from the few lines below, which know neither lakecore nor any peer: newest
wins, by the sequence fields if the table has them, else by arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from tests.interop import values
from tests.interop.columns import Column, columns_to_json, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.interop.columns import Json, Type
    from tests.interop.values import Row

Change: TypeAlias = "tuple[str, Row]"
Commit: TypeAlias = "tuple[Change, ...]"

KIND_COLUMN = "op"
_RETRACTIONS = ("-U", "-D")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table and the commits that fill it. `tags` say what is special, for `limits`."""

    name: str
    columns: tuple[Column, ...]
    commits: tuple[Commit, ...]
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()

    @property
    def file_format(self) -> str:
        return self.options.get("file.format", "parquet")

    @cached_property
    def features(self) -> frozenset[str]:
        """All that a limit of a peer can refer to."""
        kinds = {"pk" if self.primary_keys else "append", f"format:{self.file_format}"}
        kinds |= {f"option:{key}={value}" for key, value in self.options.items()}
        for column in self.columns:
            role = (
                "partition"
                if column.name in self.partition_keys
                else "key"
                if column.name in self.primary_keys
                else "value"
            )
            kinds.add(f"{role}:{column.type.root}")
            kinds.add(f"{role}:{column.type.bare_text}")
            kinds |= {f"contains:{root}" for root in _contained(column.type)}
        return frozenset(kinds | self.tags)

    def schema(self) -> dict[str, Json]:
        """The arguments of `create`, but for the path."""
        return {
            "columns": columns_to_json(self.columns),
            "primary_keys": list(self.primary_keys),
            "partition_keys": list(self.partition_keys),
            "options": dict(self.options),
        }

    def expected(self, commits: int | None = None) -> list[Row]:
        """The rows after the first so many commits, all unless said."""
        changes = [change for commit in self.commits[:commits] for change in commit]
        rows = [row for _, row in changes]
        return self._merged(changes) if self.primary_keys else values.sort_rows(rows)

    def _merged(self, changes: Iterable[Change]) -> list[Row]:
        names = [column.name for column in self.columns]
        keys = [names.index(name) for name in self.primary_keys]
        sequence = self.options.get("sequence.field", "")
        order = [names.index(name) for name in sequence.split(",") if name]
        kind_field = self.options.get("rowkind.field")
        newest: dict[str, tuple[str, Row]] = {}
        for written_kind, row in changes:
            kind = str(row[names.index(kind_field)]) if kind_field else written_kind
            if kind in _RETRACTIONS and self.options.get("ignore-delete") == "true":
                continue
            key = repr([row[index] for index in keys])
            if key in newest and self._older(row, newest[key][1], order):
                continue
            newest[key] = (kind, row)
        return values.sort_rows(row for kind, row in newest.values() if kind not in _RETRACTIONS)

    def _older(self, row: Row, other: Row, order: Sequence[int]) -> bool:
        """Whether the sequence fields put a row before another; a null is before anything."""
        descending = self.options.get("sequence.field.sort-order") == "descending"
        for index in order:
            mine, theirs = row[index], other[index]
            if mine == theirs:
                continue
            if mine is None or theirs is None:
                return mine is None
            kind = self.columns[index].type
            return (_sortable(mine, kind) < _sortable(theirs, kind)) != descending  # type: ignore[operator]
        return False

    def with_kind_column(self) -> Case:
        """The same case with the row kinds in a column that `rowkind.field` names.

        It is the only way in which pypaimon and paimon-rust write deletions.
        """
        if not self.primary_keys or "rowkind.field" in self.options:
            return self
        return replace(
            self,
            name=f"{self.name}+kinds",
            columns=(*self.columns, Column(KIND_COLUMN, parse_type("STRING NOT NULL"))),
            commits=tuple(
                tuple(("+I", [*row, kind]) for kind, row in commit) for commit in self.commits
            ),
            options={**self.options, "rowkind.field": KIND_COLUMN},
        )


def case(
    name: str,
    columns: Sequence[Column],
    commits: Sequence[Sequence[tuple[str, Sequence[Json]]]],
    *,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    tags: Iterable[str] = (),
) -> Case:
    """A case from values in any written form; key columns become NOT NULL."""
    fixed = tuple(
        replace(column, type=replace(column.type, nullable=False))
        if column.name in primary_keys
        else column
        for column in columns
    )
    return Case(
        name=name,
        columns=fixed,
        commits=tuple(
            tuple((kind, values.canonical_rows([row], fixed)[0]) for kind, row in commit)
            for commit in commits
        ),
        primary_keys=tuple(primary_keys),
        partition_keys=tuple(partition_keys),
        options=dict(options or {}),
        tags=frozenset(tags),
    )


def _sortable(value: Json, kind: Type) -> Decimal | str:
    text = str(value)
    return Decimal(text) if kind.root == "DECIMAL" or kind.root in values.INTEGERS else text


def _contained(kind: Type) -> set[str]:
    inner = {root for child in kind.children for root in _contained(child.type)}
    return inner | {child.type.root for child in kind.children}
