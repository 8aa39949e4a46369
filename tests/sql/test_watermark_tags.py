"""Procedures that find a snapshot: by its watermark, its id or its tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tag_from_a_watermark_and_spark_rollback(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"n": "INT"})
    for number in range(3):
        table.write({"n": [number]}, watermark=100 * number)
    found = catalog.sql("CALL sys.create_tag_from_watermark('d.t', 'late', 100, '1 d')")
    name, snapshot_id, _, watermark = found.fetchall()[0]
    assert (name, snapshot_id, watermark) == ("late", 3, 200)
    assert [tag.name for tag in table.tags()] == ["late"]
    with pytest.raises(lc.NotFound, match="larger watermark"):
        catalog.sql("CALL sys.create_tag_from_watermark('d.t', 'x', 200)")
    with pytest.raises(lc.InvalidRequest, match="one of version"):
        catalog.sql("CALL sys.rollback(table => 'd.t', version => 1, tag => 'late')")
    catalog.sql("CALL sys.rollback(table => 'd.t', version => 'late')")
    assert table.count() == 3
    catalog.sql("CALL sys.rollback(table => 'd.t', snapshot => 2)")
    assert table.count() == 2
    catalog.sql("CALL sys.rollback(table => 'd.t', version => 1)")
    assert table.count() == 1
