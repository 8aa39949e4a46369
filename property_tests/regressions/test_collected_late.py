"""A list that comes late in a sequence group is collected in order of arrival, as in Paimon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path


def test_a_list_that_is_older_than_its_group_is_collected_last(tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"k": "INT NOT NULL", "g": "INT", "a": "ARRAY<INT>"},
        primary_keys=["k"],
        options={
            "bucket": "1",
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "a",
            "fields.a.aggregate-function": "collect",
        },
    )
    table.write([{"k": 1, "g": 5, "a": [1]}, {"k": 1, "g": 9, "a": [2]}])
    table.write([{"k": 1, "g": 7, "a": [3]}])

    assert table.to_arrow(["g", "a"]).to_pylist() == [{"g": 9, "a": [1, 2, 3]}]
