"""`Model`: a table as a plain list of all rows ever written, and the rows that it must have.

The model has no files, buckets or levels. A row is kept by field id, with the values as written.
`Model.rows` merges the live rows of a snapshot one by one (`merging.py`). For tables that keep the
newest row, `Model.query` computes the same in DuckDB, with one window function over the whole
history. The rows of a table must equal both results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import polars as pl
import pyarrow as pa

from lakecore.catalog.new_table import SchemaLike, new_schema
from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.model.evolution import evolve
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import Atomic, DataType, Root, arrow_type
from lakecore.testing.aggregates import Refused
from lakecore.testing.merging import Rules, Version, flush, merge
from lakecore.testing.values import (
    Rows,
    as_arrow,
    counted_arrow,
    has_nanoseconds,
    plain,
    without_kinds,
)

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

Row: TypeAlias = "dict[int, Any]"
"""Values by field id."""
Where: TypeAlias = "pl.Expr | str | Callable[[dict[str, Any]], object]"
"""A condition: of Polars, in SQL, or a function of a row as a dictionary."""
Place: TypeAlias = "Callable[[tuple[Any, ...]], bool]"
"""Selects partitions, given as the values of the partition columns."""

ADDS = ("+I", "+U")


@dataclass(slots=True, kw_only=True)
class Event:
    """A committed row, with the snapshot that added it and the snapshot that cleared it."""

    arrival: int
    kind: str
    row: Row
    added: int
    cleared: int | None = None

    def lives_at(self, snapshot_id: int) -> bool:
        """Whether the row exists in the snapshot: already added, and not yet cleared."""
        return self.added <= snapshot_id and (self.cleared is None or self.cleared > snapshot_id)


class Model:
    """The rows that a table must have after each snapshot: a slow and plain reference.

    `schema`, `primary_keys`, `partition_keys` and `options` are those of `create_table`. The model
    merges by the four merge engines (`deduplicate`, `first-row`, `partial-update`, `aggregation`),
    by sequence fields, sequence groups and aggregate functions; without a primary key, it keeps all
    rows. Options that change no row are accepted.

    Each verb that changes the table makes a snapshot, numbered from 1, and returns its id; a write
    or a deletion without rows makes none, and returns None. A model does not compact: `compact`
    adds a snapshot of the same rows, so that its ids can follow those of a table.

        model = Model({"id": "INT NOT NULL", "n": "INT"}, primary_keys=["id"])
        model.write([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
        model.delete("id = 1")
        assert_same_rows(model, [{"id": 2, "n": 1}])
    """

    def __init__(
        self,
        schema: TableSchema | SchemaLike,
        primary_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        *,
        partition_keys: Sequence[str] = (),
    ) -> None:
        """A model without snapshots.

        Raises as `create_table` does, and Unsupported for TIMESTAMP(7) and finer.
        """
        self.schema: TableSchema = (
            new_schema(
                schema,
                primary_keys=primary_keys,
                partition_keys=partition_keys,
                options=options or {},
                comment=None,
                now_ms=0,
                table="model",
            )
            if isinstance(schema, pa.Schema | Mapping)
            else schema
        )
        if fine := [each.name for each in self.schema.arrow if has_nanoseconds(each.type)]:
            raise Unsupported("a model holds no times of nanoseconds", columns=fine)
        self.events: list[Event] = []
        self.schemas: dict[int, TableSchema] = {}
        """The schema with which each snapshot is read."""
        self._arrivals = 0

    def __repr__(self) -> str:
        return f"Model({', '.join(self.schema.names)}; {self.latest} snapshots)"

    @property
    def latest(self) -> int:
        """The id of the newest snapshot; 0 before the first."""
        return max(self.schemas, default=0)

    @property
    def key(self) -> tuple[int, ...]:
        """The field ids of the primary key."""
        return tuple(self.schema.field(name).id for name in self.schema.primary_keys)

    @property
    def partition(self) -> tuple[int, ...]:
        """The field ids of the partition columns."""
        return tuple(self.schema.field(name).id for name in self.schema.partition_keys)

    @property
    def row_kind(self) -> int | None:
        """The field id of the column that `rowkind.field` names."""
        name = self.schema.parsed_options().rowkind_field
        return None if name is None else self.schema.field(name).id

    # --- verbs ------------------------------------------------------------------------------------

    def write(self, rows: object) -> int | None:
        """Write rows: dictionaries, a frame or an Arrow table.

        The column `_row_kind` names their kinds; without it, they are +I.

            model.write([{"id": 1, "n": 2, "_row_kind": "+I"}, {"id": 2, "n": 2}])
        """
        taken = self.taken_in(self.by_id(rows))
        return self.commit(self.schema, taken) if taken else None

    def overwrite(
        self, rows: object, partition: Mapping[str, object] | None = None, *, dynamic: bool = True
    ) -> int | None:
        """Replace the named partition, or, as Paimon does by default, each partition of the rows.

        With `dynamic=False`, and without partition columns, all rows are replaced. None if no
        partition is replaced.

            model.overwrite([{"day": "mon", "id": 1}], partition={"day": "mon"})
        """
        taken = self.taken_in(self.by_id(rows))
        fixed = {
            self.schema.field(name).id: plain(each) for name, each in (partition or {}).items()
        }
        at = {field_id: place for place, field_id in enumerate(self.partition)}
        if unknown := fixed.keys() - at.keys():
            names = [self.schema.by_id[each].name for each in unknown]
            raise InvalidRequest("no partition column", columns=names)
        if not (dynamic and at and partition is None):
            return self.commit(
                self.schema,
                taken,
                lambda place: all(plain(place[at[each]]) == fixed[each] for each in fixed),
            )
        written = {plain(self.partition_of(row)) for _, row in taken}
        if not taken:
            return None
        return self.commit(self.schema, taken, lambda place: plain(place) in written)

    def delete(self, where: Where) -> int | None:
        """Delete the rows that match: a Polars expression, SQL, or a function of a row.

        Raises Refused if the merge engine cannot delete rows.

            model.delete("id = 1 or n is null")
        """
        rules = Rules.of(self.schema)
        keeps = rules.engine != "deduplicate" and not rules.remove_on_delete
        if self.schema.primary_keys and (keeps or self.row_kind is not None or rules.ignored):
            raise Refused("this table deletes no rows, or takes their kinds from a column")
        found = self.rows()
        if callable(where):
            gone = [row for row in found.to_pylist() if where(row)]
        elif isinstance(where, pl.Expr):
            gone = pl.DataFrame(found).filter(where).to_arrow().cast(found.schema).to_pylist()
        else:
            with duckdb.connect() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                gone = connection.from_arrow(found).filter(where).to_arrow_table().to_pylist()
        if not gone:
            return None
        if self.schema.primary_keys:
            return self.commit(self.schema, [("-D", row) for _, row in self.by_id(gone)])
        keys = [plain(row) for row in gone]
        return self.commit(
            self.schema, clears_row=lambda row: plain(self._read(row, self.schema)) in keys
        )

    def compact(self) -> int:
        """Add a snapshot with the same rows, like a compaction."""
        return self.commit(self.schema)

    def rollback_to(self, snapshot_id: int) -> None:
        """Forget all later snapshots (0: all); the next one gets the number after `snapshot_id`.

        The schema stays the newest one.

            model.rollback_to(1)
        """
        if snapshot_id:
            self._require(snapshot_id)
        self.events = [event for event in self.events if event.added <= snapshot_id]
        for event in self.events:
            if event.cleared is not None and event.cleared > snapshot_id:
                event.cleared = None
        self.schemas = {key: each for key, each in self.schemas.items() if key <= snapshot_id}

    def alter(self, change: Change) -> None:
        """Change the schema; older snapshots keep theirs.

        Raises as `alter_table` does.

            model.alter(lakecore.SchemaChange.add_column("note", "STRING"))
        """
        self.schema = evolve(self.schema, [change], now_ms=0, has_snapshots=self.latest > 0)

    # --- what it holds ----------------------------------------------------------------------------

    def rows(
        self, snapshot_id: int | None = None, *, schema: TableSchema | None = None
    ) -> pa.Table:
        """The rows at a snapshot in the columns of its schema; both default to the newest.

        Snapshot 0 has no rows. Rows with a primary key are in key order, other rows in the order of
        their writes. Raises Refused if the rows of a key cannot be merged, NotFound if there is no
        such snapshot.

            model.rows(1).to_pylist()
        """
        if snapshot_id:
            self._require(snapshot_id)
        if schema is None:
            schema = self.schemas[snapshot_id] if snapshot_id else self.schema
        snapshot_id = self.latest if snapshot_id is None else snapshot_id
        rules = Rules.of(schema)
        alive = [event for event in self.events if event.lives_at(snapshot_id)]
        if not schema.primary_keys:
            return _table([self._read(event.row, schema) for event in alive], schema)
        commits: dict[int, list[Version]] = {}
        for event in alive:
            version = Version(
                values=self._read(event.row, schema), kind=event.kind, number=event.arrival
            )
            commits.setdefault(event.added, []).append(version)
        runs = [version for rows in commits.values() for version in flush(rows, rules)]
        return _table([version.values for version in merge(runs, rules)], schema)

    def changes(self, start: int, end: int) -> pa.Table:
        """The difference of two snapshots, in the columns of `end`, with `_row_kind` before them.

        With a primary key: -D, or -U and +U together, or +I for each key that differs, in the order
        of keys. Without one: -D and +I for the rows that differ. The rows of `start` with the
        difference applied are the rows of `end`.

            model.changes(0, model.latest)
        """
        schema = self.schemas.get(end, self.schema)
        before, after = (self.rows(each, schema=schema).to_pylist() for each in (start, end))
        names = schema.primary_keys or schema.names
        kinds: list[str] = []
        changed: list[dict[str, Any]] = []
        if not schema.primary_keys:
            for kind, rows, others in (("-D", before, after), ("+I", after, before)):
                left = [plain(row) for row in others]
                for row in rows:
                    if plain(row) in left:
                        left.remove(plain(row))
                    else:
                        kinds.append(kind)
                        changed.append(row)
            return _table(changed, schema).add_column(0, ROW_KIND, pa.array(kinds, pa.string()))
        old = {tuple(plain(row[name]) for name in names): row for row in before}
        new = {tuple(plain(row[name]) for name in names): row for row in after}
        for key in [*old, *(key for key in new if key not in old)]:
            if plain(old.get(key)) == plain(new.get(key)):
                continue
            pair = key in old and key in new
            for kind, row in (("-U" if pair else "-D", old), ("+U" if pair else "+I", new)):
                if key in row:
                    kinds.append(kind)
                    changed.append(row[key])
        return _table(changed, schema).add_column(0, ROW_KIND, pa.array(kinds, pa.string()))

    def query(self, snapshot_id: int, schema: TableSchema) -> Rows:
        """The rows at a snapshot, by one window query over the raw history, as a second reference.

        Works for tables that keep the newest row of a key, or all rows.
        """
        events = [event for event in self.events if event.added <= snapshot_id]
        rules = Rules.of(schema)
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
            [repr([plain(event.row[i]) for i in self.key]) for event in events], pa.string()
        )
        direction = "asc" if rules.descending else "desc"
        order = [f"c{schema.field(name).id} {direction} nulls last" for name in rules.sequence]
        ranked = (
            "row_number() over (partition by place order by "
            + ", ".join([*order, "arrival desc"])
            + ")"
            if self.key
            else "1"
        )
        with duckdb.connect() as connection:
            connection.register("raw_history", pa.table(raw))
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
            return counted_arrow(found)

    # --- rows by field id -------------------------------------------------------------------------

    def commit(
        self,
        schema: TableSchema,
        rows: Iterable[tuple[str, Row]] = (),
        clears: Place | None = None,
        *,
        clears_row: Callable[[Row], bool] | None = None,
    ) -> int:
        """Add a snapshot: clear partitions, then rows, then add rows. Returns the id.

        Raises Refused, and adds no snapshot, if the rows of a key cannot be merged with each other.
        """
        rows, snapshot_id = self.taken_in(rows), self.latest + 1
        flush(
            (
                Version(values=self._read(row, schema), kind=kind, number=number)
                for number, (kind, row) in enumerate(rows if schema.primary_keys else ())
            ),
            Rules.of(schema),
        )
        for event in self.events:
            if event.cleared is None and (
                (clears and clears(self.partition_of(event.row)))
                or (clears_row and clears_row(event.row))
            ):
                event.cleared = snapshot_id
        for kind, row in rows:
            self._arrivals += 1
            self.events.append(Event(arrival=self._arrivals, kind=kind, row=row, added=snapshot_id))
        self.schemas[snapshot_id] = schema
        return snapshot_id

    def arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows as dictionaries as an Arrow table, with `_row_kind` if the table takes it."""
        schema = self.schema.arrow
        if self.schema.primary_keys and self.row_kind is None:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        return pa.Table.from_pylist([{ROW_KIND: "+I", **row} for row in rows], schema)

    def by_id(self, rows: object) -> list[tuple[str, Row]]:
        """Rows by the names of the newest schema as rows by field id, with their kinds."""
        if isinstance(rows, list):
            if unknown := {name for row in rows for name in row} - {*self.schema.names, ROW_KIND}:
                raise InvalidRequest("no such column", columns=sorted(unknown))
            if not self.key and {row.get(ROW_KIND, "+I") for row in rows} - {"+I"}:
                raise InvalidRequest("a table without a primary key takes no row kinds")
            rows = self.arrow(rows)
        table, kinds = without_kinds(as_arrow(rows))
        values = table.select(self.schema.names).cast(self.schema.arrow).to_pylist()
        ids = {field.name: field.id for field in self.schema.fields}
        found = [{ids[name]: value for name, value in row.items()} for row in values]
        return [*zip(kinds, found, strict=True)]

    def taken_in(self, rows: Iterable[tuple[str, Row]]) -> list[tuple[str, Row]]:
        """The rows that the table does not ignore, with their effective kinds."""
        field_id, ignored = self.row_kind, Rules.of(self.schema).ignored
        kinded = [(kind if field_id is None else row[field_id], row) for kind, row in rows]
        return [(kind, row) for kind, row in kinded if kind not in ignored]

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        """The partition of a row."""
        return tuple(row[field_id] for field_id in self.partition)

    def _read(self, row: Row, schema: TableSchema) -> dict[str, Any]:
        return {f.name: cast(row.get(f.id), f.type) for f in schema.fields}

    def _require(self, snapshot_id: int) -> None:
        if snapshot_id not in self.schemas:
            raise NotFound(
                "the model has no such snapshot", snapshot=snapshot_id, latest=self.latest
            )


def cast(value: Any, data_type: DataType) -> Any:
    """The value, cast to the new type of its column."""
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


def _table(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema.arrow)
