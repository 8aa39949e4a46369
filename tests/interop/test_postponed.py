"""Rows whose buckets are postponed: nobody reads them before a compaction has dealt them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop


def test_postponed_rows_are_hidden_and_their_changes_refused(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    case = Case(
        name="postponed",
        columns=(
            Column("id", parse_type("INT NOT NULL")),
            Column("v", parse_type("STRING")),
        ),
        commits=((("+I", [1, "a"]), ("+I", [2, "b"])),),
        primary_keys=("id",),
        options={"bucket": "-2"},
    )
    java, path = peers(limits.JAVA), tmp_path / "t"
    java.create(path, case)
    for commit in case.commits:
        java.write(path, commit)

    table = lc.open_table(path)
    assert table.inspect.files()["record_count"].to_list() == [2]
    assert table.to_arrow().num_rows == len(java.read(path)) == 0
    assert table.explain().files_kept == 0
    for refused in (table.changes, table.compact, lambda: table.write([{"id": 3, "v": "c"}])):
        with pytest.raises(lc.errors.Unsupported, match="bucket"):
            refused()
