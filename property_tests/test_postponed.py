"""A table with postponed buckets, however it is written, compacted and rescaled, equals a model.

The model holds the visible rows; the postponed changes wait, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lakecore.testing import Model, assert_same_rows
from tests.tables import new_table


@dataclass(frozen=True)
class Step:
    """One step on a table without partitions."""

    verb: str
    keys: tuple[int, ...]
    count: int


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(
            ("postpone", "postpone", "remove", "batch", "compact", "rescale", "overwrite")
        ),
        keys=st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple),
        count=st.integers(1, 4),
    ),
    min_size=1,
    max_size=10,
)


@given(steps=STEPS, engine=st.sampled_from(("deduplicate", "partial-update", "first-row")))
def test_rows_are_those_of_the_model(steps: list[Step], engine: str) -> None:
    table = new_table(
        bucket="-2",
        merge_engine=engine,
        postpone__target_row_num_per_bucket="3",
        postpone__default_bucket_num="2",
    )
    model = Model(table.schema)
    waiting: list[dict[str, object]] = []
    for number, step in enumerate(steps):
        verb = "postpone" if step.verb == "remove" and engine != "deduplicate" else step.verb
        kind = "-D" if verb == "remove" else "+I"
        rows: list[dict[str, object]] = [
            {"id": key, "v": f"{number}.{at}", "_row_kind": kind}
            for at, key in enumerate(step.keys)
        ]
        if verb in {"postpone", "remove"}:
            with table.new_write() as writer:
                writer.write(rows)
                table.commit(writer.prepare_commit())
            waiting += rows
        elif verb == "batch":
            table.write(rows)
            model.write(rows)
        elif verb == "compact":
            table.compact(full=step.count > 2)
            model.write(waiting)
            waiting = []
        elif verb == "overwrite":
            table.overwrite(rows, dynamic=False)
            model.overwrite(rows, dynamic=False)
            waiting = []
        else:
            table.rescale(bucket_num=step.count)
        assert_same_rows(table, model)
