"""A guarded read of rows that cannot be cast, next to reads of tables in which they can be.

The owner of a row that cannot be cast does not matter to the model, but its place in the order of
its key does: the model tries several numbers. A guarded read shows what each of them shows, or it
fails because a key that cannot be judged may be visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakecore as lc
from lakecore.rows.read_rules_json import StatedRules
from property_tests.profile import sized
from tests.guarded_tables import Access, equal, with_rules
from tests.table.file_reader.test_late_casts import evolved
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = {
    "id": "INT NOT NULL",
    "part": "INT NOT NULL",
    "owner": "STRING",
    "n": "STRING",
    "v": "STRING",
}
ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {"sequence__field": "n"},
    "partial-update": {"fields__n__sequence_group": "owner"},
    "aggregation": {"sequence__field": "n"},
}
NUMBERS = ("-5", "5", "50")
"""Values for a value that cannot be cast: below, among and above all others."""
_ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2),
        "part": st.integers(0, 1),
        "owner": st.sampled_from(["ann", "bob", None]),
        "n": st.one_of(st.integers(0, 9).map(str), st.just("bad")),
        "v": st.sampled_from(["1", "x"]),
    }
)
ANN = equal("owner", "ann")
NOBODY = ANN.replace('"EQUAL"', '"IS_NULL"').replace('["ann"]', "[]")
OWNERS = {ANN: "ann", NOBODY: None}
_COMMITS = st.lists(
    st.lists(_ROW, min_size=1, max_size=4, unique_by=lambda row: (row["id"], row["part"])),
    min_size=2,
    max_size=4,
)


def _read(
    engine: str, row_filter: str, commits: Iterable[Iterable[dict[str, Any]]]
) -> list[Any] | None:
    """What the filter shows of a table with these rows; None if the read fails."""
    options = ENGINES[engine] | {"bucket": "1", "merge_engine": engine, "write_only": "true"}
    table = new_table(COLUMNS, keys=["id", "part"], **options)
    for rows in commits:
        table.write(list(rows))
    changes = [lc.SchemaChange.update_column_type(name, "INT") for name in ("n", "v")]
    table = evolved(table, *changes).copy({"query-auth.enabled": "true"})
    try:
        shown = with_rules(table, Access(StatedRules((row_filter,)))).to_polars()
    except lc.InvalidRequest:
        return None
    return sorted(shown.drop("n").rows(), key=str)


@pytest.mark.parametrize("engine", ENGINES)
@given(row_filter=st.sampled_from([*OWNERS]), commits=_COMMITS)
@settings(max_examples=sized(60, quick=8), deadline=None)
def test_rows_that_cannot_be_cast_show_no_wrong_winner(
    engine: str, row_filter: str, commits: list[list[dict[str, Any]]]
) -> None:
    seen = _read(engine, row_filter, commits)
    bad = {(row["id"], row["part"]) for rows in commits for row in rows if row["n"] == "bad"}
    others = [[row for row in rows if (row["id"], row["part"]) not in bad] for rows in commits]
    castable = [
        [[row | {"n": number} if row["n"] == "bad" else row for row in rows] for rows in commits]
        for number in NUMBERS
    ]
    if seen is not None:
        assert [_read(engine, row_filter, each) for each in castable] == [seen] * len(castable)
    elif _read(engine, row_filter, [rows for rows in others if rows]) is not None:
        # A folded value may also be null.
        owners = {
            row["owner"] for rows in commits for row in rows if (row["id"], row["part"]) in bad
        }
        assert OWNERS[row_filter] in owners | {None}
