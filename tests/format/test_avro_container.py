from __future__ import annotations

import bz2
import io
import lzma
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard

from lakecore.errors import CorruptTable
from lakecore.format import avro_container as avro
from lakecore.format.avro_container import (
    CODECS,
    Frame,
    assemble,
    compress,
    decompress,
    read_container,
)
from lakecore.memory import process_budget

INNER: dict[str, Any] = {
    "type": "record",
    "name": "inner",
    "fields": [{"name": "_A", "type": "long"}, {"name": "_B", "type": ["null", "bytes"]}],
}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "record",
    "fields": [
        {"name": "_NAME", "type": "string"},
        {"name": "_IN", "type": INNER},
        {"name": "_LAST", "type": "int"},
    ],
}
NULLABLE_INNER = RECORD | {
    "fields": [
        field | {"type": ["null", INNER]} if field["name"] == "_IN" else field
        for field in RECORD["fields"]
    ]
}
ROWS = [
    {"_NAME": "a", "_IN": {"_A": 1, "_B": b"x"}, "_LAST": 7},
    {"_NAME": "b", "_IN": {"_A": 2, "_B": None}, "_LAST": 8},
]
FLAT = [("a", 1, b"x", 7), ("b", 2, None, 8)]


def _container(schema: Any, rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows)
    return out.getvalue()


@pytest.mark.parametrize(
    "schema",
    [RECORD, ["null", RECORD], NULLABLE_INNER, ["null", NULLABLE_INNER]],
    ids=["Java", "the whole nullable", "a record in it nullable", "paimon-rust"],
)
def test_records_come_flat_from_every_writers_schema(schema: Any) -> None:
    found = list(read_container(_container(schema, ROWS), "m", RECORD))

    assert found == FLAT


def test_a_record_that_may_be_null_stays_whole() -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"_NAME": "c", "_IN": None, "_LAST": 9}]

    found = list(read_container(_container(NULLABLE_INNER, rows), "m", NULLABLE_INNER))

    assert found == [(row["_NAME"], row["_IN"], row["_LAST"]) for row in rows]


def test_null_in_place_of_a_record_is_corrupt() -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"_NAME": "c", "_IN": None, "_LAST": 9}]

    with pytest.raises(CorruptTable, match=r"damaged.*path=m"):
        list(read_container(_container(["null", NULLABLE_INNER], rows), "m", RECORD))


def test_container_of_a_damaged_schema_is_corrupt() -> None:
    data = _container(RECORD, ROWS).replace(b'"name": "_NAME"', b'"Fame": "_NAME"')

    with pytest.raises(CorruptTable, match=r"damaged.* path=m "):
        list(read_container(data, "m", RECORD))


def test_container_of_another_type_of_a_field_is_corrupt() -> None:
    def schema(kind: str, part: str) -> dict[str, Any]:
        of = {"type": kind, part: "long"}
        return {"type": "record", "name": "record", "fields": [{"name": "_IN", "type": of}]}

    data = _container(schema("map", "values"), [{"_IN": {"a": 1}}])
    found: list[Any] = list(read_container(data, "m", schema("map", "values")))
    assert found == [{"a": 1}]
    with pytest.raises(CorruptTable, match="path=m"):
        list(read_container(data, "m", schema("array", "items")))


def test_plans_of_few_schemas_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: dict[Any, Any] = {}
    monkeypatch.setattr(avro, "_plans", plans)
    monkeypatch.setattr(avro, "_PLANS_MAX", 2)
    found = []
    for name in ("a", "b", "c", "c"):
        named = RECORD | {"name": name}
        assert list(read_container(_container(named, ROWS), "m", RECORD)) == FLAT
        found.append(len(plans))

    assert found == [1, 2, 1, 1]


SYNC = bytes(16)
BOMB_BYTES = 80 << 20


def framed(codec: str, *blocks: tuple[int, bytes]) -> Frame:
    return Frame(assemble({"avro.codec": codec.encode(), "avro.schema": b"{}"}, SYNC, blocks), "f")


def bomb(codec: str) -> bytes:
    """Some KB that become more than any metadata of their size."""
    zeros = bytes(BOMB_BYTES)
    match codec:
        case "zstandard":
            return zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
        case "deflate":
            packer = zlib.compressobj(9, wbits=-15)
            return packer.compress(zeros) + packer.flush()
        case "bzip2":
            return bz2.compress(zeros)
        case "xz":
            return lzma.compress(zeros)
        case _:
            return pa.Codec("snappy").compress(zeros, asbytes=True) + bytes(4)  # type: ignore[no-any-return]


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_block_comes_back(codec: str) -> None:
    block = b"records of a manifest" * 99

    assert decompress(compress(block, codec), codec) == block
    assert framed(codec, (9, compress(block, codec))).plain_blocks() == [(9, block)]


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "bzip2", "xz", "snappy"])
def test_block_that_becomes_too_large_is_refused_before_it_is(codec: str) -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="decompresses to more than"):
        decompress(bomb(codec), codec, 1 << 20)

    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("blocks", [1, 200])
def test_metadata_is_bounded_in_all_its_blocks_together(blocks: int) -> None:
    size_bytes = (BOMB_BYTES if blocks == 1 else 1 << 20) * 2
    part = zstandard.ZstdCompressor(level=19).compress(bytes(size_bytes))
    frame = framed("zstandard", *[(1, part)] * blocks)

    with pytest.raises(ValueError, match="decompresses to more than"):
        frame.plain_blocks()


@pytest.mark.parametrize("said", [1, 1 << 40])
def test_zstd_frame_that_lies_of_its_size_is_refused(said: int) -> None:
    data = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
    header = b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + said.to_bytes(8, "little")
    size = zstandard.frame_header_size(bytes(data))

    with pytest.raises((ValueError, zstandard.ZstdError)):
        decompress(header + bytes(data[size:]), "zstandard")


def test_flipped_bit_of_a_zstd_block_is_seen() -> None:
    block = bytes(range(256)) * 20
    packed = compress(block, "zstandard")
    for bit in range(0, 8 * len(packed), 7):
        data = bytearray(packed)
        data[bit // 8] ^= 1 << bit % 8
        try:
            found = decompress(bytes(data), "zstandard")
        except (ValueError, zstandard.ZstdError):
            continue
        # The bits of a frame's header that say nothing.
        assert found == block


def test_more_records_than_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="says that it has 1000 records"):
        framed("null", (1_000, b"abc")).plain_blocks()


def test_number_without_an_end_is_refused() -> None:
    with pytest.raises(CorruptTable, match="a number is too long"):
        Frame(b"Obj\x01" + b"\xff" * 100_000, "f")


def test_nothing_stays_leased() -> None:
    framed("null", (1, b"abc")).plain_blocks()

    assert process_budget().used_bytes == 0


def test_metadata_blocks_that_state_their_size_are_read() -> None:
    plain = assemble({"avro.codec": b"null", "avro.schema": b"{}"}, SYNC, [(1, b"x")])
    # Two entries: the number 4 in zigzag; a negative one is followed by the size of the block.
    assert plain[4] == 4
    end = plain.index(bytes([0]) + SYNC)
    sized = plain[:4] + bytes([3, 2 * (end - 5)]) + plain[5:]

    frame = Frame(sized, "f")
    assert frame.metadata == Frame(plain, "f").metadata
    assert frame.plain_blocks() == [(1, b"x")]
