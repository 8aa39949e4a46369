"""Random tables, rows and schema changes: small domains, so that keys repeat and files overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from lakecore.errors import Unsupported
from lakecore.model.rows import ROW_KIND
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Root,
    arrow_type,
    parse_type,
    with_nullable,
)
from lakecore.model.validation import create_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.table.handle import Table
    from lakecore.testing.model import Row

LONG = "x" * 40
POOLS: dict[str, list[Any]] = {
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-32768, 0, 7, 300],
    "INT": [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    # U+FFFD sorts below U+1F600 by code point, as in UTF-8, and above it in UTF-16.
    "STRING": ["", "a", "ab", "b", "\u00e9", "\ufffd", "\U0001f600", LONG + "a", LONG + "b"],
    "VARCHAR(5)": ["", "a", "abcde", "\U0001f600"],
    "DECIMAL(6, 2)": [Decimal(text) for text in ("-9999.99", "-0.01", "0.00", "1.50", "9999.99")],
    "DECIMAL(30, 5)": [
        Decimal(text)
        for text in (
            "-9999999999999999999999999.99999",
            "-1234567890123456789.5",
            "-0.00001",
            "0",
            "1",
            "98765432109876543210",
        )
    ],
    "BOOLEAN": [False, True],
    "DATE": [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)],
    "TIME(3)": [time(0), time(23, 59, 59, 999_000)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 1)],
    "TIMESTAMP(6)": [datetime(1969, 12, 31, 23, 59, 58), datetime(2024, 2, 29, 1, 2, 3, 4)],
    "TIMESTAMP_LTZ(6)": [datetime(2001, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, tzinfo=UTC)],
    "BYTES": [b"", b"\x00", b"a", b"\xff\x00"],
    "FLOAT": [-1.5, 0.0, 0.25, math.inf],
    "DOUBLE": [-math.inf, -1.5, -0.0, 0.0, 0.1, math.nan],
    "ARRAY<INT>": [[], [1], [1, None]],
}
TYPES = {name: parse_type(name) for name in POOLS}
TYPE_NAMES = tuple(POOLS)
KEY_TYPES = [name for name in POOLS if not isinstance(TYPES[name], Array)]
PARTITION_TYPES = ["STRING", "INT", "DATE", "BOOLEAN"]
SEQUENCE_TYPES = ["INT", "BIGINT", "STRING", "TIMESTAMP(6)", "DECIMAL(30, 5)", "FLOAT"]
WIDER = {
    "TINYINT": ["SMALLINT", "INT", "BIGINT", "STRING"],
    "SMALLINT": ["INT", "BIGINT", "DOUBLE", "STRING"],
    "INT": ["BIGINT", "DOUBLE", "STRING", "DECIMAL(12, 2)"],
    "BIGINT": ["STRING"],
    "FLOAT": ["DOUBLE"],
    "VARCHAR(5)": ["STRING"],
    "DECIMAL(6, 2)": ["DECIMAL(12, 2)"],
}
KINDS = ("+I", "+I", "+I", "+U", "-U", "-D")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The arguments of `create_table` for a new table, as `schemas` draws them.

    `kinds`: the row kinds that the table takes; frequent kinds are listed more than once.

        catalog.create_table(
            "shop.orders",
            shape.columns,
            primary_keys=shape.primary_keys,
            partition_keys=shape.partition_keys,
            options=shape.options,
        )
    """

    columns: dict[str, str]
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = KINDS

    @property
    def schema(self) -> TableSchema:
        """The schema of the new table."""
        return create_schema(
            self.columns,
            primary_keys=self.primary_keys,
            partition_keys=self.partition_keys,
            options=self.options,
            now_ms=0,
        )


FILES = st.fixed_dictionaries(
    {},
    optional={
        "file.format": st.sampled_from(["parquet", "orc", "avro"]),
        "target-file-size": st.sampled_from(["1 b", "600 b"]),
        "metadata.stats-mode": st.sampled_from(["none", "counts", "truncate(2)", "full"]),
        "metadata.stats-dense-store": st.sampled_from(["true", "false"]),
        "source.split.target-size": st.just("1 b"),
    },
)
"""Options of the layout of rows in files, which must not change any row."""

MANIFESTS = st.sampled_from(
    [
        {},
        {"manifest.merge-min-count": "2"},
        {"manifest.merge-min-count": "2", "manifest.target-file-size": "1 b"},
        # The manifest of a commit of many files has this size, that of a small one has not.
        {"manifest.merge-min-count": "2", "manifest.target-file-size": "2600 b"},
        {"manifest.merge-min-count": "2", "manifest.target-file-size": "3 kb"},
        {"manifest.full-compaction-threshold-size": "1 b"},
    ]
)
"""Options that decide when manifests are merged."""

WRITES = st.sampled_from(
    [
        {},
        {"write-buffer-size": "1 b"},
        {"write-buffer-size": "200 b"},
        {"write-buffer-size": "100 b", "write-buffer-spillable": "false"},
        {"target-file-size": "1 b"},
        {"file.format": "avro"},
        {"file.format": "orc"},
        {"file.compression": "none"},
        {"metadata.stats-mode": "none"},
        {"write-only": "true"},
        {"full-compaction.delta-commits": "3"},
    ]
)
"""Dynamic options of one write, which must not change any row either."""
_KEYED = frozenset({"full-compaction.delta-commits"})


def with_options(table: Table, options: dict[str, str]) -> Table:
    """The handle with these options; without those that need a key, if the table has none."""
    keyed = bool(table.schema.primary_keys)
    return table.copy({key: text for key, text in options.items() if keyed or key not in _KEYED})


@st.composite
def keyed_shapes(draw: st.DrawFn, types: Sequence[str] = TYPE_NAMES) -> Shape:
    """Tables with a primary key."""
    keys = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2))
    columns = {f"k{index}": f"{name} NOT NULL" for index, name in enumerate(keys)}
    partition: tuple[str, ...] = ()
    if draw(st.booleans()):
        columns["p"] = draw(st.sampled_from(PARTITION_TYPES)) + " NOT NULL"
        partition = ("p",)
    primary = tuple(draw(st.permutations([*columns])))
    values = draw(st.lists(st.sampled_from(types), max_size=3))
    columns |= {f"v{index}": name for index, name in enumerate(values)}
    options = (
        draw(FILES)
        | draw(MANIFESTS)
        | draw(
            st.sampled_from(
                [
                    {"bucket": "1"},
                    {"bucket": "3"},
                    {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
                    {"bucket": "-1"},
                ]
            )
        )
    )
    if options["bucket"] == "3":
        options |= draw(_bucketing(keys))
    sequence = draw(st.lists(st.sampled_from(SEQUENCE_TYPES), max_size=2))
    if sequence:
        columns |= {f"s{index}": name for index, name in enumerate(sequence)}
        options["sequence.field"] = ",".join(f"s{index}" for index in range(len(sequence)))
        if draw(st.booleans()):
            options["sequence.field.sort-order"] = "descending"
    options |= draw(
        st.sampled_from([{}, {}, {"ignore-delete": "true"}, {"ignore-update-before": "true"}])
    )
    # With sequence fields, a deletion that was dropped no longer hides what comes late.
    compacts: dict[str, str] = {"write-only": "true"}
    if not sequence:
        compacts = {"num-sorted-run.compaction-trigger": str(draw(st.integers(1, 5)))}
    options |= compacts
    if draw(st.integers(0, 4)) == 0:
        columns["kind"] = "STRING"
        options["rowkind.field"] = "kind"
    if draw(st.integers(0, 4)) == 0:
        options["changelog-producer"] = "input"
    if draw(st.integers(0, 4)) == 0:
        options["data-file.thin-mode"] = "true"
    columns = {name: columns[name] for name in draw(st.permutations([*columns]))}
    return Shape(columns=columns, primary_keys=primary, partition_keys=partition, options=options)


def _bucketing(keys: list[str]) -> st.SearchStrategy[dict[str, str]]:
    """Options that assign keys of these types to a fixed number of buckets."""
    ways = [{}, {"bucket-key": "k0"}]
    # The hash of Hive has no rule for times of day and timestamps.
    if not any(key.startswith("TIME") for key in keys):
        ways.append({"bucket-function.type": "hive"})
    if keys[0] in ("INT", "BIGINT"):
        ways.append({"bucket-function.type": "mod", "bucket-key": "k0"})
    return st.sampled_from(ways)


@st.composite
def append_shapes(draw: st.DrawFn, types: Sequence[str] = TYPE_NAMES) -> Shape:
    """Tables without a primary key."""
    values = draw(st.lists(st.sampled_from(types), min_size=1, max_size=3))
    columns = {f"v{index}": name for index, name in enumerate(values)}
    options = draw(FILES) | draw(MANIFESTS)
    if draw(st.booleans()):
        columns["b"] = draw(st.sampled_from(KEY_TYPES))
        options |= {"bucket": draw(st.sampled_from(["1", "3"])), "bucket-key": "b"}
    partition: tuple[str, ...] = ()
    if draw(st.booleans()):
        columns["p"] = draw(st.sampled_from(PARTITION_TYPES))
        columns["q"] = draw(st.sampled_from(PARTITION_TYPES))
        partition = draw(st.sampled_from([("p",), ("q", "p")]))
    return Shape(columns=columns, partition_keys=partition, options=options, kinds=("+I",))


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of a column, from its pool; also null, if the column is nullable."""
    drawn = st.sampled_from(pool_of(data_type))
    return st.one_of(drawn, st.none()) if data_type.nullable else drawn


def key_values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Mostly two values of a key column: otherwise, keys of several columns would hardly repeat."""
    return st.one_of(st.sampled_from(pool_of(data_type)[:2]), values(data_type))


def pool_of(data_type: DataType) -> list[Any]:
    """A few values of a type, including its ends. Raises Unsupported if there are none."""
    bare = str(with_nullable(data_type, nullable=True)).replace(
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(6)"
    )
    return {"DECIMAL(12, 2)": POOLS["DECIMAL(6, 2)"], **POOLS}.get(bare) or _ends(data_type)


def _ends(data_type: DataType) -> list[Any]:
    """Values at the ends of a type that has no pool. Raises Unsupported if it has none."""
    if not isinstance(data_type, Atomic):
        raise Unsupported("no rows are drawn of this type", type=str(data_type))
    length = data_type.length or 1
    match data_type.root:
        case Root.DECIMAL:
            most = 10 ** (data_type.precision or 1) - 1
            return [Decimal(n).scaleb(-(data_type.scale or 0)) for n in (-most, -1, 0, 1, most)]
        case Root.CHAR:
            return ["a" * length, "b" * length]
        case Root.VARCHAR:
            return ["", "a", "b" * min(length, 50)]
        case Root.BINARY:
            return [bytes(length), b"\xff" * length]
        case Root.VARBINARY:
            return [b"", b"\x00", b"\xff" * min(length, 50)]
        case Root.TIME:
            return [time(0), time(23, 59, 59)]
        case Root.TIMESTAMP:
            return [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 1)]
        case Root.TIMESTAMP_LTZ:
            return [datetime(2001, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, tzinfo=UTC)]
        case _:
            raise Unsupported("no rows are drawn of this type", type=str(data_type))


def rows_by_id(schema: TableSchema, *, kinds: bool, max_size: int = 8) -> Any:
    """The rows of one batch by field id, with their kinds."""
    kind = st.sampled_from(KINDS) if kinds else st.just("+I")
    of_kind = schema.parsed_options().rowkind_field
    columns = {}
    for column in schema.fields:
        drawn = values(column.type)
        if column.name == of_kind:
            drawn = st.sampled_from(KINDS)
        elif column.name in schema.primary_keys:
            drawn = key_values(column.type)
        columns[column.id] = drawn
    return st.lists(st.tuples(kind, st.fixed_dictionaries(columns)), max_size=max_size)


def batch_of(schema: TableSchema, drawn: Sequence[tuple[str, Row]]) -> pa.RecordBatch:
    """Drawn rows as an Arrow batch, with their kinds if the table takes them from `_row_kind`."""
    columns = [pa.array([row[f.id] for _, row in drawn], arrow_type(f.type)) for f in schema.fields]
    names = [f.name for f in schema.fields]
    if schema.primary_keys and schema.parsed_options().rowkind_field is None:
        columns.append(pa.array([kind for kind, _ in drawn], pa.string()))
        names.append(ROW_KIND)
    return pa.RecordBatch.from_arrays(columns, names)


@st.composite
def schema_changes(
    draw: st.DrawFn, schema: TableSchema | Shape, fresh: str | None = None
) -> Change:
    """Changes that the schema allows: a column is added, renamed, dropped or made wider.

    `fresh`: the name of the new or renamed column; by default, an unused name.

        @given(change=schema_changes(shape))
        def test_alter(change):
            catalog.alter_table("d.t", [change])
    """
    schema = schema.schema if isinstance(schema, Shape) else schema
    options = schema.parsed_options()
    fresh = fresh or next(f"n{at}" for at in count() if f"n{at}" not in schema.names)
    held = {*schema.primary_keys, *schema.partition_keys, *options.bucket_key}
    ordering = {*options.sequence_field, options.rowkind_field}
    # A column with rules of its own cannot go without them.
    held |= {
        n for o in schema.options if o.startswith("fields.") for n in o.split(".")[1].split(",")
    }
    held |= {n for o, t in schema.options.items() if o.endswith("-group") for n in t.split(",")}
    free = [f for f in schema.fields if f.name not in held | ordering]
    wide = [(f, WIDER[str(f.type)]) for f in free if str(f.type) in WIDER]
    renamable = [f.name for f in schema.fields if f.name not in schema.partition_keys]
    # The names that options know are the ones that a rename may lose.
    renamable += 3 * [name for name in renamable if name in ordering]
    verb = draw(st.sampled_from(["add", "drop", "rename", "widen"]))
    match verb:
        case "rename":
            return SchemaChange.rename_column(draw(st.sampled_from(renamable)), fresh)
        case "drop" if free and len(schema.fields) > 1:
            return SchemaChange.drop_column(draw(st.sampled_from(free)).name)
        case "widen" if wide:
            column, targets = draw(st.sampled_from(wide))
            return SchemaChange.update_column_type(column.name, draw(st.sampled_from(targets)))
        case _:
            return SchemaChange.add_column(fresh, draw(st.sampled_from([*POOLS])))
