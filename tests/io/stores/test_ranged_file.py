"""A file that is read by ranges: the bytes are the file's, and small reads share requests."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.io.stores.remote import READ_AHEAD_BYTES, RangedFile

SIZE = 3 * READ_AHEAD_BYTES + 17
BYTES = bytes(range(251)) * (SIZE // 251 + 1)
END = 1_000


class Counted:
    """A file whose last bytes are known, and the ranges that were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.file = RangedFile(self._fetch, BYTES[SIZE - END : SIZE], SIZE)

    def _fetch(self, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return BYTES[start:stop]


@given(
    st.lists(
        st.tuples(st.integers(0, SIZE + 5), st.sampled_from([-1, 0, 1, 700, 70_000, 2 << 20])),
        min_size=1,
        max_size=6,
    )
)
def test_every_read_gives_the_bytes_of_the_file(reads: list[tuple[int, int]]) -> None:
    counted, whole = Counted(), io.BytesIO(BYTES[:SIZE])
    for at, size in reads:
        whole.seek(at)
        assert counted.file.seek(at) == at
        assert counted.file.read(size) == whole.read(size)
        assert counted.file.tell() == max(whole.tell(), at)


def test_small_reads_and_reads_in_sequence_fetch_ahead() -> None:
    counted = Counted()
    counted.file.seek(100)
    assert counted.file.read(10) == BYTES[100:110]
    assert counted.asked == [(100, 110 + READ_AHEAD_BYTES)]
    counted.file.read(READ_AHEAD_BYTES)
    assert len(counted.asked) == 1  # the bytes were there
    counted.file.read(70_000)  # goes on where the fetched bytes ended
    assert counted.asked[1] == (110 + READ_AHEAD_BYTES, 110 + 2 * READ_AHEAD_BYTES + 70_000)

    counted.file.seek(0)
    counted.file.read(70_000)  # a large read elsewhere
    assert counted.asked[2:] == [(0, 70_000)]
    counted.file.seek(-6, io.SEEK_CUR)
    assert counted.file.tell() == 70_000 - 6
    counted.file.seek(-END, io.SEEK_END)
    assert counted.file.read() == BYTES[SIZE - END : SIZE]
    assert len(counted.asked) == 3  # the end was read when the file was opened


def test_a_file_that_has_become_shorter_is_an_error() -> None:
    file = RangedFile(lambda _start, _stop: b"", b"", 10)
    with pytest.raises(OSError, match="ended before byte 0"):
        file.read(1)
