"""A table whose partitions are written, rescaled, compacted and overwritten equals a plain dict."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import held, new_table, reopened, with_options

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
    model: dict[str, dict[int, str]] = {part: {} for part in PARTS}
    counts: dict[str, int] = {}
    for number, step in enumerate(steps):
        own = model[step.part]
        if step.verb in {"write", "delete", "overwrite"}:
            # A writer must use the bucket count of the partition.
            with_options(table, bucket=str(counts.setdefault(step.part, 2)))
            table = reopened(table)
        rows = [{"id": key, "v": f"{number}", "p": step.part} for key in step.keys]
        if step.verb == "write":
            table.write(rows)
            own.update(dict.fromkeys(step.keys, f"{number}"))
        elif step.verb == "delete":
            table.write([{**row, "_row_kind": "-D"} for row in rows])
            for key in step.keys:
                own.pop(key, None)
        elif step.verb == "overwrite":
            with_options(table, bucket=str(step.count))
            table = reopened(table)
            table.overwrite(rows, {"p": step.part})
            model[step.part] = dict.fromkeys(step.keys, f"{number}")
            counts[step.part] = step.count
        elif step.verb == "compact":
            table.compact(full=step.count > 2)
        elif step.part in counts and table.inspect.files().height:
            table.rescale(bucket_num=step.count, where=f"p = '{step.part}'")
            counts[step.part] = step.count

    expected = sorted(
        f"{key} {value} {part}" for part, own in model.items() for key, value in own.items()
    )
    assert sorted(filter(None, held(table).split(" | "))) == expected
