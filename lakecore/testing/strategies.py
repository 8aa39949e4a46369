"""The strategies of the kit: random tables, rows, options and conditions.

Domains are small on purpose: few keys, so that keys repeat and files overlap, and the values at the
ends of each type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators import sketches
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Root,
    Row,
    Variant,
    arrow_type,
    parse_type,
)
from lakecore.testing.aggregates import RETRACTING, same_order, same_values
from lakecore.testing.table_draws import (
    FILES,
    MANIFESTS,
    POOLS,
    TYPE_NAMES,
    WRITES,
    Shape,
    append_shapes,
    key_values,
    keyed_shapes,
    pool_of,
    values,
)
from lakecore.testing.values import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema


# --- functions ------------------------------------------------------------------------------------
# Random columns to merge: the types of each aggregate function, its options, and values.

NUMBERS = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(4, 2)", "DECIMAL(18, 0)", "DECIMAL(38, 10)"),
)
PLAIN = (
    *NUMBERS,
    *("STRING", "CHAR(3)", "BOOLEAN", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)"),
    *("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "BYTES", "BINARY(2)"),
)
NESTED = (
    *("ARRAY<INT>", "ARRAY<STRING>", "ARRAY<DOUBLE>", "ARRAY<ARRAY<INT>>", "ARRAY<BYTES>"),
    "ARRAY<ROW<a INT, b STRING>>",
)
MAPS = ("MAP<INT, STRING>", "MAP<STRING, ARRAY<INT>>", "MAP<BYTES, INT>", "MAP<DATE, DOUBLE>")
TIMED = ("MAP<STRING, ROW<v INT, ts STRING>>", "MAP<INT, ROW<ts STRING, v INT>>")
RECORDS = "ARRAY<ROW<id INT, part STRING, seq INT, v STRING>>"

SMALL: dict[str, list[Any]] = {
    "TINYINT": [-2, -1, 0, 1, 2, 3],
    "SMALLINT": [-7, -1, 0, 1, 2, 30],
    "INT": [-7, -1, 0, 1, 2, 3],
    "BIGINT": [-7, -1, 0, 1, 2, 3],
    "FLOAT": [-1.5, -0.0, 0.0, 0.1, 2.0, 1e20],
    "DOUBLE": [-1.5, -0.0, 0.0, 0.1, 2.0, 1e300],
    "DECIMAL(4, 2)": [Decimal(text) for text in ("-1.50", "-0.01", "0", "0.05", "1", "2.50")],
    "DECIMAL(18, 0)": [Decimal(text) for text in ("-7", "-1", "0", "1", "3", "1000000000")],
    "DECIMAL(38, 10)": [Decimal(text) for text in ("-1.5", "0", "0.0000000001", "1", "3")],
}
"""Numbers whose first sums and products fit the type."""
MORE: dict[str, list[Any]] = {
    "DECIMAL(4, 2)": [Decimal(text) for text in ("-99.99", "-0.01", "0", "0.5", "99.99")],
    "DECIMAL(18, 0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1), Decimal(5), Decimal(10**9)],
    "DECIMAL(38, 10)": [
        Decimal(text)
        for text in ("9999999999999999999999999999", "-9999999999999999999999999999.5", "1E-10")
    ],
    "CHAR(3)": ["abc", "   ", "zzz"],
    "BINARY(2)": [b"\x00\x00", b"a\xff", b"\xff\x00"],
    "TIMESTAMP(0)": [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29)],
    "TIMESTAMP_LTZ(6)": [datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, tzinfo=UTC)],
}
TEXTS = ["", " ", "\t\u3000", "a", "b", "a,b", "b,,c", ",", "a|b", " a", "c,", "\u00a0", "aa,a"]
TIMES = ["1", "10", "2", "\uffff", "\U0001f600"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A function on a column of a type, with the options of the column."""

    function: str
    type: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def data_type(self) -> DataType:
        return parse_type(self.type)

    def comparable(self, value: Any) -> Any:
        """A result of the function in normal form; see `same_values`."""
        return same_values(self.function, self.data_type, self.options, value)

    def __str__(self) -> str:
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        return f"{self.function} {self.type}{options}"


def cases() -> Iterator[Case]:
    """Each function with each type and each kind of options."""
    for function in ("sum", "product"):
        yield from (Case(function=function, type=name) for name in NUMBERS)
    for function in ("max", "min"):
        yield from (Case(function=function, type=name) for name in PLAIN)
    for function in (
        *("last_value", "last_non_null_value", "first_value"),
        *("first_non_null_value", "first_not_null_value"),
    ):
        for name in (*PLAIN, *NESTED, *MAPS, *TIMED):
            yield Case(function=function, type=name)
    for function in ("bool_and", "bool_or"):
        yield Case(function=function, type="BOOLEAN")
    for options in ({}, {"distinct": "true"}):
        for delimiter in ({}, {"list-agg-delimiter": "|"}, {"list-agg-delimiter": ",,"}):
            yield Case(function="listagg", type="STRING", options=options | delimiter)
        yield from (Case(function="collect", type=name, options=options) for name in NESTED)
    yield from (Case(function="merge_map", type=name) for name in (*MAPS, *TIMED))
    yield Case(function="merge_map_with_keytime", type=TIMED[0])
    yield Case(function="merge_map_with_keytime", type=TIMED[1], options={"ts-field": "ts"})
    key, two = {"nested-key": "id"}, {"nested-key": "id,part"}
    null_keys = {"nested-key-null-strategy": "ignore"}
    for options in (key, two, key | null_keys):
        yield Case(function="nested_partial_update", type=RECORDS, options=options)
    sequence, limit = {"nested-sequence-field": "seq"}, {"count-limit": "2"}
    for options in (
        *({}, limit, key, key | null_keys, key | limit, key | sequence),
        *(two | sequence | limit, two | null_keys, {"nested-sequence-field": "seq,v"} | key),
    ):
        yield Case(function="nested_update", type=RECORDS, options=options)
    for function in ("rbm32", "rbm64"):
        yield Case(function=function, type="BYTES")


CASES = list(cases())


def values_for(case: Case, *, wide: bool) -> st.SearchStrategy[Any]:
    """Values for a function, including null; with `wide`, numbers at the ends of their type."""
    match case.function:
        case "sum" | "product" if not wide:
            return st.sampled_from([None, *SMALL[case.type]])
        case "listagg":
            return st.sampled_from([None, *TEXTS])
        case "rbm32":
            return st.one_of(st.none(), _bitmaps(2**32 - 1).map(BitMap.serialize))
        case "rbm64":
            return st.one_of(st.none(), _bitmaps(2**63 - 1).map(sketches.encode))
        case "merge_map_with_keytime":
            times = st.sampled_from([None, *TIMES])
            row = st.fixed_dictionaries({"ts": times, "v": st.integers(0, 9)})
            return st.one_of(st.none(), _maps(pool(_key_type(case)), st.one_of(st.none(), row)))
    return values_of(case.data_type)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """A few values of a type, including null, so that values repeat."""
    match data_type:
        case Array(element=element):
            drawn: st.SearchStrategy[Any] = st.lists(values_of(element), max_size=3)
        case Map(key=key, value=value):
            drawn = _maps(pool(key), values_of(value))
        case Row(fields=fields) if not isinstance(data_type, Variant):
            drawn = st.fixed_dictionaries({each.name: values_of(each.type) for each in fields})
        case _:
            drawn = st.sampled_from(pool(data_type))
    return st.one_of(drawn, drawn, st.none())


def pool(data_type: DataType) -> list[Any]:
    """A few values of a type, including its ends."""
    if isinstance(data_type, Atomic) and data_type.root is Root.VARCHAR:
        return ["", "a", "ab", "\ufffd", "\U0001f600"]
    if isinstance(data_type, Atomic) and data_type.root is Root.VARBINARY:
        return POOLS["BYTES"]
    name = str(data_type).replace("TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(6)")
    return MORE.get(name) or pool_of(data_type)


def _key_type(case: Case) -> DataType:
    data_type = case.data_type
    assert isinstance(data_type, Map)
    return data_type.key


def _maps(keys: Sequence[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(st.sampled_from(keys), values)
    return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])


def _bitmaps(most: int) -> st.SearchStrategy[Any]:
    bitmap = BitMap if most < 2**32 else BitMap64
    some = st.sampled_from([0, 1, 2, 70_000, 2**31, most])
    ranges = st.tuples(some, st.integers(1, 3)).map(lambda part: range(part[0], sum(part)))
    return st.one_of(st.lists(some, max_size=4), ranges).map(
        lambda found: bitmap([each for each in found if each <= most])
    )


def array_of(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """The values as a slice of a longer Arrow array, like the columns of a sliced table."""
    kind = arrow_type(data_type)
    return pa.array([None, *values, None], kind).slice(1, len(values))


def schemas(
    *,
    keyed: bool | None = None,
    engines: Sequence[str] = ("deduplicate",),
    types: Sequence[str] | None = None,
) -> st.SearchStrategy[Shape]:
    """Tables to create, as `Shape`: columns, keys, partitions and options that fit together.

    `keyed`: with a primary key, without one, or both (None). `engines` are the merge engines of
    tables with a key: `deduplicate`, `first-row`, `partial-update`, `aggregation`. `types` are the
    types, as Paimon states them, of the columns that are no keys and have no aggregate function.
    Aggregate functions are those whose result does not depend on compaction and leaves no order
    open.

    Raises InvalidRequest for an unknown engine or type.

        @given(shape=schemas(keyed=True, engines=["deduplicate", "partial-update"]))
        def test_create(shape): ...
    """
    chosen = TYPE_NAMES if types is None else tuple(types)
    if unknown := [*{*engines} - {*ENGINES}, *{*chosen} - {*POOLS}]:
        raise InvalidRequest(
            "no such merge engine or type to draw",
            given=sorted(unknown),
            engines=ENGINES,
            types=TYPE_NAMES,
        )
    found: list[st.SearchStrategy[Shape]] = []
    if keyed is not False:
        found += [_of_engine(engine, FREE if types is None else chosen) for engine in engines]
        if "deduplicate" in engines:
            found.append(keyed_shapes(chosen))
    if keyed is not True:
        found.append(append_shapes(chosen))
    return st.one_of(found)


@st.composite
def _of_engine(draw: st.DrawFn, engine: str, types: Sequence[str]) -> Shape:
    merging = draw(mergings(engine, regroups=True, exact=True, types=types))
    options = {**merging.shape.options, **draw(FILES)}
    taken = kinds_of(options)
    kinds = tuple(kind for kind in merging.kinds if kind in taken)
    return Shape(
        columns=merging.shape.columns,
        primary_keys=merging.shape.primary_keys,
        options=options,
        kinds=kinds,
    )


def rows(
    schema: TableSchema | Shape, *, kinds: bool = True, max_size: int = 8
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists of rows of a table, as dictionaries that `write` and `Model.write` take.

    With `kinds`, a row of a table with a primary key has `_row_kind`, one of the kinds that the
    table takes; in a table with `rowkind.field`, that column has them. Rows may be equal, and keys
    repeat often.

        @given(data=st.data())
        def test_write(data):
            table.write(data.draw(rows(shape)))
    """
    shape = schema if isinstance(schema, Shape) else None
    stated = schema.schema if isinstance(schema, Shape) else schema
    taken = shape.kinds if shape is not None else kinds_of(stated.options)
    taken = taken if kinds and stated.primary_keys else ("+I",)
    of_kind = stated.parsed_options().rowkind_field
    columns = {
        field.name: st.sampled_from(taken) if field.name == of_kind else _column(field, stated)
        for field in stated.fields
    }
    if kinds and stated.primary_keys and of_kind is None:
        columns[ROW_KIND] = st.sampled_from(taken)
    return st.lists(st.fixed_dictionaries(columns), max_size=max_size)


def _column(field: Field, schema: TableSchema) -> st.SearchStrategy[Any]:
    prefix = f"fields.{field.name}."
    own = {
        option.removeprefix(prefix): text
        for option, text in schema.options.items()
        if option.startswith(prefix)
    }
    function = own.pop("aggregate-function", None)
    if field.name in schema.primary_keys:
        return key_values(field.type)
    if function is not None:
        case = Case(function=function, type=str(field.type), options=own)
        return values_for(case, wide=False)
    if not isinstance(field.type, Atomic):
        return values_of(field.type)
    return values(field.type)


def options() -> st.SearchStrategy[dict[str, str]]:
    """Options of the layout of rows in files and memory, which must not change any row.

    The options fit every table, as options of `create_table` or of `table.copy`: formats, file and
    buffer sizes, statistics, manifests.

        @given(neutral=options())
        def test_law(neutral):
            catalog.create_table("d.t", columns, options=neutral)
    """
    plain_writes = WRITES.filter(lambda each: not {*each} & {*_NOT_NEUTRAL})
    return st.tuples(FILES, MANIFESTS, plain_writes).map(
        lambda drawn: {key: text for each in drawn for key, text in each.items()}
    )


_NOT_NEUTRAL = ("write-only", "full-compaction.delta-commits")
"""Options that decide when a table compacts, which adds snapshots."""


# --- engine draws ---------------------------------------------------------------------------------
# Tables of every merge engine, and rows for them: few keys, so that most rows are contested.

ENGINES = ("deduplicate", "first-row", "aggregation", "partial-update")
KEYS = ("INT", "BIGINT", "STRING", "DECIMAL(30, 5)", "DATE", "BOOLEAN", "TINYINT", "DOUBLE")
SEQUENCES = ("INT", "STRING", "DOUBLE", "TIMESTAMP(6)", "DECIMAL(30, 5)", "BOOLEAN")
FREE = ("INT", "STRING", "DECIMAL(4, 2)", "DOUBLE", "BOOLEAN", "TIMESTAMP_LTZ(6)", "ARRAY<INT>")
ADDS = ("+I", "+I", "+U")
ALL_KINDS = ("+I", "+I", "+U", "-U", "-D")
ANY_TYPE = ("last_value", "last_non_null_value", "first_value", "first_non_null_value")

EXACT_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(18, 0)", "DECIMAL(38, 10)")
"""Types whose sums do not depend on the order of addition."""
SUMS = [case for case in CASES if case.function == "sum" and case.type in EXACT_TYPES]
COMMUTING = [
    *SUMS,
    *(
        case
        for case in CASES
        if case.function in ("max", "min", "bool_and", "bool_or", "rbm32", "rbm64")
    ),
]
"""Functions whose result does not depend on the order of values."""
ASSOCIATIVE = [
    *COMMUTING,
    *(
        case
        for case in CASES
        if case.function in {*ANY_TYPE, "listagg", "collect", "merge_map", "nested_partial_update"}
    ),
]
"""Functions for which neighbouring values may be folded first."""


@dataclass(frozen=True, kw_only=True)
class Merging:
    """A table to merge: its columns and options, its functions, and the kinds of its rows."""

    shape: Shape
    cases: dict[str, Case] = field(default_factory=dict)
    kinds: tuple[str, ...] = ALL_KINDS

    @property
    def schema(self) -> TableSchema:
        return self.shape.schema

    @property
    def engine(self) -> str:
        return self.shape.options["merge-engine"]

    @property
    def removes(self) -> bool:
        """Whether a -D may remove a record."""
        return any("remove-record" in option for option in self.shape.options)

    def values(self, name: str) -> st.SearchStrategy[Any]:
        """Values of a column."""
        data_type = parse_type(self.shape.columns[name])
        if name in self.shape.primary_keys:
            return st.sampled_from(pool(parse_type(self.shape.columns[name].split(" NOT")[0]))[:2])
        case = self.cases.get(name)
        return values_of(data_type) if case is None else values_for(case, wide=False)

    def rows(self, max_size: int) -> st.SearchStrategy[list[tuple[str, dict[str, Any]]]]:
        """Rows of the table with their kinds."""
        columns = {name: self.values(name) for name in self.shape.columns}
        row = st.tuples(st.sampled_from(self.kinds), st.fixed_dictionaries(columns))
        return st.lists(row, min_size=1, max_size=max_size)

    def comparable(self, name: str, value: Any) -> Any:
        """A value of a column in normal form; see `same_values`."""
        case = self.cases.get(name)
        return plain(value) if case is None else case.comparable(value)


def kinds_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of rows that a table with these options takes."""
    default = options.get("fields.default-aggregate-function", "last_value")
    engine = options.get("merge-engine", "deduplicate")
    heeded = [
        function
        for option, function in options.items()
        if option.endswith(".aggregate-function")
        and option.removesuffix("aggregate-function") + "ignore-retract" not in options
    ]
    bare = engine == "partial-update" and not any(
        "sequence-group" in name or "remove-record" in name for name in options
    )
    takes_back = engine != "first-row" and not bare and {default, *heeded} <= RETRACTING
    if takes_back or options.get("ignore-delete") == "true":
        return ALL_KINDS
    return (*ADDS, "-U") if options.get("ignore-update-before") == "true" else ADDS


def _exact(functions: Sequence[Case]) -> list[Case]:
    """The functions whose results are equal value by value."""
    return [
        case
        for case in functions
        if not case.function.startswith("rbm")
        and same_order(case.function, case.data_type, case.options)
    ]


@st.composite
def mergings(
    draw: st.DrawFn,
    engine: str,
    *,
    regroups: bool = False,
    exact: bool = False,
    types: Sequence[str] = FREE,
) -> Merging:
    """Tables of a merge engine.

    `regroups`: only tables for which Paimon guarantees that neighbouring rows may be merged first.
    `exact`: only functions with one possible result. `types`: the types of columns without a
    function.
    """
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    columns = {f"k{index}": f"{name} NOT NULL" for index, name in enumerate(keys)}
    primary = tuple(columns)
    options = {"bucket": "1", "merge-engine": engine}
    kinds = draw(st.sampled_from([ADDS, ALL_KINDS, ALL_KINDS]))
    ordered_by_user = engine == "deduplicate" or not regroups
    if engine != "first-row" and ordered_by_user and draw(st.integers(0, 2)) == 0:
        names = draw(st.lists(st.sampled_from(SEQUENCES), min_size=1, max_size=2))
        columns |= {f"s{index}": name for index, name in enumerate(names)}
        options["sequence.field"] = ",".join(f"s{index}" for index in range(len(names)))
        options["sequence.field.sort-order"] = draw(st.sampled_from(["ascending", "descending"]))
    sums_only = regroups and engine == "aggregation" and kinds != ADDS
    free = [] if sums_only else draw(st.lists(st.sampled_from(types), max_size=3))
    columns |= {f"v{index}": name for index, name in enumerate(free)}
    cases: dict[str, Case] = {}
    match engine:
        case "aggregation":
            functions = SUMS if sums_only else ASSOCIATIVE if regroups else CASES
            cases = draw(_aggregates(options, _exact(functions) if exact else functions))
        case "partial-update":
            functions = COMMUTING if regroups else CASES
            functions = _exact(functions) if exact else functions
            cases = draw(_groups(columns, options, functions, types, regroups=regroups))
    columns |= {name: case.type for name, case in cases.items()}
    _take_back(draw, options, cases, kinds, regroups=regroups)
    columns = {name: columns[name] for name in draw(st.permutations([*columns]))}
    shape = Shape(columns=columns, primary_keys=primary, options=options)
    return Merging(shape=shape, cases=cases, kinds=kinds)


def _take_back(
    draw: st.DrawFn,
    options: dict[str, str],
    cases: dict[str, Case],
    kinds: Sequence[str],
    *,
    regroups: bool,
) -> None:
    """Options for retractions; sometimes a table with retractions gets no such option."""
    engine = options["merge-engine"]
    in_groups = any(option.endswith("sequence-group") for option in options)
    if kinds == ADDS:
        return
    removes = any("remove-record" in option for option in options)
    if engine == "first-row" or (not removes and draw(st.integers(0, 6)) == 0):
        options[draw(st.sampled_from(["ignore-delete", "ignore-update-before"]))] = "true"
        return
    if engine == "aggregation" and not regroups and draw(st.integers(0, 2)) == 0:
        options["aggregation.remove-record-on-delete"] = "true"
        return
    if engine == "partial-update" and not in_groups:
        options["partial-update.remove-record-on-delete"] = "true"
    for name, case in cases.items():
        if case.function not in RETRACTING and draw(st.integers(0, 9)) > 0:
            options[f"fields.{name}.ignore-retract"] = "true"


@st.composite
def _aggregates(
    draw: st.DrawFn, options: dict[str, str], functions: Sequence[Case]
) -> dict[str, Case]:
    """Columns with functions, and sometimes a default function for other columns."""
    drawn = draw(st.lists(st.sampled_from(functions), min_size=1, max_size=3))
    cases = {f"a{index}": case for index, case in enumerate(drawn)}
    _set_functions(options, cases)
    if draw(st.booleans()):
        options["fields.default-aggregate-function"] = draw(st.sampled_from(ANY_TYPE))
    return cases


@st.composite
def _groups(
    draw: st.DrawFn,
    columns: dict[str, str],
    options: dict[str, str],
    functions: Sequence[Case],
    types: Sequence[str],
    *,
    regroups: bool,
) -> dict[str, Case]:
    """Sequence groups, each of new columns: some with functions, some without."""
    cases: dict[str, Case] = {}
    removing = []
    for group in range(draw(st.integers(0, 2))):
        order = draw(st.lists(st.sampled_from(SEQUENCES), min_size=1, max_size=2))
        ordering = {f"g{group}{index}": name for index, name in enumerate(order)}
        bare = draw(st.lists(st.sampled_from(types), max_size=2))
        plain_columns = {f"b{group}{index}": name for index, name in enumerate(bare)}
        drawn = draw(st.lists(st.sampled_from(functions), max_size=2))
        own = {f"a{group}{index}": case for index, case in enumerate(drawn)}
        columns |= ordering | plain_columns
        cases |= own
        members = [*plain_columns, *own] or [*ordering][:1]
        options[f"fields.{','.join(ordering)}.sequence-group"] = ",".join(members)
        removing.append(next(iter(ordering)))
    _set_functions(options, cases)
    if removing and not regroups and draw(st.integers(0, 2)) == 0:
        chosen = draw(st.sampled_from([removing[:1], removing]))
        options["partial-update.remove-record-on-sequence-group"] = ",".join(chosen)
    if draw(st.integers(0, 3)) == 0:
        options["fields.default-aggregate-function"] = "last_non_null_value"
    return cases


def _set_functions(options: dict[str, str], cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        options[f"fields.{name}.aggregate-function"] = case.function
        options |= {f"fields.{name}.{key}": value for key, value in case.options.items()}
