"""Numbers of base 128."""

from __future__ import annotations

import numpy as np
import pytest

from lakecore.format.varints import (
    append_varint,
    decode_zigzags,
    encode_zigzags,
    read_varint,
    unzigzag,
    zigzag,
)

NUMBERS = [0, -1, 1, 63, -64, 64, -65, 300, -300, 2**31, -(2**63), 2**63 - 1]


def written(value: int) -> bytes:
    out = bytearray()
    append_varint(out, zigzag(value) & (2**64 - 1))
    return bytes(out)


def test_numbers_one_by_one_and_together_have_the_same_bytes() -> None:
    content, sizes = encode_zigzags(np.array(NUMBERS))

    assert content.tobytes() == b"".join(map(written, NUMBERS))
    assert sizes.tolist() == [len(written(number)) for number in NUMBERS]
    assert decode_zigzags(content.tobytes()).tolist() == NUMBERS
    assert decode_zigzags(b"").tolist() == []
    assert encode_zigzags(np.zeros(0, np.int64))[0].tobytes() == b""


def test_a_number_is_read_at_its_place() -> None:
    data = b"\x00" + written(-300) + b"\x07"
    number, end = read_varint(data, 1)

    assert (unzigzag(number), end) == (-300, 3)
    assert read_varint(memoryview(data), end) == (7, 4)


def test_numbers_that_do_not_end_are_refused() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)
    with pytest.raises(ValueError, match="64 bits"):
        read_varint(b"\x80" * 11, 0)
    with pytest.raises(ValueError, match="cut short"):
        decode_zigzags(b"\x01\x80")
    with pytest.raises(ValueError, match="64 bits"):
        decode_zigzags(b"\x80" * 11 + b"\x01")
    for last in (2, 0x7F):
        data = b"\x80" * 9 + bytes([last])
        with pytest.raises(ValueError, match="64 bits"):
            read_varint(data, 0)
        with pytest.raises(ValueError, match="64 bits"):
            decode_zigzags(b"\x01" + data + b"\x01")
    assert read_varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
