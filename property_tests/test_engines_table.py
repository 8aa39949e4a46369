"""Tables of every merge engine: what a history of writes leaves is what the model makes of it.

Nothing of how rows lie may show: budgets small enough to spill, files of a row, row groups of two,
batches of three, any number of buckets, any format.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.io.files.file_format import WriteFormat
from lakecore.model.rows import ROW_KIND
from lakecore.testing.aggregates import Refused
from lakecore.testing.merging import Version, versions_of
from lakecore.testing.model import Model
from lakecore.testing.strategies import ENGINES, Merging, kinds_of, mergings
from lakecore.testing.table_draws import FILES
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.table.handle import Table

Drawn = tuple[str, dict[str, Any]]

BUDGETS = st.sampled_from([1 << 30, 1000, 200])
BUCKETS = st.sampled_from(
    [
        {"bucket": "1"},
        {"bucket": "3"},
        {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    ]
)


@st.composite
def tables(draw: st.DrawFn, engine: str) -> Merging:
    """Tables, and rows of the kinds that they take back or ignore."""
    merging = draw(mergings(engine))
    options = {**merging.shape.options, **draw(FILES), **draw(BUCKETS), "write-only": "true"}
    taken = kinds_of(options)
    kinds = tuple(kind for kind in (*merging.kinds, *taken) if kind in taken)
    return replace(merging, kinds=kinds, shape=replace(merging.shape, options=options))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of two rows, batches of three, spilled runs merged by threes."""
    in_twos = partial(WriteFormat, row_group_rows=2)
    monkeypatch.setattr("lakecore.table.run_writer.file_shape.WriteFormat", in_twos)
    monkeypatch.setattr("lakecore.table.sections.windows._BATCH_ROWS_MAX", 3)
    monkeypatch.setattr("lakecore.table.writes.bucket_buffer._PIECE_ROWS", 3)
    monkeypatch.setattr("lakecore.table.writes.bucket_buffer.RUNS_MERGED", 3)
    monkeypatch.setattr("lakecore.table.writes.write.UNLEASED_BYTES", 0)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_table_holds_what_its_history_comes_to(engine: str, data: st.DataObject) -> None:
    merging = data.draw(tables(engine), "table")
    options: dict[str, Any] = merging.shape.options
    table = new_table(
        merging.shape.columns,
        keys=merging.shape.primary_keys,
        budget_bytes=data.draw(BUDGETS, "budget"),
        **options,
    )
    model = Model(table.schema)
    snapshots: dict[int, int] = {}
    batches = st.lists(merging.rows(5), min_size=1, max_size=6)
    for drawn in data.draw(st.lists(batches, min_size=1, max_size=3), "commits"):
        arrow = [_arrow(batch, table) for batch in drawn]
        try:
            model.write(pa.concat_tables(arrow))
        except Refused:
            with pytest.raises(InvalidRequest):
                _commit(table, arrow)
            return
        # Rows that are all ignored are no commit.
        snapshots |= dict.fromkeys(_commit(table, arrow), model.latest)
    names = st.sampled_from(table.schema.names)
    for snapshot_id, of_model in snapshots.items():
        columns = data.draw(st.lists(names, unique=True), "columns") or table.schema.names
        known = data.draw(st.one_of(st.none(), names), "a column not to be null")
        read = partial(
            table.to_arrow,
            columns=columns,
            where=None if known is None else pl.col(known).is_not_null(),
            snapshot_id=snapshot_id,
        )
        try:
            # First rows stay hidden until they are compacted.
            wanted = versions_of(model.rows(0 if engine == "first-row" else of_model))
        except Refused:
            with pytest.raises(InvalidRequest):
                read(columns=table.schema.names, where=None)
            return
        shown = [row for row in wanted if known is None or row.values[known] is not None]

        assert table.count(snapshot_id=snapshot_id) == len(wanted)
        assert _bag(merging, versions_of(read()), columns) == _bag(merging, shown, columns)
        assert _merged(table, snapshot_id, read) == _bag_of(read())


def _merged(table: Table, snapshot_id: int, read: Callable[[], pa.Table]) -> list[str]:
    """The rows that a read finds if it takes no file for one that lakecore flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakecore.plan.splits.is_named_by_lakecore", lambda _: False)
        assert table.explain(snapshot_id=snapshot_id).raw_files == 0
        return _bag_of(read())


def _bag_of(rows: pa.Table) -> list[str]:
    """Rows as texts, because NaN is not equal to itself."""
    return sorted(map(repr, rows.to_pylist()))


def _arrow(rows: Sequence[Drawn], table: Table) -> pa.Table:
    """Rows to write, with their kinds."""
    return Model(table.schema).arrow([{ROW_KIND: kind, **values} for kind, values in rows])


def _versions(arrow: pa.Table) -> list[Version]:
    """The same rows, in the values that Arrow gives out."""
    kinds = arrow.column(ROW_KIND).to_pylist()
    plain = versions_of(arrow.drop_columns([ROW_KIND]))
    return [replace(row, kind=kind) for row, kind in zip(plain, kinds, strict=True)]


def _commit(table: Table, batches: Sequence[pa.Table]) -> tuple[int, ...]:
    """The snapshots that the batches become."""
    with table.new_write() as writer:
        for batch in batches:
            writer.write(batch)
        return table.commit(writer.prepare_commit()).snapshot_ids


def _bag(merging: Merging, rows: Sequence[Version], columns: Sequence[str]) -> list[Any]:
    """Rows without what Paimon leaves open, in no order."""
    return sorted(
        ([merging.comparable(name, row.values[name]) for name in columns] for row in rows), key=repr
    )
