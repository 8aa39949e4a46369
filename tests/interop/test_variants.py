"""VARIANT values of Java and lakecore are the same, byte for byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import lakecore as lc
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TEXTS = [
    "null",
    "true",
    "-1",
    "127",
    "128",
    "-32769",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "0.10",
    "-123456789.5",
    "12345678901234567890.123456789",
    "1e3",
    "1.5E-7",
    '""',
    '"é𐐷ﬀ"',
    json.dumps("x" * 64),
    "[]",
    "{}",
    "[1,[2,[3,null]]]",
    json.dumps(list(range(300))),
    '{"b":1,"a":{"b":2,"é":[{"a":3}]}}',
    '{"𐐷":1,"ﬀ":2}',
    json.dumps({f"key{number}": number for number in range(300)}),
    json.dumps({"long": "y" * 70_000}),
]


def test_both_write_the_same_bytes_and_read_those_of_the_other(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, by_java, by_us = peers(limits.JAVA), tmp_path / "d.db" / "java", tmp_path / "d.db" / "us"
    columns = {"k": "INT", "v": "VARIANT"}
    ours = lc.open_table(by_us, create=True, schema=columns)
    theirs = lc.open_table(by_java, create=True, schema=columns)
    ours.write([{"k": key, "v": text} for key, text in enumerate(TEXTS)])
    java.write(by_java, tuple(("+I", [key, text]) for key, text in enumerate(TEXTS)))

    assert theirs.to_polars().sort("k").equals(ours.to_polars().sort("k"))
    assert sorted(java.read(by_us), key=str) == sorted(java.read(by_java), key=str)
    shown = {row[0]: row[1] for row in java.read(by_java)}
    mine = lc.variant_to_json(ours.to_polars().sort("k")["v"]).to_list()
    for key, text in enumerate(mine):
        # Java prints floating-point numbers differently.
        assert json.loads(text) == json.loads(str(shown[key]))


SHAPES = {
    "BIGINT": ["1", "-5000000000", '"text"', "null", "1.5"],
    "STRING": ['"a"', "7", '""'],
    "DOUBLE": ["1e3", "2", "1.5"],
    "DECIMAL(5, 2)": ["1.25", "100000", "7"],
    "BOOLEAN": ["true", "1"],
}
OBJECTS = [
    '{"a":1,"b":["x","y"],"c":{"d":"t"}}',
    '{"a":"text","b":[1,null,"z"],"e":[1,{"f":2}]}',
    '{"b":[],"c":{}}',
    '{"c":{"d":null,"g":true}}',
    "{}",
    "[1,2]",
    "5",
    "null",
]


def fields(**types: object) -> list[dict[str, object]]:
    return [{"id": at, "name": name, "type": kind} for at, (name, kind) in enumerate(types.items())]


@pytest.mark.parametrize("kind", [*SHAPES, "object"])
def test_shredded_values_of_java_are_put_together(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    inner: object = kind
    if kind == "object":
        deeper = {"type": "ROW", "fields": fields(d="STRING")}
        several = {"type": "ARRAY", "element": "STRING"}
        inner = {"type": "ROW", "fields": fields(a="INT", b=several, c=deeper)}
    shape = {"type": "ROW", "fields": fields(v=inner)}
    options = {"parquet.variant.shreddingSchema": json.dumps(shape)}
    table = lc.open_table(path, create=True, schema={"k": "INT", "v": "VARIANT"}, options=options)
    texts = SHAPES.get(kind, OBJECTS)
    given = [*texts, None]
    java.write(path, tuple(("+I", [key, text]) for key, text in enumerate(given)))

    (file,) = table.inspect.files()["file_path"]
    assert "typed_value" in str(pq.ParquetFile(file).schema)
    found = table.to_polars().sort("k")
    mine = lc.variant_to_json(found["v"]).to_list()
    assert mine[-1] is None
    theirs = {row[0]: row[1] for row in java.read(path)}
    for key, text in enumerate(mine[:-1]):
        assert json.loads(text) == json.loads(str(theirs[key])) == json.loads(texts[key])
    again = lc.open_table(tmp_path / "d.db" / "u", create=True, data=table.to_arrow())
    assert again.to_polars().sort("k")["v"].equals(found["v"])
