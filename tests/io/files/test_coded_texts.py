"""Columns of texts that are written and read as codes into a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.io.files.data_files import (
    WriteFormat,
    open_writer,
    read_positions,
    small_dictionaries,
)
from lakecore.io.stores.local import LocalStore
from lakecore.model.arrow_arrays import CODED
from lakecore.model.types import Field, arrow_schema, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIELDS = (
    Field(id=0, name="k", type=parse_type("BIGINT NOT NULL")),
    Field(id=1, name="city", type=parse_type("STRING")),
)
ROWS = 10_000
CITIES = ["", "Köln", "a" * 40, "\U0001f600", "Zürich", "oslo"]
STORE = LocalStore()


def rows(texts: Sequence[str | None], seed: int = 1) -> pa.Table:
    picked = pa.array(np.random.default_rng(seed).integers(0, len(texts), ROWS))
    columns = [pa.array(np.arange(ROWS)), pa.array(texts, pa.string()).take(picked)]
    return pa.Table.from_arrays(columns, schema=arrow_schema(FIELDS))


def as_codes(table: pa.Table) -> pa.Table:
    """The same rows, with codes, in chunks of different dictionaries."""
    column = table.column("city").combine_chunks()
    third = len(column) // 3
    chunks = [
        pa.DictionaryArray.from_arrays(pa.compute.index_in(part, texts).cast(pa.int32()), texts)
        for number, part in enumerate([column[:third], column[third:]])
        for texts in [
            pa.concat_arrays(
                [pa.array([f"of nobody {number}"]), part.drop_null().unique()[:: 1 - 2 * number]]
            )
        ]
    ]
    return table.set_column(1, "city", pa.chunked_array(chunks, CODED))


def write(
    path: Path, tables: Sequence[pa.Table], group_rows: int = 4_000
) -> dict[str, tuple[str, str]]:
    told = WriteFormat(row_group_rows=group_rows, text_bounds=(("city", None),))
    writer = open_writer(STORE, str(path), FIELDS, told)
    for table in tables:
        writer.write(table)
    writer.close()
    return dict(writer.text_bounds)


def read(path: Path, batch_bytes: int = 1 << 20, batch_rows: int = 1 << 17) -> pa.Table:
    found = read_positions(
        STORE,
        str(path),
        fields=FIELDS,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        coded=frozenset({"city"}),
    )
    return pa.Table.from_batches([batch for _, batch in found])


def statistics(path: Path) -> list[tuple[object, object, int]]:
    footer = pq.read_metadata(path)
    found = [footer.row_group(at).column(1).statistics for at in range(footer.num_row_groups)]
    return [
        (*((each.min, each.max) if each.has_min_max else (None, None)), each.null_count)
        for each in found
    ]


@pytest.mark.parametrize(
    "texts",
    [
        CITIES,
        [*CITIES, None],
        [None],
        ["one"],
        [f"city {n}" for n in range(4_000)],
        ["a", "b" * 4_096],
        ["a", "b" * 4_097],
    ],
)
def test_codes_are_written_as_their_texts_are(tmp_path: Path, texts: list[str | None]) -> None:
    table = rows(texts)
    plain, coded = tmp_path / "plain.parquet", tmp_path / "coded.parquet"
    expected = write(plain, [table])

    assert write(coded, [as_codes(table)]) == expected
    assert pq.read_table(coded).equals(pq.read_table(plain))
    assert pl.read_parquet(coded).equals(pl.read_parquet(plain))
    assert statistics(coded) == statistics(plain)
    assert pq.read_metadata(coded).num_row_groups == 3


def test_dictionary_that_parquet_does_not_keep_is_written_as_texts(tmp_path: Path) -> None:
    table = rows([f"{n:0400}" for n in range(ROWS)])
    path = tmp_path / "a.parquet"
    write(path, [as_codes(table)], group_rows=ROWS)

    assert pq.read_table(path).equals(table)
    assert statistics(path) == [(min(t := table["city"].to_pylist()), max(t), 0)]


@pytest.mark.parametrize("coded_first", [True, False])
def test_codes_and_texts_make_one_file(tmp_path: Path, *, coded_first: bool) -> None:
    one, other = rows(CITIES), rows([*CITIES, None], seed=2)
    tables = [as_codes(one), other] if coded_first else [one, as_codes(other)]
    path = tmp_path / "a.parquet"
    write(path, tables, group_rows=6_000)

    assert pq.read_table(path).equals(pa.concat_tables([one, other]))
    assert [nulls > 0 for _, _, nulls in statistics(path)] == [False, True, True, True]


def test_row_group_ends_at_the_bytes_of_its_texts(tmp_path: Path) -> None:
    """Of which one that most rows have may be longer than all others."""
    codes = pa.array(np.where(np.arange(ROWS) % 20 == 0, np.arange(ROWS) % 1_000, 1_000))
    texts = pa.array([*(f"{n}" for n in range(1_000)), "a" * 3_000])
    table = rows(["a"]).set_column(1, "city", texts.take(codes))
    plain, coded = tmp_path / "plain.parquet", tmp_path / "coded.parquet"
    write(plain, [table])
    write(coded, [table.set_column(1, "city", table["city"].dictionary_encode())])
    groups = [pq.read_metadata(path).num_row_groups for path in (plain, coded)]

    assert groups[0] == groups[1] > 3
    assert pq.read_table(coded).equals(pq.read_table(plain))


def test_null_in_a_dictionary_is_a_null(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.int32()), pa.array(["a", None], pa.string())
    )
    path = tmp_path / "a.parquet"
    bounds = write(path, [pa.table({"k": [0, 1, 2], "city": texts})])

    assert pq.read_table(path)["city"].to_pylist() == ["a", None, None]
    assert statistics(path) == [("a", "a", 2)]
    assert bounds == {"city": ("a", "a")}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("batch_bytes", [1 << 20, 30_000])
def test_texts_come_as_codes(tmp_path: Path, file_format: str, batch_bytes: int) -> None:
    """Also where row groups do not fit into a batch, and of formats that have no codes."""
    table = rows([*CITIES, None])
    path = tmp_path / f"a.{file_format}"
    writer = open_writer(STORE, str(path), FIELDS, WriteFormat(format=file_format))
    writer.write(table)
    writer.close()
    found = read(path, batch_bytes)

    assert found.schema.field("city").type == CODED
    assert found.set_column(1, "city", found["city"].cast(pa.string())).equals(table)


def test_row_groups_of_other_dictionaries_come_in_one_batch(tmp_path: Path) -> None:
    table = pa.concat_tables([rows(["a", "b"]), rows(["b", "c"]), rows([f"{n}" for n in range(9)])])
    path = tmp_path / "a.parquet"
    write(path, [table], group_rows=ROWS)
    found = read(path)

    assert found["city"].num_chunks == 1
    assert found["city"].cast(pa.string()).to_pylist() == table["city"].to_pylist()


def test_texts_that_are_streamed_are_measured_first(tmp_path: Path) -> None:
    table = rows(["a" * 1_000, "b" * 1_000])
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=ROWS)
    greatest = 0
    for _, batch in read_positions(
        STORE, str(path), fields=FIELDS, batch_bytes=50_000, coded=frozenset({"city"})
    ):
        greatest = max(greatest, batch.num_rows)

    assert greatest * 1_000 <= 50_000


def test_code_without_a_text_is_corrupt(tmp_path: Path) -> None:
    codes = pa.array([0, 3, 1], pa.int32())  # Two bits hold 3, too.
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b", "c"]), safe=False)
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"k": [0, 1, 2], "city": texts}), path, write_statistics=False, store_schema=False
    )
    with pytest.raises(CorruptTable, match=r"dictionary|a\.parquet"):
        read(path)


def test_few_texts_are_told_by_the_footer(tmp_path: Path) -> None:
    few, many, mixed = (tmp_path / f"{name}.parquet" for name in ("few", "many", "mixed"))
    scattered = rows([f"{n * 7919 % 99991}" for n in range(20_000)])
    write(few, [rows(CITIES)])
    pq.write_table(scattered, many)
    pq.write_table(pa.concat_tables([rows(CITIES), scattered]), mixed, row_group_size=ROWS)
    plain, large, other = (tmp_path / f"{name}.parquet" for name in ("plain", "large", "other"))
    pq.write_table(rows(CITIES), plain, use_dictionary=False)
    pq.write_table(rows([f"{n}" * 20_000 for n in range(6)]), large)
    # Who wrote it is not known to give each text once.
    pl.DataFrame(rows(CITIES)).cast({"city": pl.Categorical}).write_parquet(other)
    assert pq.read_metadata(other).row_group(0).column(1).has_dictionary_page
    names = ("k", "city", "absent")

    assert small_dictionaries(STORE, str(few), names) == ("city",)
    for path in (many, mixed, plain, large, other):
        assert small_dictionaries(STORE, str(path), names) == ()
    assert small_dictionaries(STORE, str(tmp_path / "a.orc"), names) == ()
