"""The marks of a move name the other table by a path from their own."""

from __future__ import annotations

import pytest

from lakecore.io.dropped_mark import moved_from, moved_to


@pytest.mark.parametrize(
    ("source", "target", "path"),
    [
        ("w/a.db/t", "w/a.db/s", "../t"),
        ("w/a.db/t", "w/b.db/t", "../../a.db/t"),
        ("/w/x/a.db/t", "/w/x/b.db/s/", "../../a.db/t"),
        ("w/t/branch/b", "w/t/branch/c", "../b"),
        ("t", "u/t", "../../t"),
    ],
)
def test_the_path_leads_from_one_table_to_the_other(source: str, target: str, path: str) -> None:
    assert moved_from(source, target) == f"from {path}".encode()
    assert moved_to(source, target) == f"to {path}".encode()
