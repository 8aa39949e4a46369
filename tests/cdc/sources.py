"""A source in memory, and rules that name each target after its source table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable, Step
from lakecore.errors import InvalidRequest, StorageError
from lakecore.model.data_types import Field
from lakecore.model.schema_change import SchemaChange
from lakecore.model.types import parse_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.cdc.events import Position
    from lakecore.model.schema_change import Change

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


def schema(columns: Mapping[str, str], key: Sequence[str] = ("id",)) -> SourceSchema:
    """A schema of columns by name and Paimon's type text."""
    fields = tuple(
        Field(id=number, name=name, type=parse_type(text))
        for number, (name, text) in enumerate(columns.items())
    )
    return SourceSchema(fields=fields, primary_key=tuple(key))


def batch(table: SourceTable, of: SourceSchema, *rows: tuple[object, ...]) -> ChangeBatch:
    """Rows, each with its kind before its values."""
    columns = list(zip(*(row[1:] for row in rows), strict=True)) or [() for _ in of.fields]
    arrays = [pa.array(values, each.type) for values, each in zip(columns, of.arrow, strict=True)]
    nullable = pa.schema([each.with_nullable(True) for each in of.arrow])
    return ChangeBatch(
        table=table,
        schema=of,
        rows=pa.Table.from_arrays(arrays, schema=nullable),
        kinds=pa.array([KINDS[str(row[0])] for row in rows], pa.int8()),
    )


@dataclass
class ListSource:
    """Steps from a list; the position counts them."""

    batches: Sequence[Sequence[ChangeBatch]]
    known: Mapping[SourceTable, SourceSchema] = field(default_factory=dict)
    fails_at: set[int] = field(default_factory=set)
    closed: bool = False

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        if self.known:
            return self.known
        found: dict[SourceTable, SourceSchema] = {}
        for each in self.batches:
            for one in each:
                found.setdefault(one.table, one.schema)
        return found

    def steps(self, after: Position | None) -> Iterator[Step]:
        start = 0 if after is None else int(str(after["step"]))
        for number, each in enumerate(self.batches[start:], start + 1):
            if number in self.fails_at:
                self.fails_at.remove(number)
                raise StorageError("the source went away")
            yield Step(
                batches=tuple(each),
                position={"step": number},
                caught_up=number == len(self.batches),
            )
        while True:
            yield Step(position={"step": len(self.batches)}, caught_up=True)

    def describe(self) -> Mapping[str, str]:
        return {"kind": "list"}

    def close(self) -> None:
        self.closed = True


@dataclass
class PlainRules:
    """Each source table has a target of its name in `database`; new columns are added."""

    database: str = "d"
    options: Mapping[str, str] = field(default_factory=lambda: {"bucket": "1"})
    shards: Mapping[str, str] = field(default_factory=dict)

    def target(self, table: SourceTable) -> str | None:
        return f"{self.database}.{self.shards.get(table.name, table.name)}"

    def shape(self, table: SourceTable, given: SourceSchema) -> SourceSchema:
        del table
        return given

    def rows(self, given: ChangeBatch) -> ChangeBatch:
        return given

    def create(
        self, catalog: object, table: object, target: str, given: SourceSchema, *, first: bool
    ) -> bool:
        del table, first
        if "bad" in target:
            raise InvalidRequest("the target does not fit", table=target)
        catalog.create_table(  # type: ignore[attr-defined]
            target,
            {each.name: str(each.type) for each in given.fields},
            primary_keys=given.primary_key,
            options=self.options,
            ignore_if_exists=True,
        )
        return True

    def check(self, catalog: object, table: object, target: str, given: SourceSchema) -> None:
        del catalog, table, given
        if "bad" in target:
            raise InvalidRequest("the target does not fit", table=target)

    def changes(self, table: object, given: SourceSchema) -> Sequence[Change]:
        names = table.names  # type: ignore[attr-defined]
        return [
            SchemaChange.add_column(each.name, str(each.type).removesuffix(" NOT NULL"))
            for each in given.fields
            if each.name not in names
        ]
