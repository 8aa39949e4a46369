"""Splits that Polars reads: the rows are those of windows, whatever decides which come out."""

from __future__ import annotations

import threading
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, Unsupported
from lakecore.frames.polars_source import to_batches
from lakecore.io.stores.local import LocalStore
from lakecore.memory import Budget, Share
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.plan.predicate import from_polars
from lakecore.table.publication import write_schema
from lakecore.table.reads import source
from lakecore.table.sections import windows
from lakecore.table.splits import read_planner, survivors
from lakecore.table.splits.polars_rows import PolarsRows
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_planner import (
    Decision,
    LateMaterialisation,
    PolarsChunks,
    decide_split,
)
from tests.damage import PLAIN, replace_in
from tests.table.splits.test_read import hide, source_of
from tests.tables import new_table, put, reopened, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.handle import Table

ALL_TYPES = {
    "v_bool": "BOOLEAN",
    "v_int": "INT",
    "v_double": "DOUBLE",
    "v_small": "DECIMAL(10, 2)",
    "v_large": "DECIMAL(38, 10)",
    "v_text": "STRING",
    "v_char": "CHAR(5)",
    "v_bytes": "BYTES",
    "v_fixed": "BINARY(3)",
    "v_date": "DATE",
    "v_time": "TIME(3)",
    "v_ms": "TIMESTAMP(3)",
    "v_us": "TIMESTAMP(6)",
    "v_ltz": "TIMESTAMP_LTZ(6)",
}
COUNT = 2_000


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_planner, "_ROWS_MIN", 0)


def local_table(tmp_path: Path, columns: dict[str, str] | None = None, **options: object) -> Table:
    columns = {"id": "INT NOT NULL", "v": "STRING"} if columns is None else columns
    return new_table(columns, store=LocalStore(), path=str(tmp_path / "t"), **options)  # type: ignore[arg-type]


def plans_of(
    table: Table, columns: Sequence[str] | None = None, where: object = None
) -> list[tuple[Split, ReadPlan]]:
    of = source_of(table)
    predicate = None if where is None else from_polars(where, of.schema)  # type: ignore[arg-type]
    splits = of.plan(predicate).splits
    return [(split, of.read_plan(splits, columns, predicate)) for split in splits]


def polars_of(
    table: Table, columns: Sequence[str] | None = None, where: object = None
) -> list[PolarsRows | None]:
    context = table.context
    return [
        polars_rows_of(split, plan, context.store, context.budget)
        for split, plan in plans_of(table, columns, where)
    ]


def polars_rows_of(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> PolarsRows | None:
    path = decide_split(split, plan, store, budget).path
    if not isinstance(path, PolarsChunks | LateMaterialisation):
        return None
    return PolarsRows(split=split, plan=plan, store=store, budget=budget, path=path)


def late_of(polars: PolarsRows | None) -> LateMaterialisation:
    assert polars is not None
    assert isinstance(polars.path, LateMaterialisation)
    return polars.path


def sorted_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[str]:
    return sorted(map(repr, pa.Table.from_batches(batches, schema).to_pylist()))


def assert_as_by_windows(table: Table, columns: Sequence[str] | None = None) -> int:
    """Every split is read by Polars, and has the rows of windows; how many there are."""
    context, count = table.context, 0
    for split, plan in plans_of(table, columns):
        polars = polars_rows_of(split, plan, context.store, context.budget)
        assert polars is not None
        by_windows = list(read_split(split, plan, context.store, context.budget))
        batches = list(polars.batches())
        assert all(batch.schema.equals(plan.output) for batch in batches)
        assert sorted_rows(batches, plan.output) == sorted_rows(by_windows, plan.output)
        assert sum(frame.height for frame in polars.frames()) == sum(map(len, by_windows))
        count += sum(map(len, by_windows))
    return count


# --- the rows -----------------------------------------------------------------------------------


def drawn_rows(table: Table, seed: int, count: int = COUNT) -> pa.Table:
    """Rows of few keys, a third of their values null, and a fifth deletions."""
    random = np.random.default_rng(seed)
    columns = {}
    for field in table.schema.arrow:
        numbers = pa.array(random.integers(0, COUNT, count).astype(np.int32))
        if pa.types.is_binary(field.type):
            values = pa.array([b"%03d" % (n % 1000) for n in numbers.to_pylist()])
        elif pa.types.is_boolean(field.type):
            values = pa.array(random.integers(0, 2, count).astype(bool))
        elif pa.types.is_timestamp(field.type):
            values = numbers.cast(pa.int64()).cast(field.type)
        elif pa.types.is_decimal(field.type):
            values = numbers.cast(pa.decimal128(38, 10)).cast(field.type)
        else:
            values = numbers.cast(field.type)
        if field.nullable:
            values = pc.if_else(pa.array(random.random(count) < 0.3), None, values)
        columns[field.name] = values
    kinds = random.choice(["+I", "+I", "+I", "+U", "-D"], count)
    return pa.table({**columns, "_row_kind": kinds})


@pytest.mark.parametrize(
    "kinds",
    [
        *(["INT"], ["BIGINT"], ["STRING"], ["DATE"], ["BOOLEAN"], ["DOUBLE"], ["TIMESTAMP(6)"]),
        *(["INT", "STRING"], ["DECIMAL(20, 2)", "SMALLINT"]),
    ],
)
@pytest.mark.sampled(2)
def test_values_of_every_type_come_out(
    kinds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PolarsRows, "_own_frames", None)
    named = {f"k{number}": f"{kind} NOT NULL" for number, kind in enumerate(kinds)}
    columns = {**named, **ALL_TYPES}
    table = local_table(tmp_path, columns, keys=list(named), write_only="true")
    for seed in range(4):
        table.write(drawn_rows(table, seed))

    assert assert_as_by_windows(table) > 0
    assert assert_as_by_windows(table, ["v_text", *named, "v_int"]) > 0
    assert assert_as_by_windows(table, ["v_ltz"]) > 0
    assert assert_as_by_windows(table, list(named)) > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket": "3"},
        {"ignore_delete": "true"},
        {"sequence__field": "s"},
        {"sequence__field": "s", "sequence__field__sort_order": "descending"},
        {"data_file__thin_mode": "true"},
        {"file__compression": "none"},
        {"target_file_size": "1 b"},
    ],
)
def test_whatever_decides_the_same_rows_come_out(options: dict[str, str], tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "s": "INT", "v": "STRING"}
    table = local_table(tmp_path, columns, write_only="true", **options)
    for seed in range(5):
        table.write(drawn_rows(table, seed))
        if seed == 2 and "sequence__field" not in options:
            table.compact(full=True)

    assert assert_as_by_windows(table) > 0
    assert assert_as_by_windows(table, ["v"]) > 0


@pytest.mark.parametrize("left", ["level 0", "two levels"])
def test_first_row_stays(left: str, tmp_path: Path) -> None:
    table = local_table(tmp_path, merge_engine="first-row", ignore_delete="true")
    for seed in range(6):
        table.write(drawn_rows(table, seed).drop_columns("_row_kind"))
        if left == "level 0" or seed == 3:
            table.compact()

    assert assert_as_by_windows(table) > 0


@pytest.mark.parametrize("runs", ["one", "two"])
def test_rows_that_deletion_vectors_name_are_left_out(runs: str, tmp_path: Path) -> None:
    table = local_table(tmp_path, write_only="true")
    put(table, " | ".join(f"{n} a{n}" for n in range(100)))
    table.compact(full=True)
    if runs == "two":
        put(table, " | ".join(f"{n} b{n}" for n in range(50, 60)))
    on_read = "true" if runs == "two" else "false"
    with_options(table, deletion_vectors__enabled="true", deletion_vectors__merge_on_read=on_read)
    table = reopened(table)
    (split, _), *_ = plans_of(table)
    file = max(split.files, key=lambda each: each.level)
    hide(table, {file.name: [0, 7, 55, 99]})

    assert assert_as_by_windows(reopened(table)) == (97 if runs == "two" else 96)


def test_files_of_many_row_groups_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "BIGINT", "t": "STRING"}
    table = local_table(tmp_path, columns, write_only="true")
    ids = np.arange(2_400_000)
    table.write(pa.table({"id": ids, "v": ids, "t": pa.array(ids % 100).cast(pa.string())}))
    newer = ids[::3]
    table.write(pa.table({"id": newer, "v": -newer, "t": [None] * len(newer)}))
    (split, plan), *_ = plans_of(table)
    small = Budget(512 << 20)
    polars = polars_rows_of(split, plan, table.context.store, small)
    assert polars is not None
    frames = list(polars.frames())
    found = pa.Table.from_batches(polars.batches()).sort_by("id")

    assert small.used_bytes == 0
    assert len(frames) > 2
    assert found["id"].to_numpy().tolist() == ids.tolist()
    assert (found["v"].to_numpy() == np.where(ids % 3 == 0, -ids, ids)).all()
    assert found["t"].null_count == len(newer)


def test_rows_of_runs_that_were_merged_to_one_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 4)
    table = local_table(tmp_path, write_only="true")
    ids = np.arange(1000, dtype=np.int32)
    table.write(pa.table({"id": ids, "v": [f"a{n}" for n in range(1000)]}))
    # Some rows are replaced: as many places lie between the first and the last of a slice.
    for seed in range(1, 8):
        newer = pa.array([seed, 500, 990 - seed], pa.int32())
        table.write(pa.table({"id": newer, "v": [f"{seed}-{n}" for n in range(3)]}))

    assert assert_as_by_windows(table) == 1000
    assert table.to_arrow(where="v = 'a500'").num_rows == 0


def test_text_that_many_rows_share_is_laid_out_a_few_rows_at_a_time() -> None:
    texts = ["a"] * 2_000 + ["x" * 5_000] * 8_000
    frame = pl.DataFrame({"v": pl.Series(texts), "b": pl.Series(texts).cast(pl.Binary)})
    schema = pa.schema({"v": pa.string(), "b": pa.binary()})
    batches = list(to_batches(frame, schema, 1 << 20))

    assert max(batch.nbytes for batch in batches) <= 1 << 20
    assert pa.Table.from_batches(batches)["v"].to_pylist() == texts
    assert pa.Table.from_batches(batches)["b"].to_pylist() == [text.encode() for text in texts]


@pytest.mark.parametrize("keys", [["id"], []])
def test_vector_beyond_the_rows_of_a_file_hides_none_of_another(
    keys: list[str], tmp_path: Path
) -> None:
    table = local_table(tmp_path, keys=keys)
    put(table, "1 a | 2 b")
    if keys:
        table.compact(full=True)
        with_options(table, deletion_vectors__enabled="true")
    else:
        put(table, "3 c | 4 d")
    table = reopened(table)
    (split, _), *_ = plans_of(table)
    hide(table, {split.files[0].name: [1, 3]})

    assert assert_as_by_windows(reopened(table)) == (1 if keys else 3)


def test_file_of_other_types_than_its_schema_says_is_read_as_by_windows(tmp_path: Path) -> None:
    table = local_table(tmp_path, {"id": "INT NOT NULL", "v": "TIMESTAMP(3)"}, keys=[])
    table.write(pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.timestamp("ms"))}))
    (path,) = (tmp_path / "t").rglob("data-*.parquet")
    stored = pq.read_table(path)
    size = path.stat().st_size
    micros = pa.array([1_500], pa.timestamp("us"))
    pq.write_table(stored.set_column(1, "v", micros), path, compression="zstd")
    ((split, plan),) = plans_of(table)
    (file,) = split.files
    runs = ((replace(file, size_bytes=path.stat().st_size),),)
    context = table.context
    assert path.stat().st_size != size
    polars = polars_rows_of(replace(split, runs=runs), plan, context.store, context.budget)
    assert polars is not None

    with pytest.raises(CorruptTable, match=path.name):
        list(polars.frames())


def test_first_rows_come_before_the_last_are_decided(tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "BIGINT"}
    table = local_table(tmp_path, columns, write_only="true")
    ids = np.arange(3_000_000)
    table.write(pa.table({"id": ids, "v": ids}))
    table.write(pa.table({"id": ids[-1:], "v": [-1]}))
    ((split, plan),) = plans_of(table)
    budget = Budget(512 << 20)
    polars = polars_rows_of(split, plan, table.context.store, budget)
    assert polars is not None
    frames = polars.frames()
    first = next(frames)
    before = threading.active_count()
    assert budget.used_bytes > polars.split.row_count
    frames.close()
    assert budget.used_bytes == 0

    assert 0 < first.height < len(ids) / 2
    assert threading.active_count() < before


# --- when it is not done ------------------------------------------------------------------------


def test_large_split_is_read_by_polars_for_every_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    table = local_table(tmp_path, bucket="2", write_only="true")
    ids = np.arange(200_000, dtype=np.int32)
    table.write(pa.table({"id": ids, "v": pa.array(ids).cast(pa.string())}))
    table.write(pa.table({"id": ids[::2], "v": ["new"] * 100_000}))
    asked: list[Decision] = []

    def seen(*arguments: object) -> Decision:
        asked.append(decide_split(*arguments))  # type: ignore[arg-type]
        return asked[-1]

    monkeypatch.setattr(source, "decide_split", seen)
    faces: dict[str, Callable[[], Any]] = {
        "scan": lambda: table.scan().collect(),
        "arrow": table.to_arrow,
        "dataset": lambda: table.to_arrow_dataset().to_table(),
        "duckdb": lambda: table.to_duckdb().to_arrow_table(),
    }
    for face, rows_of in faces.items():
        asked.clear()
        assert len(rows_of()) == len(ids), face
        assert [type(each.path) for each in asked] == [LateMaterialisation] * 2, face
    asked.clear()
    assert table.scan().head(5).collect().height == 5
    assert table.to_arrow(limit=5).num_rows == 5
    assert asked == []


@pytest.mark.parametrize(
    "reason",
    [
        *("a condition on keys", "few rows", "folded", "nanoseconds decide"),
        *("another schema", "format", "nested", "budget", "codec"),
    ],
)
def test_other_splits_are_left_to_windows(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"id": "INT NOT NULL", "v": "ARRAY<INT>" if reason == "nested" else "INT"}
    decides = {}
    if reason == "nanoseconds decide":
        columns["n"] = "TIMESTAMP(9)"
        decides = {"sequence__field": "n"}
    table = local_table(
        tmp_path,
        columns,
        **decides,
        write_only="true",
        merge_engine="partial-update" if reason == "folded" else "deduplicate",
        file__format="orc" if reason == "format" else "parquet",
        file__compression="lz4" if reason == "codec" else "zstd",
    )
    table.write(pa.table({"id": [1, 2], "v": [[1], [2]] if reason == "nested" else [1, 2]}))
    if reason == "another schema":
        change = SchemaChange.add_column("w", "INT")
        changed = evolve(table.schema, [change], now_ms=1, has_snapshots=True)
        assert write_schema(table.context.store, table.context.layout, changed)
        table = table.refresh()
    table.write(pa.table({"id": [1], "v": pa.nulls(1, table.schema.arrow.field("v").type)}))
    if reason == "few rows":
        monkeypatch.setattr(read_planner, "_ROWS_MIN", 4)
    if reason == "budget":
        monkeypatch.setattr(Share.DECIDING, "under", table.context.budget.size_bytes)
    chosen = ["id", "v"] if reason == "nanoseconds decide" else None
    where = pl.col("id") == 1 if reason == "a condition on keys" else None

    assert polars_of(table, chosen, where) == [None]
    assert table.to_arrow().num_rows == 2


def test_condition_on_values_leaves_no_row_out_below_the_merge(tmp_path: Path) -> None:
    table = local_table(tmp_path, write_only="true")
    put(table, "1 a | 2 a")
    put(table, "1 b")

    assert polars_of(table, None, pl.col("v") == "a") != [None]
    assert table.scan(where="v = 'a'").collect().rows() == [(2, "a")]
    assert table.to_arrow(where="v = 'a'")["id"].to_pylist() == [2]


# --- what Polars cannot read --------------------------------------------------------------------


def spoiled(tmp_path: Path, old: bytes, new: bytes) -> None:
    for path in (tmp_path / "t").rglob("data-*.parquet"):
        replace_in(path, old, new)


@pytest.mark.parametrize("keys", [["id"], []])
def test_text_that_is_no_utf8_is_read_as_by_windows(keys: list[str], tmp_path: Path) -> None:
    table = local_table(tmp_path, keys=keys, **PLAIN)  # type: ignore[arg-type]
    put(table, "1 aaaaaaa | 2 bbbbbbb")
    put(table, "1 ccccccc | 3 ddddddd")
    spoiled(tmp_path, b"bbbbbbb", b"bbb\xffbbb")
    wanted = {2: "bbb\ufffdbbb", 3: "ddddddd", 1: "ccccccc"}

    rows = table.to_arrow().to_pylist()

    assert {row["id"]: row["v"] for row in rows if row["v"] != "aaaaaaa"} == wanted
    if keys:
        assert dict(table.scan().collect().iter_rows()) == wanted


def test_rows_that_newer_ones_replace_stay_out_where_polars_cannot_read(tmp_path: Path) -> None:
    table = local_table(tmp_path, **PLAIN)  # type: ignore[arg-type]
    put(table, " | ".join(f"{key} aaaaaaa{key}" for key in range(20)))
    put(table, " | ".join(f"{key} bbbbbbb{key}" for key in range(0, 20, 2)) + " | 90 ccccccc")
    put(table, "-D 3 _ | -D 4 _ | 5 ddddddd")
    # A text that is no UTF-8, in the oldest run and in the one after it.
    spoiled(tmp_path, b"aaaaaaa7", b"aaa\xffaaa7")
    spoiled(tmp_path, b"ccccccc", b"ccc\xffccc")
    wanted = {key: f"aaaaaaa{key}" for key in range(20) if key not in {3, 4}}
    wanted |= {key: f"bbbbbbb{key}" for key in range(0, 20, 2) if key != 4}
    wanted |= {5: "ddddddd", 7: "aaa\ufffdaaa7", 90: "ccc\ufffdccc"}

    for found in (table.to_polars(), table.scan().collect(), pl.from_arrow(table.to_arrow())):
        assert isinstance(found, pl.DataFrame)
        assert sorted(found.iter_rows()) == sorted(wanted.items())


@pytest.mark.parametrize("keys", [["id"], []])
def test_file_that_was_replaced_by_another_is_noticed(keys: list[str], tmp_path: Path) -> None:
    table = local_table(tmp_path, keys=keys)
    put(table, "1 a | 2 b")
    table.compact(full=True)
    other = local_table(tmp_path / "other", keys=keys)
    put(other, "1 a | 2 b | 3 something | 4 more")
    other.compact(full=True)
    live, there = (
        max((tmp_path / folder).rglob("data-*.parquet"), key=lambda path: path.stat().st_mtime)
        for folder in ("t", "other/t")
    )
    live.write_bytes(there.read_bytes())

    for rows_of in (table.to_polars, table.to_arrow, lambda: table.scan().collect()):
        with pytest.raises(CorruptTable, match=live.name):
            rows_of()


@pytest.mark.parametrize("keys", [["id"], []])
def test_damaged_file_is_named(keys: list[str], tmp_path: Path) -> None:
    table = local_table(tmp_path, keys=keys)
    texts = [f"text{number * 7919}" for number in range(5_000)]
    ids = list(range(5_000))
    table.write(pa.table({"id": pa.array(ids, pa.int32()), "v": texts}))
    table.write(pa.table({"id": pa.array(ids[:10], pa.int32()), "v": texts[:10]}))
    large = max((tmp_path / "t").rglob("data-*.parquet"), key=lambda path: path.stat().st_size)
    column = pq.read_metadata(large).row_group(0).column([*pq.read_schema(large).names].index("v"))
    data = bytearray(large.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    large.write_bytes(bytes(data))

    for rows_of in (table.to_arrow, table.to_polars):
        with pytest.raises(CorruptTable, match=large.name):
            rows_of()


@pytest.mark.parametrize("kind", ["INT", "STRING", "DECIMAL(30, 0)", "BYTES"])
@pytest.mark.parametrize("window_rows", [2, 6, 1 << 20])
def test_keys_out_of_order_are_named(
    window_rows: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survivors, "_WINDOW_ROWS", window_rows)
    columns = {"id": f"{kind} NOT NULL", "v": "STRING"}
    table = local_table(tmp_path, columns, **PLAIN, write_only="true")
    arrow = table.schema.arrow.field("id").type
    by_way_of = pa.decimal128(38, 0) if pa.types.is_decimal(arrow) else pa.string()
    ids = pa.array([10_000, 20_000, 30_000]).cast(by_way_of).cast(arrow)
    stored = {"INT": pack("<i", 20_000), "DECIMAL(30, 0)": (20_000).to_bytes(13, "big")}
    spoilt = {"INT": pack("<i", 40_000), "DECIMAL(30, 0)": (40_000).to_bytes(13, "big")}
    for value in "ab":
        table.write(pa.table({"id": ids, "v": [value] * 3}))
    spoiled(tmp_path, stored.get(kind, b"20000"), spoilt.get(kind, b"40000"))

    assert polars_of(table) != [None]
    with pytest.raises(CorruptTable, match=r"keys of a data file are out of order.*path=.*data-"):
        table.to_arrow()


@pytest.mark.parametrize("decides", ["key", "sequence"])
def test_deciding_text_that_is_no_utf8_is_named(decides: str, tmp_path: Path) -> None:
    columns = {"id": "STRING NOT NULL", "s": "STRING", "v": "INT"}
    table = local_table(tmp_path, columns, **PLAIN, sequence__field="s")
    for text in ("aaaaaaa", "bbbbbbb"):
        table.write(pa.table({"id": ["k1k1k1k1"], "s": [text], "v": [1]}))
    old = b"k1k1k1k1" if decides == "key" else b"bbbbbbb"
    spoiled(tmp_path, old, b"\xff" + old[1:])

    assert polars_of(table) != [None]
    for rows_of in (table.to_arrow, table.to_polars):
        with pytest.raises(
            Unsupported, match=rf"not valid UTF-8.*column={'id' if decides == 'key' else 's'}"
        ):
            rows_of()


def test_deciding_texts_that_are_shared_and_too_large_apart_are_left_to_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survivors, "_mark_rows", None)
    columns = {"k": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}
    table = local_table(tmp_path, columns, keys=["k", "id"], write_only="true")
    ids = pa.array(range(2_000), pa.int32())
    for number in range(2):
        table.write(pa.table({"k": ["x" * 5_000] * 2_000, "id": ids, "v": [number] * 2_000}))
    ((split, plan),) = plans_of(table)
    small = Budget(64 << 20)
    polars = polars_rows_of(split, plan, table.context.store, small)
    assert polars is not None
    assert late_of(polars).held_bytes < small.size_bytes // 8

    found = pl.concat(polars.frames())
    assert small.used_bytes == 0
    assert found["id"].sort().to_list() == ids.to_pylist()
    assert found["v"].unique().to_list() == [1]


@pytest.mark.parametrize("runs", ["one", "two"])
def test_missing_deletion_vectors_are_damage(runs: str, tmp_path: Path) -> None:
    table = local_table(tmp_path, write_only="true")
    put(table, "1 a | 2 a")
    table.compact(full=True)
    if runs == "two":
        put(table, "1 b")
    on_read = "true" if runs == "two" else "false"
    with_options(table, deletion_vectors__enabled="true", deletion_vectors__merge_on_read=on_read)
    table = reopened(table)
    (split, _), *_ = plans_of(table)
    file = max(split.files, key=lambda each: each.level)
    hide(table, {file.name: [1]})
    table = reopened(table)
    assert polars_of(table) != [None]
    (tmp_path / "t" / "index" / "index-1").unlink()

    for rows_of in (table.to_arrow, table.to_polars):
        with pytest.raises(CorruptTable, match=r"missing.*expired.*index-1"):
            rows_of()


def test_keys_that_are_copied_to_be_compared_count(tmp_path: Path) -> None:
    kinds = {"a": "SMALLINT", "b": "BOOLEAN", "c": "BIGINT"}
    named = {name: f"{kind} NOT NULL" for name, kind in kinds.items()}
    table = local_table(tmp_path, {**named, "v": "INT"}, keys=list(named), write_only="true")
    for _ in range(2):
        table.write(
            pa.table(
                {
                    "a": pa.array([1], pa.int16()),
                    "b": [True],
                    "c": [1],
                    "v": pa.array([1], pa.int32()),
                }
            )
        )

    (polars,) = polars_of(table)
    assert polars is not None
    # A mark, the keys, and the narrow keys as wide ones.
    assert late_of(polars).held_bytes == 2 * (1 + (2 + 1 + 8) + (8 + 8))
