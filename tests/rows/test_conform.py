from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import Field, arrow_type, parse_type
from lakecore.rows.conform import ConformedBatch, KindRule, conform

if TYPE_CHECKING:
    from collections.abc import Sequence

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
LTZ = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
LONG = "x" * 300


def schema(
    columns: dict[str, str],
    primary_keys: Sequence[str] = (),
    defaults: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
) -> TableSchema:
    fields, free = number_fields(
        [
            Field(
                id=0,
                name=name,
                type=parse_type(text),
                default_value=(defaults or {}).get(name),
            )
            for name, text in columns.items()
        ]
    )
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=free - 1,
        primary_keys=tuple(primary_keys),
        options=options or {},
    )


def rule(
    rowkind_field: str | None = None,
    *,
    keyed: bool = True,
    ignore_delete: bool = False,
    ignore_update_before: bool = False,
) -> KindRule:
    return KindRule(
        rowkind_field=rowkind_field,
        keyed=keyed,
        ignore_delete=ignore_delete,
        ignore_update_before=ignore_update_before,
    )


def conformed(
    arrays: dict[str, pa.Array],
    table: TableSchema,
    *,
    first_row: int = 0,
    kinds: KindRule | None = None,
) -> ConformedBatch:
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    out = conform(batch, table, first_row=first_row, kinds=kinds or rule())
    assert out.rows.schema.equals(table.arrow)
    out.rows.validate(full=True)
    return out


def kinds_of(out: ConformedBatch) -> list[int]:
    assert out.kinds is not None
    assert out.kinds.type == pa.int8()
    return list(out.kinds.to_pylist())


def fitted(array: pa.Array, type_text: str) -> pa.Array:
    return conformed({"c": array}, schema({"c": type_text})).rows.column(0)


def refusal(array: pa.Array, type_text: str, first_row: int = 0) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        conformed({"c": array}, schema({"c": type_text}), first_row=first_row)
    return caught.value


# --- columns --------------------------------------------------------------------------------------

TWO = schema({"a": "INT", "b": "STRING"})


def test_columns_are_matched_by_name_in_any_order() -> None:
    out = conformed({"b": pa.array(["x"]), "a": pa.array([1])}, TWO)

    assert out.rows.to_pylist() == [{"a": 1, "b": "x"}]
    assert out.kinds is None


def test_missing_column_is_null() -> None:
    assert conformed({"a": pa.array([1])}, TWO).rows.to_pylist() == [{"a": 1, "b": None}]


def test_unknown_column_is_refused_with_names_that_are_near() -> None:
    table = schema({"price": "INT", "note": "STRING"})

    with pytest.raises(InvalidRequest, match="unknown column") as caught:
        conformed({"Price": pa.array([1])}, table)

    assert caught.value.facts["column"] == "Price"
    assert caught.value.facts["columns"] == ["price", "note"]
    assert caught.value.facts["did_you_mean"] == ["price"]


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("NOTE", ["Note"]),
        ("price", ["prices", "price123", "price1234"]),
        ("weight", None),
    ],
)
def test_the_three_nearest_names_are_suggested_as_they_are_spelt(
    given: str, near: list[str] | None
) -> None:
    known = ["Note", "price12345", "price1234", "price123", "prices"]

    with pytest.raises(InvalidRequest, match="unknown column") as caught:
        conformed({given: pa.array([1])}, schema(dict.fromkeys(known, "INT")))

    assert caught.value.facts.get("did_you_mean") == near


def test_column_that_is_there_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])

    with pytest.raises(InvalidRequest, match="two columns have the same name"):
        conform(batch, TWO, first_row=0, kinds=rule())


def test_missing_column_that_is_not_null_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="missing") as caught:
        conformed({"b": pa.array(["x"])}, schema({"a": "INT NOT NULL", "b": "STRING"}))

    assert caught.value.facts["column"] == "a"


def test_batch_without_rows_is_looked_at_all_the_same() -> None:
    out = conformed({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}, TWO)

    assert out.rows.num_rows == 0
    with pytest.raises(InvalidRequest, match="not of the column's type"):
        conformed({"a": pa.array([], pa.string())}, TWO)


def test_nothing_but_nulls_fits_any_column_even_without_rows() -> None:
    columns = {"a": "BIGINT", "r": "ROW<x INT, y INT>"}
    parts = pa.array([], pa.struct([("x", pa.int32())]))

    out = conformed({"a": pa.nulls(0), "r": parts}, schema(columns))
    assert out.rows.schema == schema(columns).arrow


def test_batch_that_fits_comes_back_without_a_copy() -> None:
    table = schema(
        {"i": "INT", "s": "VARCHAR(5)", "l": "ARRAY<STRING>", "r": "ROW<x INT NOT NULL>"}
    )
    given = pa.RecordBatch.from_pylist(
        [{"i": 1, "s": "ä", "l": ["x"], "r": {"x": 1}}, {"i": 2, "s": "b", "l": None, "r": None}],
        schema=table.arrow,
    )

    out = conform(given, table, first_row=0, kinds=rule()).rows

    for mine, theirs in zip(given.columns, out.columns, strict=True):
        assert [b and b.address for b in mine.buffers()] == [
            b and b.address for b in theirs.buffers()
        ]


def test_sliced_batch_fits_by_its_own_rows_only() -> None:
    table = schema(
        {"s": "VARCHAR(2)", "l": "ARRAY<INT NOT NULL>", "m": "MAP<STRING, INT NOT NULL>"}
    )
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["long", "ab", "long"]),
            pa.array([[None], [1, 2], [None]]),
            pa.array([[("a", None)], [("b", 1)], [("c", None)]], pa.map_(pa.string(), pa.int64())),
        ],
        names=["s", "l", "m"],
    )

    out = conform(batch.slice(1, 1), table, first_row=0, kinds=rule()).rows

    assert out.to_pylist() == [{"s": "ab", "l": [1, 2], "m": [("b", 1)]}]
    with pytest.raises(InvalidRequest) as caught:
        conform(batch.slice(1, 2), table, first_row=10, kinds=rule())
    assert caught.value.facts["row"] == 11


# --- NOT NULL and defaults ------------------------------------------------------------------------


def test_null_in_not_null_column_names_column_and_row() -> None:
    error = refusal(pa.array([1, None, None]), "INT NOT NULL", first_row=100)

    assert error.facts["column"] == "c"
    assert error.facts["row"] == 101
    assert error.facts["value"] == "null"


def test_null_key_is_refused_even_if_the_type_says_nothing() -> None:
    arrays = {"k": pa.array([1, None])}

    with pytest.raises(InvalidRequest, match="NOT NULL"):
        conformed(arrays, schema({"k": "INT"}, ["k"]))
    nullable = schema({"k": "INT"}, ["k"], options={"primary-key.nullable": "true"})
    assert conformed(arrays, nullable).rows.num_rows == 2


def test_default_value_stands_for_null_and_for_a_missing_column() -> None:
    table = schema(
        {"a": "INT", "b": "DECIMAL(5, 2)", "c": "STRING"}, defaults={"b": "1.5", "c": "'x'"}
    )

    out = conformed({"a": pa.array([1, 2]), "b": pa.array([Decimal("2.25"), None])}, table).rows

    assert out.to_pylist() == [
        {"a": 1, "b": Decimal("2.25"), "c": "x"},
        {"a": 2, "b": Decimal("1.50"), "c": "x"},
    ]


def test_default_value_stands_for_a_missing_not_null_column_but_not_for_a_given_null() -> None:
    table = schema({"a": "INT", "b": "INT NOT NULL"}, defaults={"b": "7"})

    assert conformed({"a": pa.array([1])}, table).rows.to_pylist() == [{"a": 1, "b": 7}]
    with pytest.raises(InvalidRequest, match="NOT NULL"):
        conformed({"a": pa.array([1]), "b": pa.array([None], pa.int32())}, table)


def test_deletion_needs_values_in_not_null_columns_too() -> None:
    table = schema({"k": "INT NOT NULL", "v": "INT NOT NULL"}, ["k"])

    with pytest.raises(InvalidRequest, match="NOT NULL"):
        conformed(
            {"k": pa.array([1]), "v": pa.array([None], pa.int32()), "_row_kind": pa.array(["-D"])},
            table,
        )


# --- kinds ----------------------------------------------------------------------------------------

KEYED = schema({"k": "INT NOT NULL", "kind": "STRING"}, ["k"])
KINDS = ["+I", "-U", "+U", "-D"]


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(KINDS),
        pa.array(KINDS, pa.large_string()),
        pa.array(KINDS, pa.string_view()),
        pa.array(KINDS).dictionary_encode(),
    ],
    ids=lambda array: str(array.type)[:12],
)
def test_kinds_are_read_from_every_layout_of_text(texts: pa.Array) -> None:
    out = conformed({"_row_kind": texts, "k": pa.array([1, 2, 3, 4])}, KEYED)

    assert kinds_of(out) == [0, 1, 2, 3]


def test_all_inserts_have_no_kinds() -> None:
    assert conformed({"_row_kind": pa.array(["+I"]), "k": pa.array([1])}, KEYED).kinds is None


@pytest.mark.parametrize("wrong", ["+i", "", None, "I"])
def test_unknown_kind_is_refused_with_its_row(wrong: str | None) -> None:
    with pytest.raises(InvalidRequest, match="unknown row kind") as caught:
        conformed(
            {"_row_kind": pa.array(["+I", wrong], pa.string()), "k": pa.array([1, 2])},
            KEYED,
            first_row=5,
        )

    assert caught.value.facts["row"] == 6


def test_kinds_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="not of the column's type") as caught:
        conformed({"_row_kind": pa.array([0]), "k": pa.array([1])}, KEYED)

    assert caught.value.facts["column"] == "_row_kind"


def test_kinds_come_from_the_named_column_which_stays() -> None:
    arrays = {"k": pa.array([1, 2]), "kind": pa.array(["-D", "+I"])}

    out = conformed(arrays, KEYED, kinds=rule("kind"))

    assert kinds_of(out) == [3, 0]
    assert out.rows.column("kind").to_pylist() == ["-D", "+I"]


def test_named_kind_column_refuses_null_and_a_second_source() -> None:
    with pytest.raises(InvalidRequest, match="unknown row kind"):
        conformed({"k": pa.array([1])}, KEYED, kinds=rule("kind"))
    with pytest.raises(InvalidRequest, match=r"rowkind\.field"):
        conformed(
            {"k": pa.array([1]), "kind": pa.array(["+I"]), "_row_kind": pa.array(["+I"])},
            KEYED,
            kinds=rule("kind"),
        )
    with pytest.raises(InvalidRequest, match="not a column"):
        conformed({"k": pa.array([1])}, KEYED, kinds=rule("other"))


def test_append_table_takes_inserts_only() -> None:
    table = schema({"a": "INT"})
    inserts = {"a": pa.array([1, 2]), "_row_kind": pa.array(["+I", "+I"])}
    others = {"a": pa.array([1, 2]), "_row_kind": pa.array(["+I", "+U"])}

    assert conformed(inserts, table, kinds=rule(keyed=False)).kinds is None
    with pytest.raises(InvalidRequest, match="inserts only") as caught:
        conformed(others, table, kinds=rule(keyed=False))
    assert caught.value.facts["row"] == 1
    assert caught.value.facts["value"] == "+U"


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (rule(), [1, 2, 3, 4]),
        (rule(ignore_delete=True), [1, 3]),
        (rule(ignore_update_before=True), [1, 3, 4]),
        (rule(ignore_delete=True, ignore_update_before=True), [1, 3]),
    ],
)
def test_ignored_kinds_are_dropped(kinds: KindRule, kept: list[int]) -> None:
    out = conformed({"k": pa.array([1, 2, 3, 4]), "_row_kind": pa.array(KINDS)}, KEYED, kinds=kinds)

    assert out.rows.column("k").to_pylist() == kept
    assert len(kinds_of(out)) == len(kept)


def test_what_is_left_after_dropping_may_be_inserts_or_nothing() -> None:
    ignoring = rule(ignore_delete=True)
    mixed = {"k": pa.array([1, 2]), "_row_kind": pa.array(["+I", "-D"])}
    deletes = {"k": pa.array([1]), "_row_kind": pa.array(["-D"])}

    assert conformed(mixed, KEYED, kinds=ignoring).kinds is None
    assert conformed(deletes, KEYED, kinds=ignoring).rows.num_rows == 0


# --- values that fit ------------------------------------------------------------------------------

EVENING = dt.datetime(2024, 5, 6, 23, 59, 59, 123000)
EPOCH = "1970-01-01 00:00:00"
MORNING = dt.datetime(2024, 5, 6)
BERLIN = pa.array([1_715_000_000_000], pa.timestamp("ms", "Europe/Berlin"))
UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
PAIRS = pa.array([[9, 9], [1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
STRUCTS = pa.array([{"b": "x", "a": 1}, None])
STRUCTS_OUT = [{"a": 1, "b": "x", "c": None}, None]
MAPS = pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.int64()))
NEGATIVE_SCALE = pa.Array.from_buffers(
    pa.decimal128(5, -2), 1, pa.array([Decimal(123)], pa.decimal128(5, 0)).buffers()
)

FITS = [
    (pa.array([127, -128]), "TINYINT", [127, -128]),
    (pa.array([32767, -32768]), "SMALLINT", [32767, -32768]),
    (pa.array([INT32_MAX], pa.uint64()), "INT", [INT32_MAX]),
    (pa.array([INT64_MAX], pa.uint64()), "BIGINT", [INT64_MAX]),
    (pa.array([1.0, None, -(2.0**31)]), "INT", [1, None, -(2**31)]),
    (pa.array([3.0], pa.float16()), "INT", [3]),
    (pa.array([Decimal("12.00")]), "TINYINT", [12]),
    (pa.array([Decimal(INT64_MAX)], pa.decimal256(60, 0)), "BIGINT", [INT64_MAX]),
    (NEGATIVE_SCALE, "INT", [12300]),
    (pa.array([True, None]), "BOOLEAN", [True, None]),
    (pa.array([0.1, None]), "FLOAT", [float(np.float32(0.1)), None]),
    (pa.array([float("inf"), -float("inf")]), "FLOAT", [float("inf"), -float("inf")]),
    (pa.array([1.5], pa.float32()), "DOUBLE", [1.5]),
    (pa.array([2**53]), "DOUBLE", [2.0**53]),
    (pa.array([2**24]), "FLOAT", [2.0**24]),
    (pa.array([Decimal("1.1"), None, Decimal("-0.7")]), "DOUBLE", [1.1, None, -0.7]),
    (pa.array([Decimal("0.46068583048903696819")]), "DOUBLE", [0.46068583048903696819]),
    (pa.array([Decimal("9.9"), Decimal("1.1")]).slice(1), "DOUBLE", [1.1]),
    (pa.array([99, None]), "DECIMAL(4, 2)", [Decimal("99.00"), None]),
    (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(20, 0)", [Decimal(2**64 - 1)]),
    (pa.array([0]), "DECIMAL(3, 3)", [Decimal("0.000")]),
    (pa.array([Decimal("1.20")]), "DECIMAL(2, 1)", [Decimal("1.2")]),
    (pa.array([Decimal("1.25")], pa.decimal256(76, 30)), "DECIMAL(3, 2)", [Decimal("1.25")]),
    (pa.array([Decimal("1.5")], pa.decimal32(5, 1)), "DECIMAL(38, 37)", [Decimal("1.5")]),
    (pa.array([dt.date(2024, 5, 6)], pa.date64()), "DATE", [dt.date(2024, 5, 6)]),
    (pa.array([dt.datetime(2024, 5, 6)]), "DATE", [dt.date(2024, 5, 6)]),
    (pa.array([dt.time(23, 59, 59)], pa.time32("s")), "TIME(0)", [dt.time(23, 59, 59)]),
    (pa.array([dt.time(1, 2, 3, 120000)], pa.time64("ns")), "TIME(2)", [dt.time(1, 2, 3, 120000)]),
    (pa.array([dt.time(1, 2, 3, 123000)], pa.time64("us")), "TIME(9)", [dt.time(1, 2, 3, 123000)]),
    (pa.array([EVENING, None], pa.timestamp("ns")), "TIMESTAMP(3)", [EVENING, None]),
    (pa.array([MORNING], pa.timestamp("s")), "TIMESTAMP(9)", [MORNING]),
    (pa.array([dt.date(2024, 5, 6)]), "TIMESTAMP(0)", [dt.datetime(2024, 5, 6)]),
    (BERLIN, LTZ, [dt.datetime.fromtimestamp(1_715_000_000, dt.UTC)]),
    (pa.array(["äö"], pa.large_string()), "VARCHAR(2)", ["äö"]),
    (pa.array(["äö", None], pa.string_view()), "CHAR(2)", ["äö", None]),
    (pa.array(["a", None, "b", "a"]).dictionary_encode(), "STRING", ["a", None, "b", "a"]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"])), "STRING", ["a", "a", "b"]),
    (
        pa.RunEndEncodedArray.from_arrays([2, 4], pa.array(["a", None], pa.string_view())).slice(1),
        "STRING",
        ["a", None, None],
    ),
    (
        pa.RunEndEncodedArray.from_arrays([1, 3], pa.array(["a", "b"]).dictionary_encode()),
        "STRING",
        ["a", "b", "b"],
    ),
    (pa.RunEndEncodedArray.from_arrays([2], pa.array([[1, 2]])), "ARRAY<INT>", [[1, 2], [1, 2]]),
    (pa.array([b"ab"], pa.binary(2)), "BINARY(2)", [b"ab"]),
    (pa.array([b"ab", None], pa.binary_view()), "VARBINARY(2)", [b"ab", None]),
    (pa.array([b"ab"], pa.large_binary()), "BYTES", [b"ab"]),
    (UUIDS, "BINARY(16)", [b"0123456789abcdef"]),
    (pa.nulls(2), "ARRAY<INT>", [None, None]),
    (pa.array([None, None], pa.float64()), "STRING", [None, None]),
    (pa.array([[1, 2], None, []], pa.large_list(pa.int64())), "ARRAY<INT>", [[1, 2], None, []]),
    (PAIRS.slice(1), "ARRAY<INT NOT NULL>", [[1, 2], None, [3, 4]]),
    (pa.array([[1, 2], None, []], pa.list_view(pa.int64())), "ARRAY<TINYINT>", [[1, 2], None, []]),
    (STRUCTS, "ROW<a INT NOT NULL, b STRING, c INT>", STRUCTS_OUT),
    (MAPS, "MAP<STRING, INT>", [[("k", 1)], None, []]),
    (pa.array([[{"key": "k", "value": 1}], None]), "MAP<STRING, INT>", [[("k", 1)], None]),
    (MAPS.slice(1), "MULTISET<STRING>", [None, []]),
    (MAPS.slice(0, 1), "MULTISET<STRING>", [[("k", 1)]]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "type_text", "values"), FITS)
def test_value_that_fits_is_kept(array: pa.Array, type_text: str, values: list[object]) -> None:
    out = fitted(array, type_text)

    assert out.type == arrow_type(parse_type(type_text))
    assert out.to_pylist() == values


# --- values that do not ---------------------------------------------------------------------------

# A hundred times this number is a small one modulo 2**128.
WRAPS = pa.array([Decimal(0), Decimal((2**128 + 5 * 10**37) // 100)], pa.decimal128(38, 0))
# What DuckDB makes of a HUGEINT.
HUGE = pa.Array.from_buffers(
    pa.decimal128(38, 0), 2, [None, pa.py_buffer(bytes(16) + (2**127 - 1).to_bytes(16, "little"))]
)

MISFITS = [
    (pa.array([0, 128]), "TINYINT", "range", "128"),
    (pa.array([0, -32769]), "SMALLINT", "range", "-32769"),
    (pa.array([0, INT32_MAX + 1]), "INT", "range", "2147483648"),
    (pa.array([0, INT64_MAX + 1], pa.uint64()), "BIGINT", "range", "9223372036854775808"),
    (pa.array([0, 1.5]), "INT", "whole", "1.5"),
    (pa.array([0, float("nan")]), "INT", "whole", "nan"),
    (pa.array([0, 2.0**63]), "BIGINT", "range", "9.223372036854776e+18"),
    (pa.array([Decimal("1.0"), Decimal("1.5")]), "INT", "whole", "1.5"),
    (pa.array([Decimal(0), Decimal(2**63)]), "BIGINT", "range", "9223372036854775808"),
    (pa.array([0, 1e39]), "FLOAT", "too large", "1e+39"),
    (pa.array([0, -1e39]), "FLOAT", "too large", "-1e+39"),
    (pa.array([0, 2**53 + 1]), "DOUBLE", "digits", "9007199254740993"),
    (pa.array([0, 2**24 + 1]), "FLOAT", "digits", "16777217"),
    (pa.array([0, 100]), "DECIMAL(4, 2)", "digits", "100"),
    (pa.array([0, 1]), "DECIMAL(3, 3)", "digits", "1"),
    (pa.array([Decimal("0.10"), Decimal("0.11")]), "DECIMAL(2, 1)", "digits", "0.11"),
    (pa.array([Decimal("9.9"), Decimal("10.0")]), "DECIMAL(2, 1)", "digits", "10.0"),
    (HUGE, "DECIMAL(38, 0)", "digits", str(2**127 - 1)),
    (HUGE, "BIGINT", "range", str(2**127 - 1)),
    (WRAPS, "DECIMAL(38, 2)", "digits", "3902823669209384634633746074317682114"),
    (pa.array([0, 1], pa.int64()).view(pa.date64()), "DATE", "time of day", "1970-01-01"),
    (pa.array([MORNING, EVENING]), "DATE", "time of day", "2024-05-06 23:59:59.123000"),
    (pa.array([dt.time(1), dt.time(1, 2, 3, 4)]), "TIME(3)", "milliseconds", "01:02:03.000004"),
    (pa.array([dt.time(1), dt.time(1, 2, 3, 4000)]), "TIME(2)", "fraction", "01:02:03.004000"),
    (pa.array([0, 86_400_000], pa.int32()).view(pa.time32("ms")), "TIME(3)", "time of day", None),
    (pa.array([0, -1], pa.int32()).view(pa.time32("ms")), "TIME(3)", "time of day", None),
    (pa.array([0, 7], pa.timestamp("ns")), "TIMESTAMP(6)", "fraction", f"{EPOCH}.000000007"),
    (pa.array([0, 2**62], pa.timestamp("s")), "TIMESTAMP(3)", "range", None),
    (pa.array(["ab", "äöü"]), "VARCHAR(2)", "characters", "äöü"),
    (pa.array(["ab", "abc"], pa.string_view()), "CHAR(2)", "characters", "abc"),
    (pa.array([b"ab", b"abc"]), "VARBINARY(2)", "bytes", "b'abc'"),
    (pa.array([b"ab", b"\xff\xfe"]).view(pa.string()), "STRING", "UTF-8", "\\xff\\xfe"),
    (pa.array(["", LONG]), "CHAR(1)", "characters", "x" * 120 + "..."),
]  # fmt: skip


@pytest.mark.parametrize(("array", "type_text", "rule_part", "value"), MISFITS)
def test_value_that_does_not_fit_is_named(
    array: pa.Array, type_text: str, rule_part: str, value: str | None
) -> None:
    error = refusal(array, type_text, first_row=40)

    assert rule_part in error.message
    assert error.facts["column"] == "c"
    assert error.facts["row"] == 41
    assert str(error.facts["type"]) == type_text
    if value is not None:
        assert error.facts["value"] == value


@pytest.mark.parametrize("precision", range(10))
def test_timestamp_keeps_the_fraction_digits_of_the_type_and_no_more(precision: int) -> None:
    for root in ("TIMESTAMP({})", "TIMESTAMP({}) WITH LOCAL TIME ZONE"):
        text = root.format(precision)
        zone = "UTC" if "ZONE" in text else None
        finest = 10 ** (9 - precision)
        fits = pa.array([finest, -finest, None], pa.timestamp("ns", zone))

        assert fitted(fits, text).cast(fits.type).equals(fits)
        if precision < 9:
            wrong = pa.array([None, 0, finest, finest // 10, 5], pa.timestamp("ns", zone))
            assert refusal(wrong, text).facts["row"] == 3


@pytest.mark.parametrize("beyond", [0, 1, 5])
@pytest.mark.parametrize(
    ("array", "type_text"),
    [
        (pa.array([1000, None], pa.timestamp("ms")), "TIMESTAMP(0)"),
        (pa.array([None, 2000], pa.time32("ms")), "TIME(0)"),
        (pa.array([300, None]), "SMALLINT"),
        (pa.array([Decimal("1.5"), None], pa.decimal128(15, 1)), "DOUBLE"),
        (pa.array(["\u00e9", None]), "STRING"),
    ],
)
def test_buffers_may_be_longer_than_their_values(
    array: pa.Array, type_text: str, beyond: int
) -> None:
    buffers = [b and pa.py_buffer(b.to_pybytes() + b"\1" * beyond) for b in array.buffers()]
    longer = pa.Array.from_buffers(array.type, len(array), buffers)

    assert fitted(longer, type_text).equals(fitted(array, type_text))
    assert fitted(longer.slice(1), type_text).equals(fitted(array.slice(1), type_text))


def test_what_null_slots_hold_does_not_matter() -> None:
    numbers = pa.array([1, 1_000_000], pa.int64())
    validity = pa.array([False, True]).buffers()[1]
    array = pa.Array.from_buffers(pa.timestamp("us"), 2, [validity, numbers.buffers()[1]])

    assert fitted(array, "TIMESTAMP(0)").null_count == 1


WRONG_TYPES = [
    (pa.array(["1"]), "INT", ""),
    (pa.array([1]), "STRING", ""),
    (pa.array([True]), "INT", ""),
    (pa.array([1]), "BOOLEAN", ""),
    (pa.array([1.5]), "DECIMAL(3, 1)", "exact"),
    (pa.array(["x"]), "BYTES", ""),
    (pa.array([b"x"]), "STRING", ""),
    (pa.array([EVENING]), LTZ, "zone"),
    (BERLIN, "TIMESTAMP(3)", "zone"),
    (BERLIN, "DATE", "zone"),
    (pa.array([1]), "TIMESTAMP(3)", ""),
    (pa.array([dt.timedelta(1)]), "TIME(3)", ""),
    (pa.array([1]), "ARRAY<INT>", ""),
    (pa.array([[1]]), "ROW<a INT>", ""),
    (pa.array([[1]]), "MAP<INT, INT>", "structs"),
    (pa.array([{"a": 1}]), "MAP<STRING, INT>", "structs"),
]


@pytest.mark.parametrize(("array", "type_text", "hint"), WRONG_TYPES)
def test_values_of_another_kind_are_refused_with_both_types(
    array: pa.Array, type_text: str, hint: str
) -> None:
    error = refusal(array, type_text)

    assert "not of the column's type" in error.message
    assert hint in error.message
    assert str(error.facts["type"]) == str(parse_type(type_text))
    assert error.facts["given"] == array.type


# --- nested ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "type_text", "column", "row"),
    [
        (pa.array([[1], [], None, [2, None]]), "ARRAY<INT NOT NULL>", "c.element", 3),
        (pa.array([{"a": 1}, None, {"a": None}]), "ROW<a INT NOT NULL>", "c.a", 2),
        (pa.array([{"a": 1}]), "ROW<a INT, b INT NOT NULL>", "c.b", 0),
        (
            pa.array([[{"a": 1}, {"a": 2}], [{"a": 3}, {"a": 300}]]),
            "ARRAY<ROW<a TINYINT>>",
            "c.element.a",
            1,
        ),
        (
            pa.array([[("a", 1)], [("b", 1), ("long", 2)]], pa.map_(pa.string(), pa.int64())),
            "MAP<VARCHAR(2), INT>",
            "c.key",
            1,
        ),
        (
            pa.array([[("a", 1)], [("b", 2**40)]], pa.map_(pa.string(), pa.int64())),
            "MAP<STRING, INT>",
            "c.value",
            1,
        ),
        (pa.array([[], [{"key": None, "value": 1}]]), "MAP<STRING, INT>", "c.key", 1),
        (pa.array([[{"key": "a", "value": None}]]), "MULTISET<STRING>", "c.value", 0),
        (pa.array([[{"key": "a", "value": 1}], [None]]), "MAP<STRING, INT>", "c", 1),
    ],
)
def test_misfit_inside_names_its_part_and_its_row(
    array: pa.Array, type_text: str, column: str, row: int
) -> None:
    error = refusal(array, type_text, first_row=7)

    assert error.facts["column"] == column
    assert error.facts["row"] == 7 + row


@pytest.mark.parametrize(
    ("key", "twice"),
    [
        ("INT", 1),
        ("STRING", "a"),
        ("BYTES", b"a"),
        ("DOUBLE", float("nan")),
        ("DECIMAL(30, 2)", Decimal("1.50")),
        ("TIMESTAMP(3)", dt.datetime(2024, 5, 1)),
        ("ROW<a INT, b STRING>", {"a": 1, "b": None}),
        ("ARRAY<INT>", [1, None]),
    ],
)
def test_key_that_is_in_a_map_twice_is_refused(key: str, twice: object) -> None:
    kind = arrow_type(parse_type(f"MAP<{key}, INT>"))
    once, both = [(twice, 1)], [(twice, 1), (twice, 2)]
    error = refusal(pa.array([once, None, once, both, once], kind), f"MAP<{key}, INT>", first_row=7)

    assert "twice" in str(error)
    assert error.facts["column"] == "c.key"
    assert error.facts["row"] == 10
    many = pa.array([once, None, [], once, once], kind)
    assert str(fitted(many, f"MAP<{key}, INT>")) == str(many)


def test_zeros_of_two_signs_are_two_keys_of_a_map() -> None:
    zeros = pa.array([[(0.0, 1), (-0.0, 2)]], pa.map_(pa.float64(), pa.int32()))

    assert fitted(zeros, "MAP<DOUBLE, INT>").to_pylist() == [[(0.0, 1), (-0.0, 2)]]


@pytest.mark.parametrize("type_text", ["MULTISET<STRING>", "MAP<STRING, INT>"])
def test_repeated_key_of_a_list_of_entries_is_shown(type_text: str) -> None:
    given = pa.array([[{"key": "a", "value": 1}, {"key": "a", "value": 2}]])

    assert refusal(given, type_text).facts["value"] == "a"


def test_unknown_field_inside_a_row_is_refused() -> None:
    error = refusal(pa.array([{"a": 1, "B": 2}]), "ROW<a INT, b INT>")

    assert error.facts["column"] == "c.B"
    assert error.facts["did_you_mean"] == ["b"]


def test_values_behind_a_null_row_or_list_are_not_looked_at() -> None:
    inner = pa.array([None, 5], pa.int32())
    rows = pa.StructArray.from_arrays([inner], names=["a"], mask=pa.array([True, False]))
    validity = pa.array([False, True]).buffers()[1]
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    lists = pa.Array.from_buffers(pa.list_(pa.int32()), 2, [validity, offsets], children=[inner])

    assert fitted(rows, "ROW<a INT NOT NULL>").to_pylist() == [None, {"a": 5}]
    assert fitted(lists, "ARRAY<INT NOT NULL>").to_pylist() == [None, [5]]
