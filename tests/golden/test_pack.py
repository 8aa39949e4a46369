"""The archive of golden tables in the wheel holds the fixtures as they are."""

from __future__ import annotations

import tarfile

from lakecore.testing.suite import ARCHIVE
from tests.golden.pack import contents


def test_archive_is_up_to_date() -> None:
    with tarfile.open(ARCHIVE) as archive:
        packed = {
            member.name: file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }

    assert packed == dict(contents()), "write it again: python -m tests.golden.pack"
    assert ARCHIVE.stat().st_size < 300_000
