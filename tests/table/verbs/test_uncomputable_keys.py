"""One key whose rows cannot be merged: it is named, and the rest of its bucket goes on."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Uncomputable
from lakecore.io.ambient import seeded
from lakecore.model.rows import ROW_KIND
from tests.tables import in_directory, new_table, reopened

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table


class Case(NamedTuple):
    """What two commits bring of key 1, so that it cannot be merged."""

    function: str
    type: str
    first: Any
    second: Any
    kind: str = "+I"
    options: tuple[tuple[str, str], ...] = ()


WIDTHS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
CASES = [
    *(Case("sum", name, 2**bits - 1, 1) for name, bits in WIDTHS.items()),
    *(Case("sum", name, -(2**bits), -1) for name, bits in WIDTHS.items()),
    *(Case("sum", name, 0, -(2**bits), "-U") for name, bits in WIDTHS.items()),
    *(Case("product", name, 2 ** (bits - 1), 2) for name, bits in WIDTHS.items()),
    *(Case("product", name, -(2**bits), -1) for name, bits in WIDTHS.items()),
    *(Case("product", name, 5, 0, "-U") for name in WIDTHS),
    Case("product", "DECIMAL(10, 2)", Decimal(5), Decimal(0), "-U"),
    Case("rbm32", "BYTES", b"no bitmap", b"nor this"),
    Case("rbm64", "BYTES", b"no bitmap", b"nor this"),
    Case("hll_sketch", "BYTES", b"no sketch", b"nor this"),
    Case("theta_sketch", "BYTES", b"no sketch", b"nor this"),
    Case(
        "nested_update",
        "ARRAY<ROW<a INT, b INT>>",
        [{"a": None, "b": 1}],
        [{"a": 1, "b": 2}],
        options=(
            ("fields.v.nested-key", "a"),
            ("fields.v.nested-key-null-strategy", "error"),
        ),
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case.function} {case.type} {case.second}")
def case(request: pytest.FixtureRequest) -> Case:
    drawn: Case = request.param
    return drawn


def made(case: Case, **more: Any) -> Table:
    """A table of the case, without rows."""
    options: dict[str, Any] = dict(case.options)
    return new_table(
        {"k": "INT NOT NULL", "v": case.type},
        merge_engine="aggregation",
        keys=("k",),
        fields__v__aggregate_function=case.function,
        **{"write_only": "true", **options, **more},
    )


def put(table: Table, keys: list[int], value: Any, kind: str = "+I") -> None:
    v = pa.array([value] * len(keys), table.schema.arrow.field("v").type)
    kinds = pa.array([kind] * len(keys))
    table.write(pa.table({"k": pa.array(keys, pa.int32()), "v": v, ROW_KIND: kinds}))


def stuck(case: Case, **more: Any) -> Table:
    """A table whose key 1 cannot be merged, and which has a key 2 in the same files."""
    table = made(case, **more)
    put(table, [1, 2], case.first)
    put(table, [1], case.second, case.kind)
    return table


def test_reader_is_told_table_bucket_column_and_key(case: Case) -> None:
    table = stuck(case)

    with pytest.raises(Uncomputable, match=r"overwrite the partition") as refusal:
        table.to_arrow()

    facts = refusal.value.facts
    assert facts["table"] == table.context.layout.root
    assert (facts["column"], facts["key"], facts["bucket"]) == ("v", {"k": 1}, 0)
    assert isinstance(refusal.value, InvalidRequest)
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_other_keys_are_read_through_every_face(case: Case) -> None:
    table = stuck(case)

    assert table.to_arrow(columns=["k"], where="k = 2").column("k").to_pylist() == [2]
    assert table.to_arrow(where="k = 2").column("v").to_pylist() == [
        pa.scalar(case.first, table.schema.arrow.field("v").type).as_py()
    ]
    assert table.to_polars(where=pl.col("k") > 1).height == 1
    assert table.to_polars(where="k <> 1 AND v IS NOT NULL").height == 1
    assert table.scan().filter(pl.col("k").is_in([2, 3])).collect().height == 1
    assert [len(batch) for batch in table.to_batches(where="k = 2")] == [1]
    with duckdb.connect() as connection:
        found = table.to_duckdb(connection).filter("k = 2").fetchall()

    assert len(found) == 1
    assert table.to_arrow(where="k = 3").num_rows == 0
    with pytest.raises(Uncomputable):
        table.to_arrow(where="k < 2")
    with pytest.raises(Uncomputable):
        table.to_arrow(where="v IS NOT NULL")


def test_writes_of_other_keys_go_on_and_leave_the_compaction(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    table = stuck(case).copy({"write-only": "false"})
    for key in range(3, 15):
        put(table, [key], case.first)

    assert "key={'k': 1}" in caplog.text
    assert table.to_arrow(where="k > 1").num_rows == 13
    table.overwrite(pa.table({"k": pa.array([7], pa.int32()), "v": pa.array([None])}))
    assert table.to_polars().rows() == [(7, None)]


def test_write_that_brings_the_key_is_refused_if_it_compacts(case: Case) -> None:
    table = made(case, **{"num-sorted-run.compaction-trigger": "1", "write_only": "false"})
    put(table, [1, 2], case.first)

    with pytest.raises(Uncomputable):
        put(table, [1], case.second, case.kind)

    assert table.to_arrow().num_rows == 2
    assert len(data_files(table)) == 1


def data_files(table: Table) -> list[str]:
    return [name for name in in_directory(table, "bucket-0") if name.startswith("data-")]


def test_other_buckets_are_compacted_before_the_error(case: Case) -> None:
    options: dict[str, Any] = dict(case.options)
    table = new_table(
        {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": case.type},
        keys=("p", "k"),
        partitions=("p",),
        merge_engine="aggregation",
        write_only="true",
        fields__v__aggregate_function=case.function,
        **options,
    )
    kind = table.schema.arrow.field("v").type
    for commit, (value, row_kind) in enumerate([(case.first, "+I"), (case.second, case.kind)]):
        for partition in (1, 2, 3):
            own = 1 if partition == 2 else 10 + commit
            table.write(
                pa.table(
                    {
                        "p": pa.array([partition], pa.int32()),
                        "k": pa.array([own], pa.int32()),
                        "v": pa.array([value], kind),
                        ROW_KIND: [row_kind],
                    }
                )
            )
    for max_bytes in (None, 1):
        again = reopened(table, ambient=seeded(100 + (max_bytes or 0)))
        with pytest.raises(Uncomputable) as refusal:
            again.compact(full=True, max_bytes=max_bytes)

        facts = refusal.value.facts
        assert (facts["partition"], facts["bucket"], facts["key"]) == ("p=2", 0, {"k": 1})
        assert facts["buckets_compacted"] == (2 if max_bytes is None else 0)
        assert facts["buckets_failed"] == 1
    files = table.inspect.files()
    assert files.filter(pl.col("level") > 0).height == 2
    assert files.filter(pl.col("level") == 0).height == 2


# --- ways out -------------------------------------------------------------------------------------


def test_value_taken_back_mends_a_sum() -> None:
    table = stuck(Case("sum", "BIGINT", 2**63 - 1, 1))
    put(table, [1], 1, "-U")

    assert table.to_polars(where="k = 1").rows() == [(1, 2**63 - 1)]
    table.compact(full=True)
    assert sorted(table.to_polars().rows()) == [(1, 2**63 - 1), (2, 2**63 - 1)]


@pytest.mark.parametrize("function", ["sum", "product"])
def test_deleted_key_is_gone(function: str) -> None:
    table = stuck(
        Case(function, "INT", 2**31 - 1, 2),
        **{"aggregation.remove-record-on-delete": "true"},
    )
    table.delete("k = 1")

    assert table.to_polars().rows() == [(2, 2**31 - 1)]
    table.compact(full=True)
    assert table.to_polars().rows() == [(2, 2**31 - 1)]


def test_wider_type_holds_the_sum(tmp_path: Path) -> None:
    catalog = lc.connect(str(tmp_path / "w"), create=True)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t",
        {"k": "INT", "v": "TINYINT"},
        primary_keys=["k"],
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
        },
    )
    for _ in range(2):
        table.write([{"k": 1, "v": 127}])
    catalog.alter_table("d.t", [lc.SchemaChange.update_column_type("v", "INT")])

    assert catalog.get_table("d.t").to_polars().rows() == [(1, 254)]


def test_partial_update_names_the_key_too() -> None:
    table = new_table(
        {"k": "INT NOT NULL", "v": "TINYINT", "g": "INT"},
        keys=("k",),
        merge_engine="partial-update",
        write_only="true",
        fields__v__aggregate_function="sum",
        fields__g__sequence_group="v",
    )
    for _ in range(2):
        rows = {"k": [1, 2], "v": [100, 1], "g": [1, 1]}
        table.write(pl.DataFrame(rows))

    with pytest.raises(Uncomputable, match=r"key=\{'k': 1\}"):
        table.to_polars()
    assert table.to_polars(where="k > 1").rows() == [(2, 2, 1)]
    assert sorted(table.to_polars(columns=["k", "g"]).rows()) == [(1, 1), (2, 1)]


def test_one_key_of_many_is_found() -> None:
    table = made(Case("sum", "TINYINT", 1, 1))
    for _ in range(2):
        values = [100 if key == 777 else 1 for key in range(1000)]
        table.write(pl.DataFrame({"k": range(1000), "v": values}))

    with pytest.raises(Uncomputable, match=r"key=\{'k': 777\}"):
        table.to_polars()
    assert table.to_polars(where="k <> 777").height == 999
