"""The steps of a history: what is done to a table, by its values alone.

Values are canonical (`tests.interop.values`), types and partitions are text, so that the `repr` of
a step makes it again. A row holds the columns that the schema has when the step is played.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.interop.columns import Json
    from tests.interop.engines import SchemaStep
    from tests.interop.values import Row

Change: TypeAlias = "tuple[str, Row]"
Changes: TypeAlias = "tuple[Change, ...]"
# Of each partition key its value, as text.
Partition: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True, slots=True)
class Write:
    """One commit of changes: (kind, row)."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Changes in the place of a partition's rows, of those they lie in (`dynamic`), or of all."""

    changes: Changes
    partition: Partition = ()
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Clear:
    """The rows of some partitions go; without any, all."""

    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    """A compaction of every bucket."""

    full: bool


@dataclass(frozen=True, slots=True)
class Alter:
    """A change of the schema."""

    change: SchemaStep


@dataclass(frozen=True, slots=True)
class Rescale:
    """The rows of all partitions go to as many buckets as the option says."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The rows of all partitions are sorted; of both tables by lakecore."""

    strategy: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The files get the indexes that the options ask for; of both tables by lakecore."""


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on one column."""

    column: str
    operator: Literal["is null", "is not null", "=", "<", ">="]
    value: Json = None

    def holds(self, value: Json) -> bool:
        """Whether it is true of a value: null, a number or a text."""
        match self.operator:
            case "is null":
                return value is None
            case "is not null":
                return value is not None
            case "=":
                return value is not None and value == self.value
        if value is None:
            return False
        less = bool(value < self.value)  # type: ignore[operator]
        return less == (self.operator == "<")


@dataclass(frozen=True, slots=True)
class Delete:
    """The verb: rows that match go."""

    where: Where


@dataclass(frozen=True, slots=True)
class Update:
    """The verb: of rows that match a column is set."""

    column: str
    value: Json
    where: Where


@dataclass(frozen=True, slots=True)
class Upsert:
    """The verb MERGE: rows in the place of those equal in some columns, or beside all others."""

    rows: tuple[Row, ...]
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tag:
    """The latest snapshot gets a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Untag:
    """A tag goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Changes are written to a new branch; with `forward`, the table gets its state."""

    name: str
    changes: Changes
    forward: bool


@dataclass(frozen=True, slots=True)
class Expire:
    """Snapshots go, but for those of the newest steps that made some."""

    keep: int


@dataclass(frozen=True, slots=True)
class RollBack:
    """The table goes back by as many of the steps that made its snapshots."""

    steps: int


Verb: TypeAlias = Delete | Update | Upsert
Step: TypeAlias = (
    Write
    | Overwrite
    | Clear
    | Compact
    | Alter
    | Rescale
    | Cluster
    | Index
    | Delete
    | Update
    | Upsert
    | Tag
    | Untag
    | Branch
    | Expire
    | RollBack
)


def with_rows(step: Step, change: Callable[[Row], Row]) -> Step:
    """The step with other rows in the place of its own."""
    match step:
        case Write() | Overwrite() | Branch():
            return replace(step, changes=tuple((kind, change(row)) for kind, row in step.changes))
        case Upsert():
            return replace(step, rows=tuple(change(row) for row in step.rows))
        case _:
            return step


def columns_named(step: Step) -> frozenset[str]:
    """The columns that a step names, but for those of a change of the schema."""
    match step:
        case Delete():
            return frozenset({step.where.column})
        case Update():
            return frozenset({step.column, step.where.column})
        case Upsert():
            return frozenset(step.on)
        case Cluster():
            return frozenset(step.columns)
        case _:
            return frozenset()


def with_columns(step: Step, names: Mapping[str, str]) -> Step:
    """The step with other names for the columns that it names."""
    match step:
        case Delete():
            return Delete(replace(step.where, column=names[step.where.column]))
        case Update():
            where = replace(step.where, column=names[step.where.column])
            return Update(names[step.column], step.value, where)
        case Upsert():
            return Upsert(step.rows, tuple(names[name] for name in step.on))
        case Cluster():
            return replace(step, columns=tuple(names[name] for name in step.columns))
        case _:
            return step
