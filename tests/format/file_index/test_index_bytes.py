"""Every index type, byte for byte as Java Paimon stores it, and what is asked of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.file_index.bitmap import BLOCK_BYTES, BitmapIndex, BitmapWriter
from lakecore.format.file_index.bloom_filter import (
    BloomFilterWriter,
    filter_size,
    hash_numbers,
    hash_texts,
    may_hold,
)
from lakecore.format.file_index.coded import int_at, stored_values, value_form
from lakecore.format.file_index.container import StoredIndex, decode_container, encode_container
from lakecore.format.file_index.range_bitmap import (
    BsiIndex,
    BsiWriter,
    RangeBitmapIndex,
    RangeBitmapWriter,
    slices_of,
)
from lakecore.model.types import arrow_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.format.file_index.coded import ValueForm

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"
TYPES = {"a": "INT", "b": "STRING", "c": "BIGINT", "d": "DOUBLE"}
FPP = {("file_indexes", "b"): 0.01}


def form_of(kind: str) -> ValueForm:
    form = value_form(parse_type(kind))
    assert form is not None
    return form


def column(kind: str, values: list[Any]) -> pa.Array:
    return pa.array(values, arrow_type(parse_type(kind)))


def stored(kind: str, value: Any) -> Any:
    return stored_values(column(kind, [value]), form_of(kind))[0].as_py()


def golden_indexes() -> list[tuple[str, str, StoredIndex, pa.Array]]:
    found = []
    for path in sorted(FIXTURES.glob("*file_indexes/table*/bucket-0/*.index")):
        rows = pq.read_table(str(path).removesuffix(".index"))
        for index in decode_container(path.read_bytes()):
            values = rows.column(index.column).combine_chunks()
            name = f"{path.parts[-4]}/{path.parts[-3]}-{index.column}-{index.index_type}"
            found.append((name, path.parts[-4], index, values))
    return found


GOLDEN = golden_indexes()


def written(index_type: str, form: ValueForm, values: pa.Array, fpp: float = 0.1) -> bytes:
    writers: dict[str, Callable[[], Any]] = {
        "bloom-filter": lambda: BloomFilterWriter(form, 100, fpp),
        "bitmap": lambda: BitmapWriter(form, 2, BLOCK_BYTES),
        "range-bitmap": lambda: RangeBitmapWriter(form, BLOCK_BYTES),
        "bsi": lambda: BsiWriter(form),
    }
    writer = writers[index_type]()
    half = len(values) // 2
    writer.add(values[:half])
    writer.add(values[half:])
    body: bytes = writer.finish()
    return body


def test_fixtures_hold_every_type_of_index() -> None:
    types = {index.index_type for _, _, index, _ in GOLDEN}

    assert types == {"bloom-filter", "bitmap", "range-bitmap", "bsi"}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden[0])
def test_index_is_written_as_java_writes_it(
    golden: tuple[str, str, StoredIndex, pa.Array],
) -> None:
    _, scenario, index, values = golden

    body = written(
        index.index_type,
        form_of(TYPES[index.column]),
        values,
        FPP.get((scenario, index.column), 0.1),
    )

    assert body == index.body


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*file_indexes/table*/bucket-0/*.index")))
def test_container_is_written_as_java_writes_it(path: Path) -> None:
    data = path.read_bytes()

    assert encode_container(decode_container(data)) == data


def test_texts_are_hashed_by_xxh64() -> None:
    texts = pa.array([b"", b"a", b"abc", b"x" * 31, b"y" * 77], pa.large_binary())

    hashes = [int(each) & (1 << 64) - 1 for each in hash_texts(texts.slice(0, 3))]
    assert hashes == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0x44BC2CF5AD770999]
    longer = [b"xxhash", b"Nobody inspects the spammish repetition"]
    hashes = [int(each) & (1 << 64) - 1 for each in hash_texts(pa.array(longer, pa.large_binary()))]
    assert hashes == [0x32DD38952C4BC720, 0xFBCEA83C8A378BF1]
    each_alone = [hash_texts(texts.slice(at, 1))[0] for at in range(len(texts))]
    assert hash_texts(texts).tolist() == each_alone


def test_numbers_are_hashed_by_thomas_wangs_mix() -> None:
    def mix(key: int) -> int:
        def wrap(number: int) -> int:
            return (number + (1 << 63)) % (1 << 64) - (1 << 63)

        key = wrap(~key + (key << 21))
        key ^= key >> 24
        key = wrap(key + (key << 3) + (key << 8))
        key ^= key >> 14
        key = wrap(key + (key << 2) + (key << 4))
        key ^= key >> 28
        return wrap(key + (key << 31))

    numbers = [0, 1, -1, 1 << 62, -(1 << 63), 123_456_789]
    assert hash_numbers(pa.array(numbers).to_numpy()).tolist() == [mix(each) for each in numbers]


@pytest.mark.parametrize(
    ("items", "fpp", "size"), [(100, 0.1, (480, 3)), (100, 0.01, (960, 7)), (1 << 30, 1e-9, None)]
)
def test_size_of_a_bloom_filter(items: int, fpp: float, size: tuple[int, int] | None) -> None:
    assert filter_size(items, fpp) == size


VALUES: dict[str, list[Any]] = {
    "TINYINT": [1, -128, None, 127, 1, 5],
    "SMALLINT": [1, -300, None, 300, 1, 5],
    "INT": [None, 7, 7, -7, 1 << 30, 0],
    "BIGINT": [5, None, -5, (1 << 63) - 1, -(1 << 62), 0],
    "FLOAT": [0.0, -0.0, 1.5, -1.5, None, math.inf, -math.inf],
    "DOUBLE": [0.0, -0.0, 1.5, -1.5, None, math.inf, -math.inf],
    "BOOLEAN": [True, False, None, True],
    "STRING": ["", "a", "aa", None, "é", "a", "z" * 50, "zz"],
}


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_bitmap_knows_the_rows_of_every_value(kind: str) -> None:
    values, form = VALUES[kind], form_of(kind)
    for version in (1, 2):
        for block_bytes in (64, BLOCK_BYTES):
            writer = BitmapWriter(form, version, block_bytes)
            writer.add(column(kind, values))
            index = BitmapIndex(writer.finish(), form)

            assert index.row_count == len(values)
            assert set(index.nulls()) == {n for n, v in enumerate(values) if v is None}
            assert set(index.not_null()) == {n for n, v in enumerate(values) if v is not None}
            for value in {v for v in values if v is not None}:
                same = stored(kind, value)
                rows = {
                    n for n, v in enumerate(values) if v is not None and stored(kind, v) == same
                }
                assert set(index.rows_of([same])) == rows
            for absent in (b"~",) if form.is_text else (99,):
                assert not index.rows_of([absent])


@pytest.mark.parametrize(("block_bytes", "blocks"), [(27, 4), (28, 2), (39, 2), (40, 2), (52, 1)])
def test_blocks_of_a_bitmap_are_as_full_as_they_may_be(block_bytes: int, blocks: int) -> None:
    writer = BitmapWriter(form_of("INT"), 2, block_bytes)
    writer.add(column("INT", [1, 2, 3, 4]))

    assert int_at(writer.finish(), 10) == blocks


@pytest.mark.parametrize("kind", sorted(VALUES))
@pytest.mark.parametrize("chunk_bytes", [0, 12, BLOCK_BYTES])
def test_range_bitmap_knows_the_rows_of_every_range(kind: str, chunk_bytes: int) -> None:
    values, form = VALUES[kind], form_of(kind)
    writer = RangeBitmapWriter(form, chunk_bytes)
    writer.add(column(kind, values))
    index = RangeBitmapIndex(writer.finish(), form)
    keys = [None if value is None else stored(kind, value) for value in values]
    between = [b"", b"a0", b"~"] if form.is_text else [-(10**6), -6, -1, 2, 10**6]
    assert set(index.nulls()) == {n for n, v in enumerate(values) if v is None}
    for probe in [*(key for key in keys if key is not None), *between]:
        below = {n for n, key in enumerate(keys) if key is not None and key < probe}
        equal = {n for n, key in enumerate(keys) if key == probe}

        assert set(index.rows_of([probe])) == equal
        assert set(index.below(probe, included=False)) == below
        assert set(index.below(probe, included=True)) == below | equal


def test_bsi_knows_the_rows_of_every_range() -> None:
    values, form = [*VALUES["BIGINT"], 5, 6], form_of("BIGINT")
    writer = BsiWriter(form)
    writer.add(column("BIGINT", values))
    index = BsiIndex(writer.finish())
    assert set(index.nulls()) == {1}
    for probe in [*(v for v in values if v is not None), 1, -1, -6, 1 << 61, -(1 << 63)]:
        below = {n for n, v in enumerate(values) if v is not None and v < probe}
        equal = {n for n, v in enumerate(values) if v == probe}

        assert set(index.rows_of([probe])) == equal
        assert set(index.below(probe, included=False)) == below
        assert set(index.below(probe, included=True)) == below | equal


@pytest.mark.parametrize("sign", [1, -1])
def test_bsi_knows_the_rows_below_and_above_all_others(sign: int) -> None:
    values, form = [sign * each for each in (5, 7, 9)], form_of("BIGINT")
    writer = BsiWriter(form)
    writer.add(column("BIGINT", values))
    index = BsiIndex(writer.finish())
    for probe in (-100, -9, -6, -5, -1, 0, 1, 5, 8, 9, 100):
        assert set(index.rows_of([probe])) == {n for n, v in enumerate(values) if v == probe}
        below = {n for n, v in enumerate(values) if v < probe}
        assert set(index.below(probe, included=False)) == below


def test_slices_of_numbers_from_a_least_one_on() -> None:
    numbers = [5, 9, 7]
    slices = replace(slices_of(np.arange(3), np.array(numbers) - 5, 3), least=5)
    for probe in range(-1, 20):
        assert set(slices.equal(probe)) == {n for n, v in enumerate(numbers) if v == probe}
        assert set(slices.below(probe)) == {n for n, v in enumerate(numbers) if v < probe}


def test_bloom_filter_is_asked_for_no_values() -> None:
    body = written("bloom-filter", form_of("INT"), column("INT", [1]))

    for kind in ("INT", "STRING"):
        assert may_hold(body, column(kind, []), form_of(kind)).tolist() == []


def test_bsi_refuses_the_number_without_an_absolute_value() -> None:
    with pytest.raises(InvalidRequest, match="bsi"):
        BsiWriter(form_of("BIGINT")).add(pa.array([-(1 << 63)]))


@pytest.mark.parametrize("at", [0, 6])  # of the index, and of its slices
def test_bsi_of_an_unknown_version_is_refused(at: int) -> None:
    body = bytearray(written("bsi", form_of("BIGINT"), pa.array([5, 6])))
    body[at] = 9

    with pytest.raises(CorruptTable, match="unknown version"):
        BsiIndex(bytes(body))


def test_columns_of_nulls_and_of_no_rows() -> None:
    for rows in ([], [None, None]):
        values = pa.array(rows, pa.int64())
        form = form_of("BIGINT")
        for index_type, read in (
            ("bitmap", lambda body: BitmapIndex(body, form_of("BIGINT"))),
            ("range-bitmap", lambda body: RangeBitmapIndex(body, form_of("BIGINT"))),
            ("bsi", BsiIndex),
        ):
            index: Any = read(written(index_type, form, values))
            assert (len(index.nulls()), len(index.not_null())) == (len(rows), 0)
            assert not index.rows_of([1])
        assert not may_hold(written("bloom-filter", form, values), pa.array([1]), form).any()


def test_bloom_filter_holds_what_was_added_in_small_and_large_filters() -> None:
    form = form_of("STRING")
    texts = pa.array([f"value {number}" for number in range(2_000)])
    for items in (100, 2_000, 1_000_000):
        writer = BloomFilterWriter(form, items, 0.01)
        writer.add(texts)
        body = writer.finish()

        assert may_hold(body, texts, form).all()
        absent = pa.array([f"other {number}" for number in range(2_000)])
        assert items == 100 or may_hold(body, absent, form).mean() < 0.03


@pytest.mark.parametrize(("items", "large"), [(100_000, False), (1_000_000, True)])
def test_large_filter_is_built_in_its_final_bytes(items: int, *, large: bool) -> None:
    writer = BloomFilterWriter(form_of("INT"), items, 0.1)

    assert (writer._set is None) is large  # noqa: SLF001


def test_names_are_modified_utf_8() -> None:
    indexes = (StoredIndex(column="a\x00é😀[k]", index_type="bitmap", body=None),)

    data = encode_container(indexes)
    assert decode_container(data) == indexes
    assert b"\xc0\x80" in data
    assert b"\xed\xa0\xbd\xed\xb8\x80" in data


def test_damage_is_corrupt_and_never_another_error() -> None:
    for _, _, index, _ in GOLDEN:
        body = index.body or b""
        form = form_of(TYPES[index.column])
        probe = b"s0" if form.is_text else 3
        for cut in range(0, len(body), max(1, len(body) // 40)):
            for damaged in (body[:cut], body[:cut] + b"\xff" * 4 + body[cut + 4 :]):
                try:
                    if index.index_type == "bitmap":
                        BitmapIndex(damaged, form).rows_of([probe])
                    elif index.index_type == "range-bitmap":
                        RangeBitmapIndex(damaged, form).below(probe, included=True)
                    elif index.index_type == "bsi":
                        BsiIndex(damaged).not_null()
                    else:
                        value = pa.array(["s0"]) if form.is_text else pa.array([3], pa.int32())
                        may_hold(damaged, value, form)
                except CorruptTable:
                    continue
    data = encode_container([index for _, _, index, _ in GOLDEN])
    for cut in range(0, 200, 3):
        for damaged in (data[:cut], data[:cut] + b"\xff\xff\xff\xff" + data[cut + 4 :]):
            try:
                decode_container(damaged)
            except CorruptTable:
                continue
