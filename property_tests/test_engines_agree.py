"""Every way to read returns the same rows, whatever the mix of files.

A table holds files with and without deletion vectors, files of several schemas, and files that must
be merged. Its rows are those of a dict, by Polars, Arrow, DuckDB's relation, a dataset that DuckDB
scans, and SQL. DuckDB gets the bits of a file as a constant, or in blocks.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakecore as lc
from lakecore.frames import duckdb_face
from lakecore.io.files.file_format import WriteFormat
from lakecore.table.run_writer import file_shape
from lakecore.table.splits import survivors

if TYPE_CHECKING:
    from lakecore.table.handle import Table

KEYS = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.sampled_from(["add column", "compact"]), st.just([0])),
    ),
    min_size=1,
    max_size=6,
)
MADE = st.sampled_from(["vectors", "merge on read", "append"])


@given(made=MADE, steps=STEPS, row_group=st.integers(1, 5), in_blocks=st.booleans())
@settings(max_examples=max(1, settings().max_examples // 4))
def test_every_way_to_read_returns_the_same_rows(
    made: str,
    steps: list[tuple[str, list[int]]],
    row_group: int,
    *,
    in_blocks: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    survivors.forget()
    session = lc.connect(tmp_path_factory.mktemp("agree"), create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=[] if made == "append" else ["id"],
        options={
            "bucket": "-1" if made == "append" else "1",
            "deletion-vectors.enabled": "true",
            "deletion-vectors.merge-on-read": str(made == "merge on read").lower(),
            "write-only": str(made == "merge on read").lower(),
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_shape, "WriteFormat", partial(WriteFormat, row_group_rows=row_group))
        patch.setattr(duckdb_face, "_BLOCK_ROWS", 8)
        patch.setattr(duckdb_face, "_CONSTANT_ROWS_MAX", 3 if in_blocks else 1 << 22)
        rows: list[dict[str, Any]] = []
        columns = ["id", "v"]
        for number, (step, ids) in enumerate(steps):
            if step == "add column" and "w" not in columns:
                session.sql("ALTER TABLE d.t ADD COLUMN w INT")
                table = session.get_table("d.t")
                columns.append("w")
            rows = _after(table, rows, columns, (step, ids, number), keyed=made != "append")
        expected = Counter(tuple(row.get(name) for name in columns) for row in rows)
        _check(session, table, expected)


def _after(
    table: Table,
    rows: list[dict[str, Any]],
    columns: list[str],
    step: tuple[str, list[int], int],
    *,
    keyed: bool,
) -> list[dict[str, Any]]:
    """Take a step; returns the rows of the table after it."""
    kind, ids, number = step
    match kind:
        case "write":
            new = [{"id": each, "v": f"{number}"} for each in ids]
            if "w" in columns:
                new = [{**row, "w": number} for row in new]
            table.write(new)
            return [*(row for row in rows if not keyed or row["id"] not in ids), *new]
        case "delete":
            table.delete(pl.col("id").is_in(ids))
            return [row for row in rows if row["id"] not in ids]
        case "compact":
            table.compact(full=True)
    return rows


def _check(session: lc.Session, table: Table, expected: Counter[tuple[Any, ...]]) -> None:
    connection = duckdb.connect()
    connection.register("held", table.to_arrow_dataset())
    relation = table.to_duckdb(connection)
    assert Counter(table.to_polars().rows()) == expected
    assert Counter(pl.DataFrame(table.to_arrow()).rows()) == expected
    assert Counter(pl.DataFrame(table.to_arrow_dataset().to_table()).rows()) == expected
    assert Counter(relation.fetchall()) == expected
    assert Counter(connection.sql("FROM held").fetchall()) == expected
    assert Counter(session.sql("FROM d.t").fetchall()) == expected
    # The second statement knows the bits of files that overlap, as does a later relation.
    assert Counter(table.to_duckdb(connection).fetchall()) == expected
    some = Counter({row: count for row, count in expected.items() if row[0] > 9})
    assert Counter(relation.filter("id > 9").fetchall()) == some
    assert Counter(connection.sql("FROM held WHERE id > 9").fetchall()) == some
    assert Counter(session.sql("FROM d.t WHERE id > 9").fetchall()) == some
    assert session.sql("EXPLAIN FROM d.t").fetchall()
    assert len(relation.limit(3).fetchall()) == min(3, expected.total())
    view = "of_the_caller"
    relation.create_view(view)
    assert Counter(connection.sql(f'FROM "{view}"').fetchall()) == expected
