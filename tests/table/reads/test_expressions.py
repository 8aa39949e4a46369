"""A condition as a Polars expression has one answer through every face: Polars's own."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAN, INF = float("nan"), float("inf")
KINDS = pl.Enum(["a", "b", "z"])
NEVER = pl.lit(value=False)
COLUMNS = {
    "id": "INT NOT NULL",
    "i": "INT",
    "l": "BIGINT",
    "f": "DOUBLE",
    "s": "STRING",
    "st": "ROW<x INT, y STRING>",
    "d": "DATE",
    "b": "BOOLEAN",
    "dec": "DECIMAL(6, 2)",
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "i": 1, "l": 10, "f": 1.5, "s": "a", "b": True, "dec": Decimal("1.50")},
    {"id": 2, "i": 2, "l": -1, "f": NAN, "s": "b", "b": False, "dec": Decimal("2.50")},
    {"id": 3},
]
ROWS[0] |= {"st": {"x": 1, "y": "p"}, "d": dt.date(2026, 1, 1)}
ROWS[1] |= {"st": {"x": None, "y": "q"}, "d": dt.date(2026, 1, 2)}


def _u64(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.UInt64)


def _struct(x: int | None, y: str) -> pl.Expr:
    return pl.struct(pl.lit(x, dtype=pl.Int32).alias("x"), pl.lit(y).alias("y"))


CONDITIONS: dict[str, tuple[pl.Expr, list[int]]] = {
    "enum": (pl.col("s") == pl.lit("a", dtype=KINDS), [1]),
    "enum, not equal": (pl.col("s") != pl.lit("a", dtype=KINDS), [2]),
    "enum, missing": (pl.col("s").eq_missing(pl.lit("a", dtype=KINDS)), [1]),
    "enum, in": (pl.col("s").is_in(pl.Series(["a", "z"], dtype=KINDS).implode()), [1]),
    "column as enum": (pl.col("s").cast(KINDS) > "a", [2]),
    "categorical": (pl.col("s") == pl.lit("b", dtype=pl.Categorical), [2]),
    "categorical, in": (
        pl.col("s").is_in(pl.Series(["a", "z"], dtype=pl.Categorical).implode()),
        [1],
    ),
    "column as categorical": (pl.col("s").cast(pl.Categorical) == "a", [1]),
    "field": (pl.col("st").struct.field("x") == 1, [1]),
    "field, null": (pl.col("st").struct.field("x").is_null(), [2, 3]),
    "struct": (pl.col("st") == _struct(1, "p"), [1]),
    "struct with null": (pl.col("st") == _struct(None, "q"), [2]),
    "struct, not null": (pl.col("st").is_not_null(), [1, 2]),
    "unsigned": (pl.col("l") == _u64(10), [1]),
    "unsigned above int64": (pl.col("l") < _u64(2**63), [1, 2]),
    "unsigned, decimal": (pl.col("dec") < _u64(2), [1]),
    "unsigned, in": (
        pl.col("l").is_in(pl.Series([10, 2**63], dtype=pl.UInt64).implode()),
        [1],
    ),
    "column as unsigned": (pl.col("l").cast(pl.UInt64, strict=False) == 10, [1]),
    "int128": (pl.col("l") == pl.lit(10, dtype=pl.Int128), [1]),
    "between": (pl.col("l").is_between(-1, 10), [1, 2]),
    "between, open": (pl.col("l").is_between(-1, 10, closed="none"), []),
    "between unsigned": (pl.col("l").is_between(_u64(0), _u64(20)), [1]),
    "between columns": (pl.col("l").is_between(pl.col("i"), pl.col("i") + 20), [1]),
    "between infinities": (pl.col("f").is_between(-INF, INF), [1]),
    "between days": (pl.col("d").is_between(dt.date(2026, 1, 2), dt.date(2026, 1, 3)), [2]),
    "between decimals": (pl.col("dec").is_between(Decimal(1), Decimal(2)), [1]),
    "not between": (~pl.col("s").is_between(pl.lit("a"), pl.lit("a")), [2]),
    "fill_null": (pl.col("i").fill_null(0) == 0, [3]),
    "fill_null of a boolean": (pl.col("b").fill_null(value=True), [1, 3]),
    "not fill_null": (~pl.col("b").fill_null(value=True), [2]),
    "fill_null by a column": (pl.col("i").fill_null(pl.col("id")) == 3, [3]),
    "fill_null by zero": (pl.col("i").fill_null(strategy="zero") == 0, [3]),
    "fill_null of a comparison": ((pl.col("i") > 1).fill_null(value=True), [2, 3]),
    "fill_nan": (pl.col("f").fill_nan(0.0) == 0, [2]),
}
REFUSED: dict[str, tuple[pl.Expr, str]] = {
    "between null": (pl.col("l").is_between(None, 20), r"with null.* is_null\(\)"),
    "struct of another type": (pl.col("st").is_in([{"x": 1, "y": "p"}]), "cannot be computed"),
}


def _table(path: Path, *, keyed: bool) -> lc.Table:
    catalog = lc.connect(str(path), create=True)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t",
        COLUMNS,
        primary_keys=["id"] if keyed else None,
        options={"bucket": "1"} if keyed else None,
    )
    table.write(ROWS)
    return table


def _duckdb(table: lc.Table, where: pl.Expr) -> list[int]:
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection, where=where)
        return [number for (number,) in relation.project("id").fetchall()]


def _updated(table: lc.Table, where: pl.Expr) -> list[int]:
    table.update({"s": pl.lit("new")}, where)
    return table.to_polars().filter(pl.col("s") == "new")["id"].to_list()


def _deleted(table: lc.Table, where: pl.Expr) -> list[int]:
    table.delete(where)
    return sorted({1, 2, 3} - {*table.to_polars()["id"]})


FACES: dict[str, Callable[[lc.Table, pl.Expr], list[int]]] = {
    "to_arrow": lambda table, where: table.to_arrow(where=where)["id"].to_pylist(),
    "to_polars": lambda table, where: table.to_polars(where=where)["id"].to_list(),
    "to_batches": lambda table, where: [
        number for batch in table.to_batches(where=where) for number in batch["id"].to_pylist()
    ],
    "scan": lambda table, where: table.scan(where=where).collect()["id"].to_list(),
    "to_duckdb": _duckdb,
    "changes": lambda table, where: table.changes(0, 1, where=where).collect()["id"].to_list(),
    "delete": _deleted,
}


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_every_face_has_the_answer_of_polars(tmp_path: Path, *, keyed: bool) -> None:
    reads = _table(tmp_path / "reads", keyed=keyed)
    for name, (where, ids) in CONDITIONS.items():
        assert reads.to_polars().filter(where)["id"].sort().to_list() == ids, name
        for face, answer in FACES.items():
            if face != "delete":
                assert sorted(answer(reads, where)) == ids, (name, face)
        assert reads.count(where=where) == len(ids), name


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_change_concerns_the_rows_that_a_read_has(tmp_path: Path, name: str) -> None:
    where, ids = CONDITIONS[name]
    table = _table(tmp_path, keyed=True)
    assert _updated(table, where) == ids
    table.write(ROWS)
    assert _deleted(table, where) == ids


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_judged_is_one_error_through_every_face(tmp_path: Path, name: str) -> None:
    where, message = REFUSED[name]
    table = _table(tmp_path, keyed=True)
    for face in (*FACES, "update"):
        with pytest.raises(lc.InvalidRequest, match=message):
            (_updated if face == "update" else FACES[face])(table, where)
    assert table.count() == 3
    assert table.inspect.snapshots().height == 1
