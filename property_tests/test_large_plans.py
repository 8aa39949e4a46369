"""A plan of a large table, made from columns, is the plan from the objects of its files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.format.binary_row import serialize_row
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.io import history as history_module
from lakecore.model.files import DELETION_VECTORS, CommitMessage, IndexFile, VectorRange
from lakecore.model.types import parse_type
from lakecore.plan.predicate import Compare, Op
from lakecore.table.reads.scan import LargeSplits, ScanContext, plan_scan
from property_tests.profile import sized
from tests.tables import commit_unstored, files, new_table, reopened

if TYPE_CHECKING:
    from lakecore.model.files import DataFile
    from lakecore.table.handle import Table
    from lakecore.table.reads.scan import ScanPlan

(FILE,) = files("L0 a-z")
COLUMNS = {"pt": "INT NOT NULL", "a": "INT NOT NULL", "b": "INT NOT NULL"}
INT = parse_type("INT NOT NULL")
OPTIONS = [
    {},
    {"deletion_vectors__enabled": "true"},
    {"merge_engine": "first-row"},
    {"merge_engine": "partial-update", "scan__plan_sort_partition": "true"},
]


def _row(*values: int) -> bytes:
    return serialize_row([pa.array([value], pa.int32()) for value in values], [INT] * len(values))


@st.composite
def _file(draw: st.DrawFn, number: int) -> DataFile:
    low, high = sorted(draw(st.tuples(*[st.tuples(*[st.integers(-2, 9)] * 2)] * 2)))
    first = draw(st.integers(0, 30))
    marked = draw(st.booleans())
    return replace(
        FILE,
        name=f"data-{number}-lc{number}.parquet" if marked else f"data-{number}-{number}.parquet",
        level=draw(st.sampled_from([0, 0, 4, 5, 5, 5])),
        size_bytes=draw(st.integers(1, 120)),
        key_min=_row(*low),
        key_max=_row(*high),
        sequence_min=first,
        sequence_max=first + draw(st.integers(0, 5)),
        delete_row_count=draw(st.sampled_from([None, 0, 0, 0, 0, 0, 3])),
    )


@st.composite
def _messages(draw: st.DrawFn, *, keyed: bool) -> list[CommitMessage]:
    places = st.tuples(st.integers(-1, 2), st.integers(0, 1), st.just(2))
    if keyed:
        places |= st.tuples(st.integers(-1, 2), st.just(POSTPONE_BUCKET), st.just(-2))
    messages = []
    for number in range(draw(st.integers(1, 8))):
        pt, bucket, total = draw(places)
        own = [draw(_file(10 * number + each)) for each in range(draw(st.integers(1, 7)))]
        vectors = [
            VectorRange(data_file=file.name, offset=1, length=9)
            for file in own
            if keyed and draw(st.booleans())
        ]
        index = IndexFile(
            index_type=DELETION_VECTORS,
            name=f"index-{number}",
            size_bytes=9,
            row_count=1,
            vectors=tuple(vectors),
        )
        messages.append(
            CommitMessage(
                partition=_row(pt),
                bucket=bucket,
                total_buckets=total,
                new_files=tuple(own),
                new_index_files=(index,) if vectors else (),
            )
        )
    return messages


def _plan(
    table: Table, predicate: Compare | None, without: frozenset[bytes], small: int
) -> ScanPlan:
    own = reopened(table).context
    scan = ScanContext(
        history=own.history,
        schema=own.schema,
        options=own.options,
        partitions=own.partitions,
        layout=own.layout,
    )
    with patch.object(history_module, "_SMALL_ENTRIES", small):
        return plan_scan(scan, own.history.latest_snapshot(), predicate, without=without)


@settings(max_examples=sized(300, quick=40))
@given(data=st.data(), keyed=st.booleans(), options=st.sampled_from(OPTIONS))
def test_a_plan_does_not_depend_on_the_form_of_live_files(
    *, data: st.DataObject, keyed: bool, options: dict[str, str]
) -> None:
    stated: dict[str, Any] = options if keyed else {"bucket_key": "a"}
    table = new_table(
        COLUMNS,
        keys=("pt", "a", "b") if keyed else (),
        partitions=("pt",),
        **{
            "bucket": "2",
            "source__split__target_size": "200 b",
            "source__split__open_file_cost": "20 b",
            **stated,
        },
    )
    # Files may lie over each other on any level, as those of other writers.
    with patch("lakecore.table.commits.commit.check_change"):
        for message in data.draw(_messages(keyed=keyed)):
            commit_unstored(table, [message])
    pt = pa.scalar(data.draw(st.integers(-1, 2)), pa.int32())
    predicate = data.draw(st.sampled_from([None, Compare("pt", Op.LE, pt)]))
    without = frozenset(data.draw(st.sampled_from([[], [_row(0)]])))
    expected = _plan(table, predicate, without, 1_000)
    with patch("lakecore.table.reads.scan._FILES_AT_ONCE", data.draw(st.sampled_from([2, 1_000]))):
        found = _plan(table, predicate, without, 0)

        assert isinstance(found.splits, LargeSplits)
        assert found == expected
        assert found.splits[1:] == tuple(expected.splits[1:])
        assert found.splits[-1:] == tuple(expected.splits[-1:])
        assert (found.files_kept, found.size_bytes) == (expected.files_kept, expected.size_bytes)
