"""References to BLOB values, byte by byte."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.blob_references import (
    BlobDescriptor,
    BlobView,
    are_references,
    encode_file_list,
    files_of,
    is_descriptor,
    is_view,
)

DESCRIPTOR = BlobDescriptor("file:/t/é.blob", 4, 10)
VIEW = BlobView("db.tä", 3, 1 << 40)


def test_a_descriptor_names_a_file_and_a_place() -> None:
    found = DESCRIPTOR.to_bytes()

    assert found[:9] == b"\x02" + b"BLOBDESC"[::-1]
    assert struct.unpack("<i", found[9:13]) == (15,)
    assert found[13:28].decode() == "file:/t/é.blob"
    assert struct.unpack("<qq", found[28:]) == (4, 10)
    assert BlobDescriptor.from_bytes(found) == DESCRIPTOR
    assert (is_descriptor(found), is_view(found)) == (True, False)


def test_a_descriptor_of_version_1_has_no_magic_number() -> None:
    found = b"\x01" + DESCRIPTOR.to_bytes()[9:]

    assert BlobDescriptor.from_bytes(found) == DESCRIPTOR
    assert not is_descriptor(found)


def test_a_view_names_a_table_a_column_and_a_row() -> None:
    found = VIEW.to_bytes()

    assert found[:9] == b"\x01" + b"BLOBVIEW"[::-1]
    assert found[13:19].decode() == "db.tä"
    assert struct.unpack("<iq", found[19:]) == (3, 1 << 40)
    assert BlobView.from_bytes(found) == VIEW
    assert (is_descriptor(found), is_view(found)) == (False, True)


@pytest.mark.parametrize("kind", [BlobDescriptor, BlobView])
@pytest.mark.parametrize("data", [b"", b"\x01", b"\x03abc", b"plain bytes of a value"])
def test_other_bytes_are_refused(kind: type[BlobDescriptor | BlobView], data: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"are no|is damaged"):
        kind.from_bytes(data)


@pytest.mark.parametrize("whole", [DESCRIPTOR, VIEW])
def test_references_that_end_early_are_refused(whole: BlobDescriptor | BlobView) -> None:
    data = whole.to_bytes()
    for end in range(len(data)):
        with pytest.raises(InvalidRequest, match=r"are no|is damaged"):
            type(whole).from_bytes(data[:end])
    for size in (-1, 1 << 30):
        wrong = data[:9] + struct.pack("<i", size) + data[13:]
        with pytest.raises(InvalidRequest, match="is damaged"):
            type(whole).from_bytes(wrong)


@pytest.mark.parametrize(("uri", "offset", "length"), [("", 0, 1), ("f", -1, 1), ("f", 0, -2)])
def test_a_place_that_no_file_has_is_refused(uri: str, offset: int, length: int) -> None:
    with pytest.raises(InvalidRequest, match="needs a file"):
        BlobDescriptor(uri, offset, length)


def test_references_are_told_from_values() -> None:
    values = pa.array([DESCRIPTOR.to_bytes(), VIEW.to_bytes(), None, b"", b"value"])

    assert are_references(values).to_pylist() == [True, True, None, False, False]


def test_the_files_of_descriptors() -> None:
    old = b"\x01" + BlobDescriptor("x", 1, 2).to_bytes()[9:]
    given = [DESCRIPTOR.to_bytes(), None, BlobDescriptor("file:/t/é.blob", 99, -1).to_bytes(), old]
    assert files_of(pa.chunked_array([given[:2], given[2:]], pa.binary())) == {DESCRIPTOR.uri, "x"}
    assert files_of(pa.array([None, None], pa.binary())) == set()
    with pytest.raises(InvalidRequest, match="no descriptor"):
        files_of(pa.array([b"a value"]))


def test_a_file_list_is_sorted_and_names_each_file_once() -> None:
    found = encode_file_list(
        ["/t/b/x.managed.blob", "/t/a/\0😀.managed.blob", "/t/b/x.managed.blob"]
    )

    payload = found[4:-4]
    texts = [b"/t/a", b"\xc0\x80\xed\xa0\xbd\xed\xb8\x80.managed.blob", b"/t/b", b"x.managed.blob"]
    assert found[:4] == struct.pack(">I", 0x50424C52)
    assert payload == struct.pack(">bi", 1, 2) + b"".join(
        struct.pack(">H", len(text)) + text for text in texts
    )
    assert found[-4:] == struct.pack(">I", zlib.crc32(payload))
