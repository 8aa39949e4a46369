"""`$binlog` of a table whose catalog filters and masks its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from lakecore.errors import Unsupported
from lakecore.rows.read_rules_json import StatedRules
from tests.guarded_tables import COLUMNS, NULL, STARS, Access, equal, guarded_table, with_rules
from tests.tables import new_table, put

if TYPE_CHECKING:
    import lakecore as lc


def binlog(table: lc.Table, **options: str) -> Any:
    stated = {key.replace("_", "-"): text for key, text in options.items()}
    return table.copy(stated).inspect.system_table("binlog")


def updated(access: Access, changes: str, **options: Any) -> lc.Table:
    table = new_table(COLUMNS, query_auth__enabled="true", changelog_producer="input", **options)
    put(table, "1 ann 1111 10 | 2 bob 2222 20 | 3 ann 3333 30")
    put(table, changes)
    return with_rules(table, access)


BOTH = (
    "-U 1 ann 1111 10 | +U 1 ann 1112 11 | -U 2 bob 2222 20 | +U 2 bob 2223 21 | -D 3 ann 3333 30"
)
SEEN = [
    {"rowkind": "+U", "id": [1, 1], "card": ["*ann", "*ann"], "n": [10, 11]},
    {"rowkind": "-D", "id": [3], "card": ["*ann"], "n": [30]},
]
NAMES = ["rowkind", "id", "card", "n"]


def test_state_is_filtered_and_masked() -> None:
    found = binlog(guarded_table(Access())).to_polars().sort("id").to_dicts()

    assert found[0] == {"rowkind": "+I", "id": [1], "owner": ["ann"], "card": ["*ann"], "n": [10]}
    assert [row["id"] for row in found] == [[1], [3], [4]]
    keyless = binlog(guarded_table(Access(), keys=())).to_arrow(["id", "card"])
    assert sorted(map(str, keyless.to_pylist())) == [
        str({"id": [number], "card": ["*ann"]}) for number in (1, 3, 4)
    ]


def test_updates_are_packed_from_the_rows_that_are_shown() -> None:
    access = Access()
    log = binlog(updated(access, BOTH), incremental_between="1,2")

    assert log.to_polars(NAMES).sort("rowkind").to_dicts() == SEEN
    assert log.count() == 2
    assert log.to_polars(limit=1).height == 1
    # Neither the filter nor the mask needs to be selected, and conditions see masked values.
    assert sorted(log.to_arrow("n").column("n").to_pylist()) == [[10, 11], [30]]
    assert log.to_polars(["id"], pl.col("card").list.contains("1111")).is_empty()
    access.stated = StatedRules((), {"id": NULL, "card": STARS})
    assert log.to_polars(NAMES).sort("rowkind").to_dicts()[0] == {
        "rowkind": "+U",
        "id": [None, None],
        "card": ["*ann", "*ann"],
        "n": [10, 11],
    }


def test_stream_is_filtered_and_masked() -> None:
    log = binlog(updated(Access(), BOTH))
    frames = [frame.collect() for _, frame in log.stream(from_snapshot=2, until="latest")]

    assert pl.concat(frames).select(NAMES).sort("rowkind").to_dicts() == SEEN


@pytest.mark.parametrize(
    "changes",
    [
        "-U 1 ann 1111 10 | +U 1 bob 1111 10",
        "-U 2 bob 2222 20 | +U 2 ann 2222 20",
        # The rows that are shown are neighbours, but belong to two updates.
        "-U 1 ann 1111 10 | +U 1 bob 1111 10 | -U 2 bob 2222 20 | +U 2 ann 2222 20",
    ],
)
def test_update_with_one_hidden_row_is_refused(changes: str) -> None:
    table = updated(Access(), changes, bucket="1")
    with pytest.raises(Unsupported, match=r"one row of an update.*audit_log"):
        binlog(table, incremental_between="1,2").to_arrow()
    with pytest.raises(Unsupported, match="one row of an update"):
        binlog(table, incremental_between="1,2").to_arrow(["n"])
    stream = binlog(table).stream(from_snapshot=2, until="latest")
    with pytest.raises(Unsupported, match="one row of an update"):
        [frame.collect() for _, frame in stream]


def test_unknown_rule_is_refused() -> None:
    access = Access(StatedRules(("{}",)))
    with pytest.raises(Unsupported, match="rule"):
        binlog(updated(access, BOTH)).to_duckdb()
    access.stated = StatedRules((equal("owner", "ann"),), {"rowkind": NULL})
    with pytest.raises(Unsupported, match="rule"):
        binlog(updated(access, BOTH)).to_arrow()
