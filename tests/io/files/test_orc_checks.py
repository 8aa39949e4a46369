"""ORC files that are damaged are refused before Arrow's decoder sees them, which they could end."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc

from lakecore.errors import CorruptTable, LakecoreError
from lakecore.format.orc_tail import read_footer, read_stripe_footer
from lakecore.io.files import orc_files
from lakecore.io.files.data_files import WriteFormat, open_writer, read_file
from lakecore.io.files.file_format import Checks
from lakecore.io.files.orc_files import check_orc
from lakecore.io.stores.local import LocalStore
from lakecore.model.types import Field, parse_type

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [
    Field(id=0, name="a", type=parse_type("BIGINT")),
    Field(id=1, name="b", type=parse_type("STRING")),
]
TABLE = pa.table({"a": range(3_000), "b": [f"text {at % 70}" for at in range(3_000)]})

MUTATE = """
import random, sys
from pathlib import Path
from lakecore.errors import LakecoreError
from lakecore.io.files.data_files import read_file
from lakecore.io.stores.local import LocalStore
from tests.io.files.test_orc_checks import FIELDS
path = Path(sys.argv[1])
intact, chance, refused = path.read_bytes(), random.Random(7), 0
for number in range(150):
    data = bytearray(intact)
    at = chance.randrange(len(data))
    data[at : at + 512] = bytes(len(data[at : at + 512])) if number % 2 else chance.randbytes(1)
    path.write_bytes(data)
    try:
        list(read_file(LocalStore(), str(path), fields=FIELDS))
    except LakecoreError:
        refused += 1
print(refused)
"""


def ours(path: Path) -> None:
    writer = open_writer(LocalStore(), str(path), FIELDS, WriteFormat(format="orc"))
    writer.write(TABLE)
    writer.close()


def foreign(path: Path, codec: str) -> None:
    orc.write_table(TABLE, path, compression=codec, stripe_size=1 << 14)


def with_large_footer(path: Path, codec: str) -> None:
    orc.write_table(pa.table({f"column {at}": [at] for at in range(100)}), path, compression=codec)


def test_other_readers_see_no_checksums(tmp_path: Path) -> None:
    ours(tmp_path / "a.orc")

    assert orc.read_table(tmp_path / "a.orc").to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
def test_whole_file_of_another_program_is_read(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    foreign(path, codec)
    check_orc(LocalStore(), str(path), Checks.ALWAYS)

    rows = pa.Table.from_batches(read_file(LocalStore(), str(path), fields=FIELDS))
    assert rows.to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("part", ["head", "stripe", "trailer", "tail"])
def test_any_changed_byte_of_ours_is_refused(part: str, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    ours(path)
    data = bytearray(path.read_bytes())
    at = {"head": 1, "stripe": 300, "trailer": data.index(b"LakeCRC<") + 9, "tail": -40}[part]
    data[at] ^= 4
    path.write_bytes(data)

    with pytest.raises(CorruptTable, match=r"checksum.*path=.*a\.orc"):
        list(read_file(LocalStore(), str(path), fields=FIELDS))


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd"])
@pytest.mark.parametrize("part", ["head", "end", "cut", "short"])
def test_broken_structure_of_another_program_is_refused(
    part: str, codec: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.orc"
    foreign(path, codec)
    data = bytearray(path.read_bytes())
    match part:
        case "head":
            data[:512] = bytes(512)
        case "end":
            data[-60:] = bytes(60)
        case "cut":
            del data[-10:]
        case _:
            del data[10:]
    path.write_bytes(data)

    with pytest.raises(CorruptTable, match=r"path=.*a\.orc"):
        check_orc(LocalStore(), str(path))
    with pytest.raises(LakecoreError):
        list(read_file(LocalStore(), str(path), fields=FIELDS))


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd"])
def test_tail_may_be_as_large_as_the_limit(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sizes = tmp_path / "a.orc", list[int]()

    def noted(data: bytes) -> Any:
        sizes.append(len(data))
        return read_footer(data)

    with_large_footer(path, codec)
    monkeypatch.setattr(orc_files, "read_footer", noted)
    check_orc(LocalStore(), str(path), Checks.ALWAYS)
    monkeypatch.setattr(orc_files, "_FOOTER_BYTES_MAX", sizes[0])
    check_orc(LocalStore(), str(path), Checks.ALWAYS)
    monkeypatch.setattr(orc_files, "_FOOTER_BYTES_MAX", sizes[0] - 1)
    if codec != "uncompressed":
        with pytest.raises(CorruptTable, match=r"path=.*a\.orc"):
            check_orc(LocalStore(), str(path), Checks.ALWAYS)


def test_frame_of_zstd_that_states_a_huge_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    with_large_footer(path, "zstd")
    magic, size = b"\x28\xb5\x2f\xfd", b"\xe0" + (1 << 62).to_bytes(8, "little")
    first, *frames = path.read_bytes().split(magic)
    path.write_bytes(magic.join([first, *(size + frame[len(size) :] for frame in frames)]))

    with pytest.raises(CorruptTable, match="a chunk of the tail becomes too large"):
        check_orc(LocalStore(), str(path))


@pytest.mark.parametrize("shift", [-1, 1, 1 << 20])
def test_stripe_outside_the_file_is_refused(
    shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.orc"
    foreign(path, "zlib")

    def shifted(data: bytes) -> Any:
        parts, types, rows = read_footer(data)
        last = parts[-1]
        return [*parts[:-1], replace(last, offset=last.offset + shift)], types, rows

    monkeypatch.setattr(orc_files, "read_footer", shifted)
    with pytest.raises(CorruptTable, match="a stripe is outside the file, or overlaps another"):
        check_orc(LocalStore(), str(path))


@pytest.mark.parametrize(("longer", "columns"), [(1 << 20, 0), (0, 1)])
def test_stripe_of_other_streams_or_columns_is_refused(
    longer: int, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.orc"
    foreign(path, "zlib")

    def changed(data: bytes) -> tuple[list[int], int]:
        lengths, count = read_stripe_footer(data)
        return [*lengths, longer], count + columns

    monkeypatch.setattr(orc_files, "read_stripe_footer", changed)
    with pytest.raises(CorruptTable, match="a stripe has other streams or columns"):
        check_orc(LocalStore(), str(path))


@pytest.mark.parametrize("header", [bytes(3), b"\xff" * 3])
def test_chunk_of_an_impossible_length_is_refused(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    foreign(path, "zlib")
    data = path.read_bytes()
    path.write_bytes(data[:3] + header + data[6:])

    with pytest.raises(CorruptTable, match="a compressed chunk has an impossible length"):
        check_orc(LocalStore(), str(path))


def test_file_read_without_its_checksums_counts_as_unchecked(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    ours(path)
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)

    check_orc(LocalStore(), str(path), Checks.NEVER)
    with pytest.raises(CorruptTable, match="checksum"):
        check_orc(LocalStore(), str(path))


def test_no_mutation_of_ours_reaches_the_decoder(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    ours(path)
    done = subprocess.run(
        [sys.executable, "-c", MUTATE, str(path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 148
