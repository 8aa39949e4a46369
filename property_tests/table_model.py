"""A table as the plain list of rows that were ever handed to it, and what it must hold of them.

Nothing here knows files, buckets or levels. A row is kept by field id in the values it was written
with; `Model.rows` folds the rows alive at a snapshot into a dict, `Model.query` asks DuckDB the
same with one window function over the whole raw history. What a table gives out must equal both.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakecore.model.types import Atomic, DataType, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import duckdb

    from lakecore.model.schema import TableSchema

Row: TypeAlias = "dict[int, Any]"
"""Values by field id."""
Rows: TypeAlias = "Counter[tuple[Any, ...]]"
"""Rows without an order, each as often as it is there."""

ADDS = ("+I", "+U")


def plain(value: Any) -> Any:
    """The value as one that equals itself and nothing else: NaN is NaN, -0.0 is not 0.0."""
    match value:
        case float():
            return "nan" if math.isnan(value) else struct.pack(">d", value)
        case list() | tuple():
            return tuple(plain(item) for item in value)
        case dict():
            return tuple((name, plain(item)) for name, item in value.items())
        case bool():
            return str(value)
    return value


def counted(rows: Iterable[Sequence[Any]]) -> Rows:
    """The rows, to be compared with others whatever their order."""
    return Counter(tuple(plain(value) for value in row) for row in rows)


def counted_arrow(table: pa.Table) -> Rows:
    """The rows of an Arrow table."""
    columns = [column.to_pylist() for column in table.columns]
    return counted(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


@dataclass(slots=True, kw_only=True)
class Event:
    """A row that was committed: in which snapshot it came, and by which it was cleared."""

    arrival: int
    kind: str
    row: Row
    added: int
    cleared: int | None = None

    def lives_at(self, snapshot_id: int) -> bool:
        """Whether an overwrite has not cleared it, and it is there already."""
        return self.added <= snapshot_id and (self.cleared is None or self.cleared > snapshot_id)


@dataclass(slots=True, kw_only=True)
class Rules:
    """What of a schema decides how rows merge, by field id: a rename changes none of it."""

    key: tuple[int, ...]
    partition: tuple[int, ...]
    sequence: tuple[int, ...] = ()
    descending: bool = False
    row_kind: int | None = None
    skipped: tuple[str, ...] = ()
    """Kinds of rows that are not taken in."""

    @staticmethod
    def of(schema: TableSchema) -> Rules:
        """The rules of a new table."""
        options = schema.parsed_options()
        skipped = ["-U"] if options.ignore_update_before or options.ignore_delete else []
        skipped += ["-D"] if options.ignore_delete else []
        kind = options.rowkind_field
        return Rules(
            key=tuple(schema.field(name).id for name in schema.primary_keys),
            partition=tuple(schema.field(name).id for name in schema.partition_keys),
            sequence=tuple(schema.field(name).id for name in options.sequence_field),
            descending=str(options.sequence_field_sort_order) == "descending",
            row_kind=None if kind is None else schema.field(kind).id,
            skipped=tuple(skipped),
        )


@dataclass(slots=True, kw_only=True)
class Model:
    """The history of a table. `schemas` holds the schema with which each snapshot is read."""

    rules: Rules
    events: list[Event] = field(default_factory=list)
    schemas: dict[int, TableSchema] = field(default_factory=dict)
    arrivals: int = 0

    @property
    def latest(self) -> int:
        """The id of the newest snapshot; 0 before the first."""
        return max(self.schemas, default=0)

    def commit(
        self,
        schema: TableSchema,
        rows: Iterable[tuple[str, Row]] = (),
        clears: Callable[[tuple[Any, ...]], bool] | None = None,
    ) -> None:
        """The next snapshot: clear the partitions that `clears` names, then add the rows."""
        snapshot_id = self.latest + 1
        for event in self.events:
            if clears and event.cleared is None and clears(self.partition_of(event.row)):
                event.cleared = snapshot_id
        for kind, row in self.taken_in(rows):
            self.arrivals += 1
            self.events.append(Event(arrival=self.arrivals, kind=kind, row=row, added=snapshot_id))
        self.schemas[snapshot_id] = schema

    def taken_in(self, rows: Iterable[tuple[str, Row]]) -> list[tuple[str, Row]]:
        """The rows that are not skipped, with the kinds that they count as."""
        kind_field = self.rules.row_kind
        kinded = [(k if kind_field is None else row[kind_field], row) for k, row in rows]
        return [(kind, row) for kind, row in kinded if kind not in self.rules.skipped]

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        """The partition a row lies in."""
        return tuple(row[field_id] for field_id in self.rules.partition)

    def rows(self, snapshot_id: int, schema: TableSchema) -> Rows:
        """The rows at a snapshot (0: none), as columns of a schema, from a dict by key."""
        alive = [event for event in self.events if event.lives_at(snapshot_id)]
        if self.rules.key:
            newest: dict[tuple[Any, ...], Event] = {}
            for event in alive:
                key = tuple(plain(event.row[field_id]) for field_id in self.rules.key)
                held = newest.get(key)
                if held is None or not self._is_older(event, held):
                    newest[key] = event
            alive = [event for event in newest.values() if event.kind in ADDS]
        return counted(_values(event.row, schema) for event in alive)

    def _is_older(self, event: Event, held: Event) -> bool:
        """Whether a row that came later still loses, by its sequence fields. Null is smallest."""
        for field_id in self.rules.sequence:
            new, old = event.row.get(field_id), held.row.get(field_id)
            if plain(new) == plain(old):
                continue
            if new is None or old is None:
                return new is None
            smaller = bool(_ranked(new) < _ranked(old))
            return smaller is not self.rules.descending
        return False

    def query(
        self, connection: duckdb.DuckDBPyConnection, snapshot_id: int, schema: TableSchema
    ) -> Rows:
        """The rows at a snapshot by one window query over the raw history."""
        events = [event for event in self.events if event.added <= snapshot_id]
        fields = {f"c{f.id}": f for f in schema.fields}
        raw: dict[str, pa.Array] = {
            name: pa.array(
                [cast(event.row.get(f.id), f.type) for event in events], arrow_type(f.type)
            )
            for name, f in fields.items()
        }
        raw["arrival"] = pa.array([event.arrival for event in events], pa.int64())
        raw["kind"] = pa.array([event.kind for event in events], pa.string())
        raw["cleared"] = pa.array([event.cleared for event in events], pa.int64())
        raw["place"] = pa.array(
            [repr([plain(event.row[i]) for i in self.rules.key]) for event in events], pa.string()
        )
        connection.register("raw_history", pa.table(raw))
        direction = "asc" if self.rules.descending else "desc"
        order = [f"c{field_id} {direction} nulls last" for field_id in self.rules.sequence]
        ranked = (
            "row_number() over (partition by place order by "
            + ", ".join([*order, "arrival desc"])
            + ")"
            if self.rules.key
            else "1"
        )
        found = connection.sql(
            f"""
            select {", ".join(fields)}
            from (
                select *, {ranked} as nth from raw_history
                where cleared is null or cleared > {snapshot_id}
            )
            where nth = 1 and kind in {ADDS}
            """
        ).to_arrow_table()
        connection.unregister("raw_history")
        return counted_arrow(found)


def cast(value: Any, data_type: DataType) -> Any:
    """The value after its column took another type."""
    if value is None or not isinstance(data_type, Atomic):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if data_type.root is Root.VARCHAR:
            return str(value)
        if data_type.root is Root.DOUBLE:
            return float(value)
        if data_type.root is Root.DECIMAL:
            return Decimal(value)
    return value


def _values(row: Mapping[int, Any], schema: TableSchema) -> list[Any]:
    return [cast(row.get(f.id), f.type) for f in schema.fields]


def _ranked(value: Any) -> Any:
    """A value that sorts as Paimon sorts it: text by its UTF-8 bytes, NaN above all numbers."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return value
