"""What a person is told about the lines of a CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, *flags: str
) -> tuple[object, str]:
    """The exit code of an import of these bytes, and its notes or error."""
    (tmp_path / "f.csv").write_bytes(data)
    given = ["import", "d.t", str(tmp_path / "f.csv"), "-w", str(tmp_path / "w"), "--create"]
    with pytest.raises(SystemExit) as ended:
        main([*given, *flags])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "flags", "said"),
    [
        (b"id,n\n1,2\n3,4,5\n", (), "line=3 values=3 values_of_first_line=2"),
        (b"id,n,\n1,2,\n", (), "a column of the file has no name"),
        (b"id,n\n1,2\n3,x\n", ("--column", "n=INT"), "row=1 type=INT"),
        (b'id,n\n"a\nb",2\n3,x\n', ("--column", "n=INT"), "line=4"),
        (b"id,s\n1,\xe9\n", (), "line=2 column=3 byte=0xe9"),
        (b"id,s\n1,\xe9\n", ("--encoding", "ascii"), "not in this encoding"),
        (b"id,s\n1,2\n", ("--encoding", "nope"), "no such encoding"),
    ],
)
def test_a_bad_file_names_the_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    flags: tuple[str, ...],
    said: str,
) -> None:
    code, shown = imported(tmp_path, capsys, data, *flags)

    assert code == 1
    assert said in shown
    assert "f.csv" in shown or "nope" in shown


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"#c\nid\n1\n", "begin with #"),
        (b"id\n#c\n1\n", "begin with #"),
        (b"id,n\n1,2,\n3,4,\n", "2 of the first lines"),
        (b"id,n\n1,2\n", ""),
    ],
)
def test_what_is_read_like_other_lines_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, note: str
) -> None:
    code, shown = imported(tmp_path, capsys, data)

    assert code == 0
    assert note in shown
    assert bool(note) == ("note:" in shown)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    data = "id,s\n1,é\n".encode(encoding)
    assert imported(tmp_path, capsys, data, "--encoding", encoding)[0] == 0
    with pytest.raises(SystemExit):
        main(["read", "d.t", "-w", str(tmp_path / "w"), "--csv"])

    assert capsys.readouterr().out == "id,s\n1,é\n"
