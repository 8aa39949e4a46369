"""Generated rows: their options, and that a row depends on its number only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import AlreadyExists, InvalidRequest, Unsupported
from lakecore.model.types import Field, parse_type
from lakecore.sql.datagen import Generator, generator_of

if TYPE_CHECKING:
    from pathlib import Path


def generator(columns: dict[str, str], **options: str) -> Generator:
    fields = [
        Field(id=place, name=name, type=parse_type(text))
        for place, (name, text) in enumerate(columns.items())
    ]
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return generator_of(
        "g", fields, given, seed=int(given.pop("seed", "1")), now_ms=1_700_000_000_000
    )


def test_batches_of_any_size_have_the_same_rows() -> None:
    made = generator({"a": "STRING", "b": "BIGINT", "c": "DOUBLE"}, fields__a__length="20")
    parts = [made.rows(first, size) for first, size in ((0, 1), (1, 7), (8, 92))]

    assert pa.concat_tables(parts).equals(made.rows(0, 100))
    assert not generator({"a": "STRING"}, seed="2").rows(0, 9).equals(made.rows(0, 9).select(["a"]))
    assert len(set(made.rows(0, 1000)["a"].to_pylist())) == 1000


def test_values_keep_their_bounds() -> None:
    made = generator(
        {"i": "INT", "t": "TINYINT", "d": "DECIMAL(6, 2)", "f": "FLOAT", "w": "STRING"},
        fields__i__min="-2",
        fields__i__max="2",
        fields__d__min="1.5",
        fields__d__max="2.5",
        fields__w__length="1",
    ).rows(0, 20_000)

    assert set(made["i"].to_pylist()) == {-2, -1, 0, 1, 2}
    assert set(made["t"].to_pylist()) == set(range(-128, 128))
    assert 1.5 <= min(made["d"].to_pylist()) < max(made["d"].to_pylist()) <= 2.5
    assert 0 <= min(made["f"].to_pylist()) < max(made["f"].to_pylist()) <= 1
    assert set(made["w"].to_pylist()) == set("0123456789abcdef")


def test_sequences_and_numbers_of_rows_end_the_rows() -> None:
    sequence = {"fields__i__kind": "sequence", "fields__i__start": "5", "fields__i__end": "9"}
    made = generator({"i": "SMALLINT"}, **sequence)

    assert made.rows(0, 100)["i"].to_pylist() == [5, 6, 7, 8, 9]
    assert made.rows(3, 100).num_rows == 2
    assert generator({"i": "INT"}, number_of_rows="3", **sequence).rows_max == 3
    assert generator({"i": "INT"}).rows_max is None


def test_nulls_have_their_share() -> None:
    made = generator({"b": "BOOLEAN", "c": "DATE"}, fields__b__null_rate="0.25").rows(0, 20_000)

    assert 4_500 < made["b"].null_count < 5_500
    assert made["c"].null_count == 0


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {}, "a generated table needs columns"),
        ({"a": "INT"}, {"rows_per_sec": "3"}, "datagen has no such option"),
        ({"a": "INT"}, {"fields__b__min": "3"}, "datagen has no such option"),
        ({"a": "INT"}, {"fields__a__start": "3"}, "has no such setting"),
        ({"a": "INT"}, {"fields__a__kind": "walk"}, "random or a sequence"),
        ({"a": "INT"}, {"fields__a__kind": "sequence"}, "with 'start' and 'end'"),
        ({"a": "INT"}, {"fields__a__min": "x"}, "the setting is a number"),
        ({"a": "INT"}, {"fields__a__min": "3000000000"}, "out of the range"),
        ({"a": "INT"}, {"fields__a__min": "3", "fields__a__max": "2"}, "larger than the largest"),
        ({"a": "INT"}, {"fields__a__length": "3"}, "'length' is for texts"),
        ({"a": "STRING"}, {"fields__a__min": "3"}, "'min' and 'max' are for numbers"),
        ({"a": "INT"}, {"fields__a__null_rate": "2"}, "from 0 to 1"),
        ({"a": "INT"}, {"number_of_rows": "-1"}, "a whole number, at least 0"),
        ({"a": "INT"}, {"rows_per_second": "0"}, "a whole number, at least 1"),
        ({"a": "TIMESTAMP(3)"}, {"fields__a__max_past": "soon"}, "max-past is"),
        ({"a": "INT"}, {"fields__a__max_past": "1 d"}, "for dates and timestamps"),
    ],
)
def test_wrong_options_are_refused(
    columns: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        generator(columns, **options)


def test_types_without_values_are_named() -> None:
    with pytest.raises(Unsupported, match="type=ARRAY<INT>"):
        generator({"a": "ARRAY<INT>"})


def test_temporary_tables_are_made_replaced_and_dropped(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    text = "TEMPORARY TABLE g (a INT) WITH ('connector'='datagen', 'number-of-rows'='{}')"
    session.sql("CREATE " + text.format(3))
    assert session.sql("SELECT count(*) FROM g").fetchall() == [(3,)]
    with pytest.raises(AlreadyExists):
        session.sql("CREATE " + text.format(4))
    session.sql("CREATE TEMPORARY TABLE IF NOT EXISTS g (a INT) WITH ('connector'='datagen')")
    session.sql("CREATE OR REPLACE " + text.format(5))
    assert session.sql("SELECT count(*) FROM g").fetchall() == [(5,)]
    assert session.sql("SHOW TABLES").fetchall() == [("g",)]
    session.sql("DROP TEMPORARY TABLE g")
    with pytest.raises(Unsupported, match="CREATE TEMPORARY TABLE"):
        session.sql("CREATE TABLE g (a INT) WITH ('connector'='datagen')")
    with pytest.raises(Unsupported, match="no keys"):
        session.sql(
            "CREATE TEMPORARY TABLE g (a INT PRIMARY KEY NOT ENFORCED) WITH ('connector'='datagen')"
        )

    assert session.sql("SHOW TABLES").fetchall() == []
