"""A filtered source gives the rows for which DuckDB's WHERE is true, of every type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pytest

from lakecore.frames import arrow_dataset, duckdb_face, polars_source
from lakecore.frames import filtered as arrow_stream
from lakecore.frames.filtered import FilteredSource
from lakecore.frames.source import engine_files
from lakecore.scalar.values import matches, parse_where
from tests.frames.made_rows import MadeRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.plan.predicate import Predicate
    from lakecore.scalar.values import Sql


@dataclass(frozen=True)
class Where:
    """A condition as a filtered source takes one."""

    sql: Sql
    predicate: Predicate

    @property
    def columns(self) -> tuple[str, ...]:
        return self.sql.columns

    def mask(self, rows: pa.Table) -> pa.Array:
        return matches(self.sql, rows)


def where(text: str, schema: pa.Schema) -> Where:
    return Where(*parse_where(text, schema))


def filtered(rows: MadeRows, text: str) -> FilteredSource:
    return FilteredSource(rows, where(text, rows.schema))


def test_only_needed_columns_are_read_and_only_wanted_ones_given() -> None:
    rows = MadeRows(1000, batch_rows=100)
    table = arrow_stream.reader(filtered(rows, "half * 2 >= 990"), ["text"]).read_all()

    assert (table.num_rows, table.column_names) == (10, ["text"])
    assert rows.last.columns == ["text", "half"]


def test_reading_stops_at_the_limit_and_is_closed() -> None:
    rows = MadeRows(1_000_000, batch_rows=1000)
    table = arrow_stream.reader(filtered(rows, "id % 10 = 0"), ["id"], limit=150).read_all()

    assert table["id"].to_pylist() == list(range(0, 1500, 10))
    assert (rows.last.rows, rows.last.closed) == (2000, True)


def test_what_is_understood_of_the_condition_prunes_with_what_the_face_adds() -> None:
    rows = MadeRows(1000)
    source = filtered(rows, "id > 10 AND id % 2 = 0")
    frame = polars_source.scan(source)

    assert frame.select("id").head(3).collect()["id"].to_list() == [12, 14, 16]
    assert engine_files(source, ["id"]) is None
    assert "id" in str(rows.last.predicate)


def test_faces_filter_on_top_of_the_condition() -> None:
    rows = MadeRows(1000)
    source = filtered(rows, "id % 2 = 0")
    relation = duckdb_face.relation(source, duckdb.connect())
    dataset = arrow_dataset.SourceDataset(source)

    assert relation.filter("id > 990").select("id").fetchall() == [(992,), (994,), (996,), (998,)]
    assert dataset.count_rows() == 500
    assert dataset.to_table(["id"]).num_rows == 500


@pytest.mark.parametrize("text", ["id + 0 > 5000", "NULL", "id > NULL"])
def test_no_row_is_no_batch(text: str) -> None:
    assert list(filtered(MadeRows(100), text).batches()) == []


@pytest.mark.parametrize(
    "text",
    [
        "i8 + 1 > 127",
        "abs(f64) >= 0",
        "isnan(f32) OR isinf(f32)",
        "dec38::DOUBLE * 2 > 1",
        "upper(s) <> 's'",
        "octet_length(b) > 0",
        "d + 1 > DATE '2000-01-01'",
        "ti > TIME '12:00' OR ti + INTERVAL 1 HOUR > TIME '00:30'",
        "ms + INTERVAL 1 DAY > TIMESTAMP '2000-01-01'",
        "ns::VARCHAR LIKE '2026%'",
        "extract(hour FROM tz) >= 0",
        "len(list) > 0",
        "map['a'] = 1",
        "row.x = 1 OR row.y IS NULL",
        "row IS NOT NULL AND list IS NOT NULL",
        "q::INTEGER = 1",
    ],
)
def test_columns_of_every_type_mean_what_they_mean_to_duckdb(
    all_types: pa.Table, text: str
) -> None:
    sql, _ = parse_where(text, all_types.schema)
    with duckdb.connect() as connection:
        shown = duckdb_face.dataset(
            FilteredSource(_Rows(all_types), where("true", all_types.schema))
        )
        connection.register("shown", shown)
        connection.execute("CREATE TABLE plain AS FROM shown")
        wanted = connection.execute(f"SELECT id FROM plain WHERE {text} ORDER BY id").fetchall()

    kept = all_types.filter(matches(sql, all_types))
    assert [(each,) for each in kept["id"].to_pylist()] == wanted


@dataclass(frozen=True)
class _Rows:
    """A table as a source."""

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,  # noqa: ARG002
        limit: int | None = None,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        yield from self.rows.select(names).to_batches()
