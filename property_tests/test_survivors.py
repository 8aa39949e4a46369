"""Rows of merged tables that DuckDB scans by bits are those that lakecore's merge returns.

Whatever was written, deleted and compacted, with any rule that decides which row survives, the
scan returns the rows of a merge in windows, with any condition on values, for bits that were just
computed and for cached ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.frames.duckdb_face import Merges, relation, scannable_files
from lakecore.io.stores.local import LocalStore
from lakecore.table.reads.readable import rows_of
from lakecore.table.reads.time_travel import Travel
from lakecore.table.splits import survivors
from tests.tables import new_table

if TYPE_CHECKING:
    import pytest

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "k": "STRING NOT NULL", "n": "INT", "v": "STRING"}
KEYS = st.tuples(st.integers(-3, 9), st.sampled_from(["", "a", "é"]))
ROWS = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=8)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), ROWS),
        st.tuples(st.just("delete"), st.integers(-3, 9)),
        st.tuples(st.just("compact"), st.booleans()),
    ),
    min_size=2,
    max_size=7,
)
RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "sequence": {"sequence__field": "n"},
    "descending": {"sequence__field": "n", "sequence__field__sort_order": "descending"},
    "ignored": {"ignore_delete": "true"},
    "look-ups": {"changelog_producer": "lookup"},
    "vectors": {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"},
}
"""Options of a table, as `new_table` takes them."""
CONDITIONS = ["true", "n > 1", "v LIKE '%1'", "n IS NULL", "CAST(v AS INT) >= 0"]


def played(path: str, deeds: Any, options: dict[str, Any]) -> Table:
    """A table after these deeds. The texts of replaced rows are no numbers."""
    fixed: dict[str, Any] = {"bucket": "1", "write_only": "true"}
    table = new_table(COLUMNS, keys=["id", "k"], store=LocalStore(), path=path, **fixed, **options)
    for number, (deed, given_) in enumerate(deeds):
        if deed == "write":
            table.write(
                [
                    {"id": key[0], "k": key[1], "n": n, "v": f"{number}1"}
                    for key, n in given_.items()
                ]
            )
        elif deed == "delete" and options.get("ignore_delete") != "true":
            table.delete(pl.col("id") == given_)
        elif deed == "compact":
            table.copy({"write-only": "false"}).compact(full=given_)
    return table


def _shown(rows: pl.DataFrame) -> Counter[str]:
    return Counter(repr(row) for row in rows.rows())


@given(deeds=DEEDS, rule=st.sampled_from([*RULES]), condition=st.sampled_from(CONDITIONS))
@settings(max_examples=max(2, settings().max_examples // 10))
def test_scanned_rows_are_those_of_the_merge(
    deeds: Any, rule: str, condition: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("survivors")
    table = played(str(folder / "t"), deeds, RULES[rule])
    expected = pl.DataFrame(table.to_arrow())
    survivors.forget()
    source = rows_of(table, Travel())
    files = scannable_files(source, merges=Merges.COMPUTED)

    assert files is not None
    for _ in range(2):
        found = relation(source, duckdb.connect()).filter(condition).pl()
        wanted = duckdb.connect().from_arrow(expected.to_arrow()).filter(condition).pl()
        assert _shown(found) == _shown(wanted)
    again = scannable_files(rows_of(table, Travel()), merges=Merges.KNOWN)
    assert again == files
