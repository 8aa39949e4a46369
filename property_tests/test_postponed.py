"""A table with postponed buckets, however it is written, compacted and rescaled, equals a model.

The model holds the visible rows, and the postponed changes in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import held, new_table


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
    visible: dict[int, str] = {}
    waiting: list[tuple[int, str | None]] = []

    def apply(changes: list[tuple[int, str | None]]) -> None:
        for key, value in changes:
            if engine == "first-row":
                visible.setdefault(key, value or "")
            elif value is None:
                visible.pop(key, None)
            else:
                visible[key] = value

    for number, step in enumerate(steps):
        verb = "postpone" if step.verb == "remove" and engine != "deduplicate" else step.verb
        rows = [{"id": key, "v": f"{number}.{at}"} for at, key in enumerate(step.keys)]
        changes: list[tuple[int, str | None]] = [(row["id"], row["v"]) for row in rows]  # type: ignore[misc]
        if verb == "remove":
            rows = [{**row, "_row_kind": "-D"} for row in rows]
            changes = [(key, None) for key, _ in changes]
        if verb in {"postpone", "remove"}:
            with table.new_write() as writer:
                writer.write(rows)
                table.commit(writer.prepare_commit())
            waiting += changes
        elif verb == "batch":
            table.write(rows)
            apply(changes)
        elif verb == "compact":
            table.compact(full=step.count > 2)
            apply(waiting)
            waiting = []
        elif verb == "overwrite":
            table.overwrite(rows, dynamic=False)
            visible, waiting = {}, []
            apply(changes)
        else:
            table.rescale(bucket_num=step.count)
        expected = sorted(f"{key} {value}" for key, value in visible.items())
        assert sorted(filter(None, held(table).split(" | "))) == expected
