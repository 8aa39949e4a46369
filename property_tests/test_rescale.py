"""A table whose partitions are written, rescaled, compacted and overwritten equals the model."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lakecore.testing import Model, assert_same_rows
from tests.tables import new_table, reopened, with_options

PARTS = "ab"


@dataclass(frozen=True)
class Step:
    """One step: rows to write, or a number of buckets for a partition."""

    verb: str
    part: str
    keys: tuple[int, ...]
    count: int


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(("write", "write", "delete", "rescale", "compact", "overwrite")),
        part=st.sampled_from(PARTS),
        keys=st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True).map(tuple),
        count=st.integers(1, 5),
    ),
    min_size=1,
    max_size=10,
)


@given(steps=STEPS, vectors=st.booleans())
def test_rows_stay_whatever_is_rescaled(steps: list[Step], *, vectors: bool) -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING"}
    table = new_table(
        columns,
        keys=["id", "p"],
        partitions=["p"],
        bucket="2",
        deletion_vectors__enabled=str(vectors).lower(),
        num_sorted_run__compaction_trigger="3",
    )
    model = Model(table.schema)
    counts: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.verb in {"write", "delete", "overwrite"}:
            # A writer must use the bucket count of the partition.
            with_options(table, bucket=str(counts.setdefault(step.part, 2)))
            table = reopened(table)
        rows = [{"id": key, "v": f"{number}", "p": step.part} for key in step.keys]
        if step.verb == "write":
            table.write(rows)
            model.write(rows)
        elif step.verb == "delete":
            table.write([{**row, "_row_kind": "-D"} for row in rows])
            model.write([{**row, "_row_kind": "-D"} for row in rows])
        elif step.verb == "overwrite":
            with_options(table, bucket=str(step.count))
            table = reopened(table)
            table.overwrite(rows, {"p": step.part})
            model.overwrite(rows, {"p": step.part})
            counts[step.part] = step.count
        elif step.verb == "compact":
            table.compact(full=step.count > 2)
        elif step.part in counts and table.inspect.files().height:
            table.rescale(bucket_num=step.count, where=f"p = '{step.part}'")
            counts[step.part] = step.count

    assert_same_rows(table, model)
