"""The dataset face: what pyarrow's methods, Polars and DuckDB do with it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.frames.arrow_dataset import SourceDataset
from lakecore.plan.predicate import Compare, Op
from tests.frames.dataset_doors import GIVE_ROWS, REFUSE
from tests.frames.made_rows import HeldRows, MadeRows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BELOW_3 = pc.field("id") < 3


def test_the_methods_of_a_dataset_give_the_rows() -> None:
    dataset = SourceDataset(MadeRows(10, batch_rows=4))

    assert dataset.count_rows() == 10
    assert dataset.count_rows(filter=BELOW_3) == 3
    assert dataset.to_table().num_rows == 10
    assert dataset.to_table(columns=["half"], filter=BELOW_3)["half"].to_pylist() == [0, 0.5, 1]
    assert [batch.num_rows for batch in dataset.to_batches()] == [4, 4, 2]
    assert dataset.head(5).num_rows == 5
    assert dataset.head(0).num_rows == 0
    assert dataset.filter(BELOW_3).filter(pc.field("id") > 0).count_rows() == 2
    assert dataset.filter(BELOW_3).count_rows(filter=pc.field("id") > 0) == 2
    assert dataset.scanner(columns=["id"]).projected_schema.names == ["id"]
    assert dataset.schema == MadeRows(0).schema


def test_a_filter_on_other_columns_is_applied_and_pushed() -> None:
    source = MadeRows(10, batch_rows=4)
    found = SourceDataset(source).to_table(columns=["text"], filter=pc.field("id") == 4)

    assert found.to_pylist() == [{"text": "row 4"}]
    assert source.last.columns == ["text", "id"]
    assert source.last.predicate == Compare("id", Op.EQ, pa.scalar(4))


def test_a_filter_that_no_predicate_says_is_exact() -> None:
    rows = pa.table({"row": [{"x": 1}, {"x": 2}, None], "id": [1, 2, 3]})
    dataset = SourceDataset(HeldRows(rows))

    assert dataset.to_table(["id"], filter=pc.field("row", "x") == 2)["id"].to_pylist() == [2]
    odd = pc.bit_wise_and(pc.field("id"), 1) == 1
    assert dataset.to_table(["id"], filter=odd)["id"].to_pylist() == [1, 3]


def test_a_filter_that_does_not_fit_is_refused() -> None:
    dataset = SourceDataset(MadeRows(10))

    with pytest.raises(InvalidRequest, match="does not fit the types"):
        dataset.to_table(filter=pc.field("id") == "a")


def test_every_type_comes_as_it_is(all_types: pa.Table) -> None:
    assert SourceDataset(HeldRows(all_types)).to_table().equals(all_types)


def test_head_closes_the_source() -> None:
    source = MadeRows(5_000_000)
    SourceDataset(source).head(3)

    assert source.last.closed
    assert source.last.rows == source.batch_rows


def test_polars_scans_the_dataset() -> None:
    source = MadeRows(10, batch_rows=4)
    frame = pl.scan_pyarrow_dataset(SourceDataset(source))

    assert frame.filter(pl.col("id") == 4).select("text").collect().item() == "row 4"
    assert source.last.predicate == Compare("id", Op.EQ, pa.scalar(4))


def test_a_dataset_crosses_process_borders() -> None:
    dataset = pickle.loads(pickle.dumps(SourceDataset(MadeRows(10)).filter(BELOW_3)))

    assert dataset.count_rows() == 3


def test_another_schema_is_what_batches_are_cast_to() -> None:
    day = pa.schema([("id", pa.int64()), ("day", pa.timestamp("us"))])
    rows = MadeRows(3).batches(["id", "day"])
    source = HeldRows(pa.Table.from_batches(list(rows)))
    found = SourceDataset(source).replace_schema(day).to_table(filter=pc.field("id") > 0)

    assert found.schema == day
    assert found["day"][0].as_py().day == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda dataset: dataset.get_fragments(),
        lambda dataset: dataset.take([1]),
        lambda dataset: dataset.join(dataset, "id"),
        lambda dataset: dataset.join_asof(dataset, "id", "id", 1),
        lambda dataset: dataset.sort_by("id"),
        lambda dataset: dataset.to_table(columns={"x": pc.field("id") + 1}),
    ],
)
def test_what_a_merged_dataset_cannot_do_is_refused(
    call: Callable[[SourceDataset], object],
) -> None:
    with pytest.raises(Unsupported):
        call(SourceDataset(MadeRows(10)))


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidRequest, match="column=nope"):
        SourceDataset(MadeRows(10)).to_table(filter=pc.field("nope") == 1)
    with pytest.raises(InvalidRequest, match="column=nope"):
        SourceDataset(MadeRows(10)).to_table(columns=["nope"])


def test_files_as_they_are_go_to_the_reader_of_arrow(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
    pq.write_table(rows.append_column("_KEY_id", rows["id"]), tmp_path / "0.parquet")
    dataset = SourceDataset(HeldRows(rows, [str(tmp_path / "0.parquet")]))

    assert dataset.to_table().equals(rows)
    assert dataset.to_table(["s"], filter=pc.field("id") > 2).to_pylist() == [{"s": "c"}]
    assert SourceDataset(HeldRows(rows, [])).count_rows() == 0


X = pc.field("x")


@pytest.mark.parametrize(
    "condition",
    [X > 100.0, ~(X <= 100.0), ~(X > 100.0), X != 1.0, ~(X == 1.0), pc.is_nan(X), X.isin([0.0])],
    ids=str,
)
def test_floats_that_no_bounds_hold_are_found_in_files(
    condition: pc.Expression, tmp_path: Path
) -> None:
    nan = float("nan")
    rows = pa.table({"id": range(8), "x": [1.0, nan, nan, nan, 0.0, -0.0, None, 3.0]})
    pq.write_table(rows, tmp_path / "0.parquet", row_group_size=2)
    dataset = SourceDataset(HeldRows(rows, [str(tmp_path / "0.parquet")]))

    assert dataset.to_table(["id"], filter=condition) == rows.filter(condition).select(["id"])


@pytest.fixture(scope="module")
def doors() -> dict[str, dict[str, object]]:
    """What came out of each door, in a process of its own: one that crashes has no line."""
    code = "from tests.frames import dataset_doors; dataset_doors.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["door"]: line for line in lines}
    found["the process"] = {"rows": done.returncode, "message": done.stderr}
    return found


@pytest.mark.parametrize("name", GIVE_ROWS)
def test_door_gives_its_rows(doors: dict[str, dict[str, object]], name: str) -> None:
    assert doors[name] == {"door": name, "rows": GIVE_ROWS[name][0]}


@pytest.mark.parametrize("name", REFUSE)
def test_door_is_closed_by_an_error(doors: dict[str, dict[str, object]], name: str) -> None:
    message = str(doors[name].get("message"))

    assert re.search("InvalidRequest|Unsupported", str(doors[name].get("error"))) or re.search(
        r"pyarrow's own functions cannot read the rows that lakecore merges; give them", message
    )


def test_process_ends_well_after_all_doors(doors: dict[str, dict[str, object]]) -> None:
    assert doors["the process"] == {"rows": 0, "message": ""}
