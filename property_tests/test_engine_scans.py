"""Engines' own scans of files with deletion vectors return the rows that a model keeps.

Whatever the rows of a file, its row groups, the marked rows, columns, condition and limit, each way
to read returns the rows that no vector marks, and no condition is evaluated on a marked row.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.io.files.file_format import WriteFormat
from lakecore.io.stores.local import LocalStore
from lakecore.table.run_writer import file_shape
from tests.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "n": "TINYINT", "x": "DOUBLE", "v": "STRING"}
NAN = float("nan")
CELLS = st.tuples(
    st.sampled_from([-128, -1, 0, 1, 100, 127, None]),
    st.sampled_from([0.0, -0.0, 1.5, NAN, None]),
)
FILES = st.lists(
    st.lists(st.tuples(CELLS, st.integers(0, 2).map(bool)), min_size=1, max_size=12),
    min_size=1,
    max_size=4,
)
"""The rows of each file, each with whether it stays."""
CONDITIONS: dict[str, tuple[pl.Expr, str]] = {
    "key": (pl.col("id") < 9, "id < 9"),
    "keys": (pl.col("id").is_in([1, 5, 17]), "id IN (1, 5, 17)"),
    "sum": (pl.col("n").cast(pl.Int32) + 100 > 0, "CAST(n AS INT) + 100 > 0"),
    "float": (pl.col("x") >= 1.5, "x >= 1.5"),
    "null": (pl.col("n").is_null(), "n IS NULL"),
    "text": (pl.col("v").str.to_integer() > 3, "CAST(v AS INT) > 3"),
    "both": (
        (pl.col("id") > 2) & (pl.col("v").str.to_integer() < 20),
        "id > 2 AND CAST(v AS INT) < 20",
    ),
}
NAMES = st.lists(st.sampled_from([*COLUMNS]), min_size=1, unique=True)


def made(folder: Path, files: Any, *, keyed: bool) -> tuple[Table, pl.DataFrame]:
    """A table whose vectors mark rows, and the remaining rows. Texts of marked rows are not
    numbers.

    The rows of a keyed table are marked by a compaction.
    """
    table = new_table(
        COLUMNS,
        keys=["id"] if keyed else [],
        store=LocalStore(),
        path=str(folder / f"t{len([*folder.iterdir()])}"),
        deletion_vectors__enabled="true",
        bucket="1" if keyed else "-1",
    )
    number = 0
    stay: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for rows in files:
        here = []
        for (n, x), stays in rows:
            row = {"id": number, "n": n, "x": x, "v": str(number) if stays else "none"}
            (stay if stays else gone).append(row)
            here.append(row)
            number += 1
        table.write(_frame(here))
    if keyed and gone:
        stay += [{**row, "v": "-1"} for row in gone]
        table.write(_frame(stay[-len(gone) :]))
    elif gone:
        table.delete(pl.col("v") == "none")
    return table, _frame(stay)


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    kinds = {"id": pl.Int32, "n": pl.Int8, "x": pl.Float64, "v": pl.String}
    return pl.DataFrame(rows, schema=kinds)


def _shown(rows: pl.DataFrame) -> Counter[str]:
    """The rows without their order. NaN equals itself, and -0.0 is not 0.0."""
    return Counter(repr(row) for row in rows.rows())


@given(data=st.data())
@settings(max_examples=settings().max_examples // 2)
def test_engines_return_the_rows_that_no_vector_marks(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("engines")
    keyed = data.draw(st.booleans(), "keyed")
    small = partial(WriteFormat, row_group_rows=data.draw(st.integers(1, 5), "row group"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_shape, "WriteFormat", small)
        table, stay = made(folder, data.draw(FILES, "files"), keyed=keyed)
    names = data.draw(NAMES, "columns")
    shown, text = CONDITIONS[data.draw(st.sampled_from([*CONDITIONS]), "condition")]
    limit = data.draw(st.integers(0, stay.height + 1), "limit")

    assert not stay.height or {part.path for part in table.explain().parts} == {"engine scan"}
    _check_all(table, stay.select(names), names)
    _check_matching(table, stay.filter(shown).select(names), names, (shown, text))
    head = table.scan(names).head(limit).collect()
    assert head.height == min(limit, stay.height)
    assert not _shown(head) - _shown(stay.select(names))
    matching = table.scan().head(limit).filter(shown).collect()
    assert not _shown(matching) - _shown(stay.filter(shown))
    some = table.to_duckdb(duckdb.connect()).limit(limit).pl()
    assert some.height == min(limit, stay.height)


def _check_all(table: Table, rows: pl.DataFrame, names: list[str]) -> None:
    """Each way to read returns these rows and counts them."""
    relation = table.to_duckdb(duckdb.connect())
    assert _shown(table.to_polars(names)) == _shown(rows)
    assert _shown(table.scan(names).collect(engine="streaming")) == _shown(rows)
    assert _shown(pl.DataFrame(table.to_arrow(names))) == _shown(rows)
    assert _shown(pl.DataFrame(table.to_arrow_dataset().to_table(names))) == _shown(rows)
    assert _shown(relation.select(*names).pl()) == _shown(rows)
    counts = [table.scan().select(pl.len()).collect().item(), table.count()]
    counts += [table.to_arrow_dataset().count_rows(), *relation.aggregate("count(*)").fetchall()[0]]
    assert counts == [rows.height] * 4


def _check_matching(
    table: Table, rows: pl.DataFrame, names: list[str], condition: tuple[pl.Expr, str]
) -> None:
    """Each way to read with a condition returns these rows."""
    shown, text = condition
    relation = table.to_duckdb(duckdb.connect())
    assert _shown(table.scan().filter(shown).select(names).collect()) == _shown(rows)
    assert _shown(table.scan(names, shown).collect()) == _shown(rows)
    assert _shown(table.to_polars(names, text)) == _shown(rows)
    assert _shown(pl.DataFrame(table.to_arrow(names, shown))) == _shown(rows)
    assert _shown(relation.filter(text).select(*names).pl()) == _shown(rows)
    low = table.to_arrow_dataset().to_table(names, filter=pc.field("id") < 9)
    assert low.num_rows == table.count("id < 9")
