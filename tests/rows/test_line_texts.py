from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.model.types import Field, arrow_type, parse_type
from lakecore.rows.line_texts import from_texts, text_fields, to_texts


def field(kind: str) -> Field:
    return Field(id=0, name="c", type=parse_type(kind))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("INT", -5, "-5"),
        ("BOOLEAN", True, "true"),
        ("DECIMAL(5, 2)", Decimal("1.50"), "1.50"),
        ("DOUBLE", float("nan"), "NaN"),
        ("FLOAT", 1e10, "1.0E10"),
        ("BYTES", b"\x00\xff", "AP8="),
        ("DATE", dt.date(2024, 2, 29), "2024-02-29"),
        ("TIME(3)", dt.time(1, 2, 3, 450_000), "01:02:03.45"),
        ("TIMESTAMP(3)", dt.datetime(1969, 12, 31, 23, 59, 59), "1969-12-31 23:59:59.000"),
        ("ARRAY<INT>", [1, None], ["1", None]),
        ("MAP<INT, DATE>", [(1, dt.date(1970, 1, 1))], [("1", "1970-01-01")]),
        ("ROW<a INT, b ARRAY<BOOLEAN>>", {"a": 1, "b": [False]}, {"a": "1", "b": ["false"]}),
    ],
)
def test_values_become_texts_and_come_back(kind: str, value: object, text: object) -> None:
    column = field(kind)
    # A sliced array, whose children begin elsewhere.
    given = pa.chunked_array(
        [pa.array([None, value, value, None], arrow_type(column.type)).slice(1)]
    )
    texts = to_texts(pa.table([given], names=["c"]), [column], "json")

    assert texts.column(0).to_pylist() == [text, text, None]
    (batch,) = texts.to_batches()
    assert repr(from_texts(batch, [column], "p").column(0).to_pylist()) == repr(given.to_pylist())


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *(("ARRAY<INT>", "csv"), ("MAP<STRING, INT>", "csv"), ("ROW<a INT>", "csv")),
        *(("TIMESTAMP(3) WITH LOCAL TIME ZONE", "csv"), ("MULTISET<STRING>", "json")),
        *(("MAP<DATE, INT>", "json"), ("ARRAY<TIMESTAMP_LTZ(3)>", "json"), ("INT", "text")),
    ],
)
def test_types_that_do_not_come_back_are_unsupported(kind: str, form: str) -> None:
    with pytest.raises(Unsupported):
        text_fields([field(kind)], form)


def test_a_text_file_holds_one_column() -> None:
    column = field("STRING")

    assert text_fields([column], "text")[0].name == "c"
    with pytest.raises(Unsupported, match="one STRING column"):
        text_fields([column, column], "text")


@pytest.mark.parametrize(
    ("kind", "number", "shown"),
    [
        ("TIMESTAMP(3)", -(10**14), "'-1199-02-15 14:13:20.000'"),
        ("DATE", -(10**6), "'-0768-02-04'"),
    ],
)
def test_a_value_that_is_not_read_back_is_refused(kind: str, number: int, shown: str) -> None:
    column = field(kind)
    arrow = arrow_type(column.type)
    before_christ = pa.array([0, number], f"int{arrow.bit_width}").cast(arrow)

    with pytest.raises(InvalidRequest, match="files of lines cannot hold a value") as refusal:
        to_texts(pa.table([before_christ], names=["c"]), [column], "csv")
    facts = {name: str(fact) for name, fact in refusal.value.facts.items()}
    assert facts == {"column": "c", "type": kind, "format": "csv", "value": shown}


@pytest.mark.parametrize(("kind", "text"), [("INT", "x"), ("BYTES", "%"), ("DATE", "2024-13-40")])
def test_a_text_that_cannot_be_parsed_is_corrupt(kind: str, text: str) -> None:
    batch = pa.RecordBatch.from_pydict({"c": [text]})

    with pytest.raises(CorruptTable, match="path=p column=c"):
        from_texts(batch, [field(kind)], "p")
