"""VARIANT values and their JSON texts."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable
from lakecore.format.variant import (
    json_of_variant,
    json_of_variants,
    variant_of_json,
    whole_variants,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NO_NAMES = bytes([1, 0, 0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", "00"),
        ("true", "04"),
        ("false", "08"),
        ("1", "0c01"),
        ("-129", "107fff"),
        ("70000", "1470110100"),
        ("5000000000", "1800f2052a01000000"),
        ("1.50", "200296000000"),
        ("1e3", "1c0000000000408f40"),
        ('"ab"', "096162"),
        (f'"{"x" * 63}"', "fd" + "78" * 63),
        (f'"{"x" * 64}"', "4040000000" + "78" * 64),
        ("[1,2]", "03020002040c010c02"),
    ],
)
def test_bytes_of_json(text: str, value: str) -> None:
    assert variant_of_json(text) == (bytes.fromhex(value), NO_NAMES)


@pytest.mark.parametrize("digits", [39, 4_300, 4_301, 100_000])
@pytest.mark.parametrize("form", ["{}", "-{}", "[{}]", '{{"a":{}}}', "{}.5"])
def test_number_of_many_digits_is_a_double(form: str, digits: int) -> None:
    text = form.format("9" * digits)
    found = json_of_variant(*variant_of_json(text))
    number = "1e+39" if digits == 39 else '"Infinity"'
    assert found.replace('"-Infinity"', '-"Infinity"').replace(".5", "") == form.replace(
        ".5", ""
    ).format(number)


@pytest.mark.parametrize(
    ("places", "kind"), [(1, "decimal"), (37, "decimal"), (38, "decimal"), (39, "double")]
)
def test_small_number_is_a_decimal_of_at_most_38_places(places: int, kind: str) -> None:
    value, _ = variant_of_json(f"0.{'0' * (places - 1)}1")

    assert ("double" if value[0] == 7 << 2 else "decimal") == kind


@pytest.mark.parametrize("text", ["x" * 300, "x" * 70_000])
@pytest.mark.parametrize("count", [1, 255, 256])
def test_long_lists_and_objects_come_back(text: str, count: int) -> None:
    values = json.dumps([text, *range(count - 1)], separators=(",", ":"))
    names = {f"{each:03}": each for each in range(count - 1)}
    fields = json.dumps({**names, "x": text}, separators=(",", ":"))

    assert json_of_variant(*variant_of_json(values)) == values
    assert json_of_variant(*variant_of_json(fields)) == fields


@pytest.mark.parametrize("size_bytes", [1, 2, 4, 8])
def test_integer_takes_as_few_bytes_as_it_fits_into(size_bytes: int) -> None:
    bound = 1 << 8 * size_bytes - 1
    for number in (bound - 1, -bound):
        value, _ = variant_of_json(str(number))
        assert value[1:] == number.to_bytes(size_bytes, "little", signed=True)
    for number in (bound, -bound - 1):
        value, _ = variant_of_json(str(number))
        assert len(value) > 1 + size_bytes


@pytest.mark.parametrize(("count", "size_bytes"), [(0, 1), (255, 1), (256, 4), (70_000, 4)])
def test_number_of_parts_takes_one_byte_or_four(count: int, size_bytes: int) -> None:
    fields = ",".join(f'"{each}":null' for each in range(count))

    values, _ = variant_of_json(f"[{','.join(['null'] * count)}]")
    assert int.from_bytes(values[1 : 1 + size_bytes], "little") == count
    assert (values[0] >> 4 & 1) == (size_bytes == 4)
    objects, _ = variant_of_json(f"{{{fields}}}")
    assert int.from_bytes(objects[1 : 1 + size_bytes], "little") == count
    assert (objects[0] >> 6 & 1) == (size_bytes == 4)


def test_names_are_numbered_as_they_come_and_sorted_in_objects() -> None:
    value, metadata = variant_of_json('{"b":1,"a":2}')

    assert metadata == b"\x01\x02\x00\x01\x02ba"
    assert value == bytes.fromhex("02020100020004") + bytes.fromhex("0c010c02")
    assert json_of_variant(value, metadata) == '{"a":2,"b":1}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (bytes([11 << 2]) + struct.pack("<i", 19_723), '"2024-01-01"'),
        (bytes([12 << 2]) + struct.pack("<q", -1), '"1969-12-31 23:59:59.999999+00:00"'),
        (bytes([13 << 2]) + struct.pack("<q", 1_500_000), '"1970-01-01 00:00:01.5"'),
        (bytes([18 << 2]) + struct.pack("<q", 1), '"1970-01-01 00:00:00.000000001+00:00"'),
        (bytes([14 << 2]) + struct.pack("<f", 0.1), "0.100000001"),
        (bytes([7 << 2]) + struct.pack("<d", float("nan")), '"NaN"'),
        (bytes([7 << 2]) + struct.pack("<d", float("-inf")), '"-Infinity"'),
        (bytes([15 << 2, 2, 0, 0, 0, 1, 2]), '"AQI="'),
        (bytes([20 << 2]) + bytes(16), '"00000000-0000-0000-0000-000000000000"'),
        (bytes([10 << 2, 38]) + (10**37).to_bytes(16, "little"), "0.1"),
    ],
)
def test_types_that_json_lacks_are_texts_or_numbers(value: bytes, text: str) -> None:
    assert json_of_variant(value, NO_NAMES) == text


@pytest.mark.parametrize(
    ("value", "metadata"),
    [
        (b"", NO_NAMES),
        (b"\x0c", NO_NAMES),
        (b"\xfc", NO_NAMES),
        (b"\x0d12", NO_NAMES),
        (bytes.fromhex("020100000200"), NO_NAMES),
        (bytes.fromhex("0200"), NO_NAMES),  # no offset of the end, which an empty object has, too
        (bytes.fromhex("0300"), NO_NAMES),  # and an empty list
        (b"\x00", b""),
        (b"\x00", b"\x02\x00\x00"),
        (b"\x00", b"\x01\x01\x00\x05a"),
        (bytes([3, 1, 0, 0]) * 3, NO_NAMES),
    ],
)
def test_other_bytes_are_damage(value: bytes, metadata: bytes) -> None:
    with pytest.raises(CorruptTable, match="not a VARIANT"):
        json_of_variant(value, metadata)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ('{"a":1,"a":2}', "a name twice"),
        ("NaN", "NaN is not JSON"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
        ('"\\ud800"', "surrogates not allowed"),
    ],
)
def test_texts_that_are_not_json_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        variant_of_json(text)


def test_a_table_takes_json_and_gives_two_binaries() -> None:
    table = lc.open_table(
        "memory://variant/t",
        create=True,
        schema={"k": "INT", "v": "VARIANT", "w": "ARRAY<VARIANT>"},
    )
    table.write(pl.DataFrame({"k": [1, 2], "v": ['{"a":[1]}', None], "w": [["1", None], []]}))
    table.write(table.to_arrow())

    read = table.to_polars()
    assert lc.variant_to_json(read["v"]).to_list() == ['{"a":[1]}', None] * 2
    assert lc.variant_to_json(table.to_arrow()["v"]).to_pylist() == ['{"a":[1]}', None] * 2
    assert lc.variant_to_json(read["w"].explode(empty_as_null=False).drop_nulls()).to_list() == [
        "1",
        "1",
    ]
    with pytest.raises(lc.InvalidRequest, match=r"the text is not JSON: .*column=v .*row=1"):
        table.write(pl.DataFrame({"k": [1, 2], "v": ["1", "{"], "w": None}))
    with pytest.raises(lc.InvalidRequest, match="structs of `value` and `metadata`"):
        lc.variant_to_json(pa.array([1]))


def test_a_variant_is_a_column_of_parquet_files_and_no_key() -> None:
    for options in ({"file.format": "orc"}, {"file.format": "avro"}):
        with pytest.raises(lc.InvalidRequest, match="only Parquet files store VARIANT"):
            lc.open_table(
                "memory://variant/o", create=True, schema={"v": "VARIANT"}, options=options
            )
    with pytest.raises(lc.LakecoreError):
        lc.open_table(
            "memory://variant/p", create=True, schema={"v": "VARIANT NOT NULL"}, primary_keys=["v"]
        )


def test_sql_inserts_json_text_and_variants() -> None:
    session = lc.connect("memory://variant-sql", create=True)
    session.sql("CREATE DATABASE d")
    session.sql("CREATE TABLE d.t (k INT, v VARIANT)")
    session.sql("""INSERT INTO d.t VALUES (1, '{"a":1}'), (2, NULL)""")
    session.sql("INSERT INTO d.t SELECT 3, v FROM d.t WHERE k = 1")

    read = session.get_table("d.t").to_polars().sort("k")
    assert lc.variant_to_json(read["v"]).to_list() == ['{"a":1}', None, '{"a":1}']


def test_parts_of_shredded_columns_are_put_together() -> None:
    value, names = variant_of_json('{"a":1,"z":[true]}')
    part = pa.struct([("value", pa.binary()), ("typed_value", pa.int32())])
    kind = pa.struct(
        [
            ("metadata", pa.binary()),
            ("value", pa.binary()),
            ("typed_value", pa.struct([("b", part), ("t", pa.struct([("value", pa.binary())]))])),
        ]
    )
    none = {"value": None, "typed_value": None}
    rows = [
        {
            "metadata": names,
            "value": value,
            "typed_value": {"b": none | {"typed_value": 7}, "t": {"value": b"\x04"}},
        },
        {"metadata": names, "value": value, "typed_value": None},
        None,
        {"metadata": names, "value": None, "typed_value": {"b": none, "t": {"value": None}}},
    ]
    whole = whole_variants(pa.array(rows, kind), "f")

    texts = ['{"a":1,"b":7,"t":true,"z":[true]}', '{"a":1,"z":[true]}', None, "{}"]
    assert json_of_variants(whole).to_pylist() == texts
    damaged = (
        {"metadata": names, "value": None, "typed_value": None},
        {"metadata": names, "value": b"\x04", "typed_value": {"b": none, "t": {"value": None}}},
        {"metadata": b"", "value": value, "typed_value": None},
        {"metadata": NO_NAMES, "value": value, "typed_value": None},
    )
    for row in damaged:
        with pytest.raises(CorruptTable, match="a shredded VARIANT is damaged"):
            whole_variants(pa.array([row], kind), "f")


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (pa.array([1.5], pa.float32()), "1.5"),
        (pa.array([0.1], pa.float64()), "0.1"),
        (pa.array([19_723], pa.date32()), '"2024-01-01"'),
        (pa.array([1_500_000], pa.timestamp("us")), '"1970-01-01 00:00:01.5"'),
        (pa.array([-1], pa.timestamp("us", "UTC")), '"1969-12-31 23:59:59.999999+00:00"'),
        (pa.array([b"\x01\x02"], pa.large_binary()), '"AQI="'),
    ],
)
def test_typed_values_of_shredded_columns(typed: pa.Array, text: str) -> None:
    parts = {"metadata": pa.array([NO_NAMES]), "value": pa.nulls(1, pa.binary())}
    column = pa.StructArray.from_arrays([*parts.values(), typed], [*parts, "typed_value"])

    assert json_of_variants(whole_variants(column, "f")).to_pylist() == [text]


def test_parts_of_every_size_stay_as_they_are() -> None:
    text = f'["ab","{"x" * 70}",1,-129,70000,5000000000,1.50,1e+300,true,null,"",[],{{}}]'
    value, names = variant_of_json(f'{{"a":{text}}}')
    parts = {"metadata": pa.array([names]), "value": pa.array([value])}
    column = pa.StructArray.from_arrays([*parts.values()], [*parts])

    whole = whole_variants(column, "f")
    assert whole.field("value").to_pylist() == [value]
    assert json_of_variants(whole).to_pylist() == [json_of_variant(value, names)]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_shredded_lists_are_put_together(kind: Callable[[pa.DataType], pa.DataType]) -> None:
    element = pa.struct([("value", pa.binary()), ("typed_value", pa.int32())])
    column = pa.struct(
        [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", kind(element))]
    )
    one, other = {"value": None, "typed_value": 7}, {"value": b"\x04", "typed_value": None}
    rows: list[dict[str, Any]] = [
        {"metadata": NO_NAMES, "value": None, "typed_value": [one, other]},
        {"metadata": NO_NAMES, "value": None, "typed_value": []},
        {"metadata": NO_NAMES, "value": b"\x08", "typed_value": None},
    ]

    whole = whole_variants(pa.array(rows, column), "f")
    assert json_of_variants(whole).to_pylist() == ["[7,true]", "[]", "false"]
    missing = [{"value": None, "typed_value": None}]
    with pytest.raises(CorruptTable, match="a shredded VARIANT is damaged"):
        whole_variants(pa.array([rows[0] | {"typed_value": missing}], column), "f")


def test_a_type_that_java_does_not_shred_is_refused() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("typed_value", pa.duration("s"))])

    with pytest.raises(lc.Unsupported, match=r"shredded by this type is not read.*duration"):
        whole_variants(pa.array([], kind), "f")
