"""Random columns to merge: the types of each aggregate function, its options, and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lakecore.merge.aggregators import sketches
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Map,
    Root,
    Row,
    Variant,
    arrow_type,
    parse_type,
)
from lakecore.testing.aggregates import same_values
from lakecore.testing.table_draws import POOLS, pool_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
