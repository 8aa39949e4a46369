from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.varints import encode_java_text


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b"\0\0"),
        ("az", b"\0\2az"),
        ("\0", b"\0\2\xc0\x80"),
        ("\u00e9", b"\0\2\xc3\xa9"),
        ("\U0001f600", b"\0\6\xed\xa0\xbd\xed\xb8\x80"),
    ],
)
def test_text_has_its_length_and_modified_utf_8(text: str, data: bytes) -> None:
    assert encode_java_text(text, "a name") == data


def test_text_whose_length_takes_more_than_two_bytes_is_refused() -> None:
    assert len(encode_java_text("x" * 65_535, "a name")) == 65_537
    with pytest.raises(InvalidRequest, match=r"a name is too long.* bytes=65536"):
        encode_java_text("x" * 65_536, "a name")
