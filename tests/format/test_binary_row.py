from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format import binary_row
from lakecore.format.binary_row import decode_rows, encode_rows, hash_rows, serialize_row
from lakecore.model.types import Atomic, DataType, Field, Map, Root, arrow_type, parse_type

VECTORS = Path(__file__).parents[1] / "golden" / "vectors"


def read_vectors(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


def column_of(value: object, data_type: DataType) -> pa.Array:
    """One value as the vectors write it, as a column of its type."""
    want = arrow_type(data_type)
    if value is not None and isinstance(data_type, Atomic):
        if data_type.root is Root.DECIMAL:
            value = Decimal(str(value))
        elif data_type.root in {Root.BINARY, Root.VARBINARY}:
            value = bytes.fromhex(str(value))
        elif data_type.root is Root.TIME:
            value = dt.time.fromisoformat(str(value))
        elif data_type.root in {Root.DATE, Root.TIMESTAMP, Root.TIMESTAMP_LTZ}:
            zone = "Z" if data_type.root is Root.TIMESTAMP_LTZ else ""
            return pa.array([f"{value}{zone}"]).cast(want)
    if isinstance(data_type, Map):
        assert isinstance(value, list)
        value = [tuple(pair) for pair in value]
    if value is not None and not isinstance(data_type, Atomic | Map) and isinstance(value, list):
        value = value if pa.types.is_list(want) else dict(zip("ab", value, strict=True))
    return pa.array([value], want)


def columns_of(vector: dict[str, Any]) -> tuple[list[pa.Array], list[DataType]]:
    types = [parse_type(text) for text in vector["types"]]
    return [column_of(*pair) for pair in zip(vector["values"], types, strict=True)], types


def fields(*types: str) -> list[Field]:
    return [Field(id=i, name=f"f{i}", type=parse_type(text)) for i, text in enumerate(types)]


@pytest.mark.parametrize(
    "vector", read_vectors("bucket_hash_default.jsonl"), ids=lambda v: f"{v['types']}{v['values']}"
)
def test_rows_and_hashes_are_those_of_the_reference(vector: dict[str, Any]) -> None:
    columns, types = columns_of(vector)

    rows = encode_rows(columns, types)

    assert rows.data.tobytes().hex() == vector["rowHex"]
    assert serialize_row(columns, types).hex() == vector["serializedHex"]
    assert hash_rows(columns, types).tolist() == [vector["hash"]]


@pytest.mark.parametrize("vector", read_vectors("bucket_hash_default.jsonl"), ids=str)
def test_rows_of_the_reference_decode_to_their_values(vector: dict[str, Any]) -> None:
    columns, types = columns_of(vector)
    named = [Field(id=i, name=f"f{i}", type=t) for i, t in enumerate(types)]

    decoded = decode_rows([bytes.fromhex(vector["serializedHex"])] * 2, named)

    assert decoded.columns == [pa.concat_arrays([column] * 2) for column in columns]


def test_row_without_fields_is_twelve_zero_bytes() -> None:
    assert serialize_row([], []) == bytes(12)
    assert decode_rows([bytes(12)], []).num_columns == 0


def test_no_rows_encode_hash_and_decode_to_nothing() -> None:
    column = pa.array([], pa.string())
    string = parse_type("STRING")

    assert encode_rows([column], [string]).serialized() == []
    assert len(hash_rows([column], [string])) == 0
    assert decode_rows([], fields("STRING", "DECIMAL(30, 2)")).num_rows == 0


def test_arity_of_57_fields_takes_a_second_header_word() -> None:
    columns = [pa.array([None if i == 56 else i], pa.int32()) for i in range(57)]
    types = [parse_type("INT")] * 57

    row = serialize_row(columns, types)

    assert len(row) == 4 + 16 + 57 * 8
    assert row[4 + 8] == 1
    assert decode_rows([row], fields(*["INT"] * 57)).columns == columns


TEXTS = [None, "", "a", "sevenby", "eightbyt", "é中文", "a much longer text than that", "x" * 500]


@pytest.mark.parametrize(
    "form",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_every_arrow_form_of_text_gives_the_same_rows(form: pa.DataType) -> None:
    string, bigint = parse_type("STRING"), parse_type("BIGINT")
    numbers = pa.array(range(len(TEXTS)), pa.int64())
    plain = encode_rows([pa.array(TEXTS), numbers], [string, bigint])
    column = pa.array(TEXTS).cast(form)

    encoded = encode_rows([column, numbers], [string, bigint])
    hashes = hash_rows([column, numbers], [string, bigint])

    assert encoded.serialized() == plain.serialized()
    assert hashes.tolist() == hash_rows([pa.array(TEXTS), numbers], [string, bigint]).tolist()


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>", "BYTES"])
def test_slot_of_a_null_is_zero(kind: str) -> None:
    types = [parse_type("STRING"), parse_type(kind)]
    columns = [pa.array(["a longer text", "b"]), pa.nulls(2, arrow_type(types[1]))]

    rows = encode_rows(columns, types).serialized()
    assert [row[4 + 8 + 8 : 4 + 8 + 16] for row in rows] == [bytes(8)] * 2


def test_long_row_among_short_ones_has_the_hash_that_it_has_alone() -> None:
    string, texts = [parse_type("STRING")], pa.array(["a", "x" * 100_000, None])
    alone = [hash_rows([texts.slice(at, 1)], string)[0] for at in range(3)]

    assert hash_rows([texts], string).tolist() == alone


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("BOOLEAN", [True, None, False, True, True, False, None, True, False, True]),
        ("TINYINT", [1, -1, None, 127, -128]),
        ("BIGINT", [1, -1, None, 2**62]),
        ("STRING", TEXTS),
        ("DECIMAL(38, 2)", [Decimal("1.23"), None, Decimal("-99999999999999999999.01")]),
        ("TIMESTAMP(9)", [1, None, -1, 2**60]),
        ("ARRAY<INT>", [[1, None], None, [], list(range(40))]),
        ("MAP<STRING, BIGINT>", [[("a", 1)], None, [], [("a longer key", None)]]),
        ("ROW<a INT, b STRING>", [{"a": 1, "b": "x"}, None, {"a": None, "b": "y" * 9}]),
    ],
)
def test_slices_and_chunks_give_the_rows_they_show(text: str, values: list[object]) -> None:
    data_type = parse_type(text)
    whole = pa.array([*values, *values], arrow_type(data_type))
    expected = encode_rows([whole], [data_type]).serialized()
    hashes = hash_rows([whole], [data_type]).tolist()
    cut = pa.chunked_array([whole[:1], whole[1:3], whole[3:]])

    assert encode_rows([whole[1:-1]], [data_type]).serialized() == expected[1:-1]
    assert hash_rows([whole[3:]], [data_type]).tolist() == hashes[3:]
    assert encode_rows([cut], [data_type]).serialized() == expected
    assert hash_rows([cut.slice(2)], [data_type]).tolist() == hashes[2:]
    assert decode_rows(expected, fields(text)).column(0).to_pylist() == whole.to_pylist()


def test_chunks_of_work_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    types = [parse_type("STRING"), parse_type("BIGINT")]
    columns = [pa.array(TEXTS * 3), pa.array(range(24), pa.int64())]
    whole, hashes = encode_rows(columns, types), hash_rows(columns, types)
    monkeypatch.setattr(binary_row, "CHUNK_ROWS", 5)

    cut = encode_rows(columns, types)

    assert cut.serialized() == whole.serialized()
    assert np.array_equal(cut.offsets, whole.offsets)
    assert np.array_equal(hash_rows(columns, types), hashes)


def test_garbage_under_a_null_does_not_reach_the_row() -> None:
    validity = pa.py_buffer(b"\x00")
    numbers = pa.Array.from_buffers(pa.int64(), 1, [validity, pa.py_buffer(b"\xff" * 8)])
    offsets = pa.py_buffer(np.array([0, 9], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [validity, offsets, pa.py_buffer(b"z" * 9)])
    types = [parse_type("BIGINT"), parse_type("STRING")]

    row = serialize_row([numbers, text], types)

    assert row.hex() == "00000002" + "0003000000000000" + "00" * 16


def test_timestamps_of_another_unit_are_cast_and_the_zone_does_not_matter() -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678000)
    expected = serialize_row([pa.array([moment], pa.timestamp("ms"))], [parse_type("TIMESTAMP(3)")])
    nanos = pa.array([moment], pa.timestamp("ns"))
    zoned = nanos.cast(pa.timestamp("ns", tz="Asia/Shanghai"))

    assert serialize_row([nanos], [parse_type("TIMESTAMP(3)")]) == expected
    assert serialize_row([zoned], [parse_type("TIMESTAMP_LTZ(3)")]) == expected


def test_values_that_do_not_fit_the_type_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="do not fit"):
        encode_rows([pa.array([2**40])], [parse_type("INT")])


@pytest.mark.parametrize("seconds", [-(10**11), -9_223_372_037, 9_223_372_037, 253_402_300_799])
def test_times_that_nanoseconds_do_not_count_are_refused(seconds: int) -> None:
    kinds = [parse_type("TIMESTAMP(6)")]
    near, far = (
        serialize_row([pa.array([number * 1_000_000], pa.timestamp("us"))], kinds)
        for number in (1, seconds)
    )

    assert decode_rows([near], fields("TIMESTAMP(9)")).num_rows == 1
    assert decode_rows([near, far], fields("TIMESTAMP(6)")).num_rows == 2
    with pytest.raises(Unsupported, match="1677 to 2262"):
        decode_rows([near, far], fields("TIMESTAMP(9)"))


@pytest.mark.parametrize("kind", ["DECIMAL(9, 2)", "DECIMAL(18, 0)", "DECIMAL(30, 5)"])
def test_decimals_inside_of_others_come_back(kind: str) -> None:
    texts = ("0", "1", "-1", "99999") if kind == "DECIMAL(18, 0)" else ("0", "1.5", "-0.01", "-9e3")
    numbers = [*map(Decimal, texts), None]
    types = [parse_type(text) for text in (f"ARRAY<{kind}>", f"ROW<a INT, b {kind}>")]
    columns = [
        pa.array([numbers, None, []], arrow_type(types[0])),
        pa.array([{"a": 1, "b": each} for each in numbers[1:4]], arrow_type(types[1])),
    ]

    decoded = decode_rows(
        encode_rows(columns, types).serialized(),
        [Field(id=at, name=f"f{at}", type=each) for at, each in enumerate(types)],
    )
    assert decoded.columns == columns


def test_decoding_gives_the_wanted_columns_in_their_order() -> None:
    columns = [pa.array([1, 2], pa.int32()), pa.array(["a", None]), pa.array([True, False])]
    rows = encode_rows(columns, [f.type for f in fields("INT", "STRING", "BOOLEAN")]).serialized()

    decoded = decode_rows(rows, fields("INT", "STRING", "BOOLEAN"), ["f2", "f0"])

    assert decoded.to_pydict() == {"f2": [True, False], "f0": [1, 2]}


def test_null_without_reserved_space_decodes_to_null() -> None:
    row = bytes.fromhex("00000002" + "0003000000000000" + "00" * 16)

    decoded = decode_rows([row], fields("TIMESTAMP(6)", "DECIMAL(30, 5)"))

    assert decoded.to_pydict() == {"f0": [None], "f1": [None]}


def test_row_without_trailing_padding_decodes() -> None:
    row = serialize_row([pa.array(["a longer text"])], [parse_type("STRING")])

    decoded = decode_rows([row[:-3], row], fields("STRING"))

    assert decoded.to_pydict() == {"f0": ["a longer text"] * 2}


STRING_ROW = serialize_row([pa.array(["a longer text"])], [parse_type("STRING")])
ARRAY_ROW = serialize_row(
    [pa.array([["a longer text"]], arrow_type(parse_type("ARRAY<STRING>")))],
    [parse_type("ARRAY<STRING>")],
)


@pytest.mark.parametrize(
    ("row", "types", "why"),
    [
        (STRING_ROW, ["STRING", "INT"], "number of fields"),
        (STRING_ROW, [], "number of fields"),
        (b"", ["STRING"], "shorter than its arity"),
        (STRING_ROW[:16], ["STRING"], "truncated"),
        (STRING_ROW[:20], ["STRING"], "points outside"),
        (STRING_ROW.replace(b"text", b"te\xff\xff"), ["STRING"], "not UTF-8"),
        (STRING_ROW[:12] + b"\x11" + STRING_ROW[13:], ["DECIMAL(30, 5)"], "points outside|1 to 16"),
        (STRING_ROW[:12] + b"abcdefg\x88", ["STRING"], "longer than 7"),
        (ARRAY_ROW[:44], ["ARRAY<STRING>"], "points outside"),
        (ARRAY_ROW[:20] + b"\xff" * 8 + ARRAY_ROW[28:], ["ARRAY<STRING>"], "damaged"),
        (ARRAY_ROW[:20] + b"\x7f" * 8 + ARRAY_ROW[28:], ["ARRAY<STRING>"], "damaged"),
    ],
)
def test_bytes_that_are_no_such_row_are_corrupt(row: bytes, types: list[str], why: str) -> None:
    with pytest.raises(CorruptTable, match=why):
        decode_rows([row], fields(*types))


def test_unknown_wanted_column_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown column"):
        decode_rows([STRING_ROW], fields("STRING"), ["nope"])


@pytest.mark.parametrize("lengths", [[20_000], [20_000, None, 3], [100] * 50 + [40_000, 33_333]])
@pytest.mark.parametrize("kind", ["STRING", "BYTES"])
def test_few_long_rows_have_the_hash_and_bytes_that_many_have(
    lengths: list[int | None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = [parse_type(kind), parse_type("INT"), parse_type(kind)]
    values = [None if n is None else ("a\u00e9b" * n)[:n] for n in lengths]
    texts = pa.array(values).cast(arrow_type(types[0]))
    numbers = pa.array([None if at % 5 == 1 else at for at in range(len(lengths))], pa.int32())
    columns = [texts, numbers, texts]
    found, rows = hash_rows(columns, types), encode_rows(columns, types)
    monkeypatch.setattr(binary_row, "_LONG_BYTES", 1 << 30)
    monkeypatch.setattr("lakecore.format.row_words._is_long", lambda *_: False)

    assert found.tolist() == hash_rows(columns, types).tolist()
    assert rows.data.tolist() == encode_rows(columns, types).data.tolist()


def test_key_of_a_megabyte_is_hashed_without_a_step_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_row, "_mix", None)

    assert hash_rows([pa.array(["x" * (1 << 20)])], [parse_type("STRING")]).tolist() == [-488189034]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("length", [0, 2, 4, 8, 12, 16, 20, 24])
def test_row_that_is_cut_short_is_damage(length: int, count: int) -> None:
    fields = [Field(id=at, name=f"f{at}", type=parse_type("INT")) for at in range(2)]
    whole = serialize_row([pa.array([at], pa.int32()) for at in range(2)], [f.type for f in fields])
    assert len(whole) == 28

    # What follows a row that is cut short must not be taken for its values.
    with pytest.raises(CorruptTable):
        decode_rows([whole[:length], whole][:count], fields)
    with pytest.raises(CorruptTable):
        decode_rows([whole, whole[:length]][-count:], fields)
