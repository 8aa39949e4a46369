"""Generated rows: temporary tables with `'connector' = 'datagen'`, with Flink's options.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/datagen/

A value depends only on the seed, its row number and its column. So rows are generated in batches of
any size, column by column, and nothing is stored. Without `number-of-rows` and without a column of
the kind `sequence`, the number of rows is unbounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import STRINGS, TIMESTAMPS, Atomic, Field, arrow_field
from lakecore.options.kinds import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

CONNECTOR = "datagen"
_OPTION = re.compile(r"fields\.(?P<column>.+)\.(?P<setting>[a-z-]+)")
_SETTINGS = {
    "random": frozenset({"kind", "min", "max", "length", "null-rate", "max-past"}),
    "sequence": frozenset({"kind", "start", "end"}),
}
_RATE, _ROWS = "rows-per-second", "number-of-rows"
_RATE_DEFAULT = 10_000
_LENGTH_DEFAULT = 100
_LENGTH_MAX = 1 << 20
_BATCH_ROWS = 65_536
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_DAYS_SPAN, _DAY_MS = 365, 86_400_000
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_PER_WORD = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column and how its values are generated. `least` and `most` are inclusive."""

    name: str
    root: str
    kind: str
    arrow: pa.DataType
    least: float
    most: float
    length: int
    null_rate: float
    past_ms: int | None


@dataclass(slots=True, kw_only=True)
class Generator:
    """A temporary table of generated rows.

    `batch` holds the rows of the current step of a streaming INSERT; a query then reads only these.
    """

    name: str
    columns: tuple[_Column, ...]
    rows_per_second: int
    rows_max: int | None
    seed: int
    now_ms: int
    batch: pa.Table | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([pa.field(each.name, each.arrow) for each in self.columns])

    def table(self) -> pa.Table | pa.RecordBatchReader:
        """The rows that a query reads. Raises InvalidRequest if their number is unbounded."""
        if self.batch is not None:
            return self.batch
        if self.rows_max is None:
            raise InvalidRequest(
                "the generated rows have no end: INSERT INTO ... SELECT streams them, and the "
                "option 'number-of-rows' ends them",
                table=self.name,
            )
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(self.rows_max))

    def rows(self, first: int, count: int) -> pa.Table:
        """`count` rows from row number `first` on; fewer if the generator ends before that."""
        left = count if self.rows_max is None else max(0, min(count, self.rows_max - first))
        numbers = np.arange(first, first + left, dtype=np.uint64)
        arrays = [self._values(place, each, numbers) for place, each in enumerate(self.columns)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _batches(self, count: int) -> Iterator[pa.RecordBatch]:
        for first in range(0, count, _BATCH_ROWS):
            yield from self.rows(first, min(_BATCH_ROWS, count - first)).to_batches()

    def _values(self, place: int, column: _Column, numbers: NDArray[np.uint64]) -> pa.Array:
        if column.kind == "sequence":
            return pa.array(numbers.astype(np.int64) + int(column.least)).cast(column.arrow)
        bits = _mixed(numbers, self.seed, place)
        values = self._random(column, bits, numbers, place)
        if not column.null_rate:
            return values
        nulls = _unit(_mixed(numbers, self.seed, place + 7_919)) < column.null_rate
        return pc.if_else(pa.array(nulls), pa.scalar(None, values.type), values)

    def _random(
        self, column: _Column, bits: NDArray[np.uint64], numbers: NDArray[np.uint64], place: int
    ) -> pa.Array:
        if column.root == "BOOLEAN":
            return pa.array(bits & np.uint64(1) == 1)
        if column.root in STRINGS:
            return self._texts(column, numbers, place).cast(column.arrow)
        if column.root in _BITS:
            span = np.uint64((int(column.most) - int(column.least) + 1) % (1 << 64))
            steps = bits % span if span else bits
            start = np.uint64(int(column.least) % (1 << 64))
            with np.errstate(over="ignore"):
                return pa.array((steps + start).view(np.int64)).cast(column.arrow)
        if column.root in {"FLOAT", "DOUBLE"}:
            spread = _unit(bits) * (column.most - column.least) + column.least
            return pa.array(spread).cast(column.arrow)
        if column.root == "DECIMAL":
            spread = _unit(bits) * (column.most - column.least) + column.least
            return pc.cast(pa.array(spread), column.arrow, safe=False)
        past = column.past_ms or 0
        if column.root == "DATE":
            days = self.now_ms // _DAY_MS - (bits % np.uint64(past // _DAY_MS + 1)).astype(np.int64)
            return pa.array(days.astype(np.int32)).cast(pa.date32())
        back = (bits % np.uint64(past + 1)).astype(np.int64)
        return pa.array(self.now_ms - back).cast(pa.timestamp("ms")).cast(column.arrow)

    def _texts(self, column: _Column, numbers: NDArray[np.uint64], place: int) -> pa.Array:
        """Strings of hexadecimal digits, as Flink generates them, all of the same length."""
        size = column.length
        digits = np.empty((len(numbers), size), dtype=np.uint8)
        for word in range(0, size, _PER_WORD):
            bits = _mixed(numbers, self.seed, place + 104_729 * (word + 1))
            for digit in range(word, min(word + _PER_WORD, size)):
                shift = np.uint64(4 * (digit - word))
                digits[:, digit] = _HEX[((bits >> shift) & np.uint64(15)).astype(np.int64)]
        ends = np.arange(len(numbers) + 1, dtype=np.int32) * size
        return pa.Array.from_buffers(
            pa.string(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(digits)]
        )


def generator_of(
    name: str, fields: Sequence[Field], options: Mapping[str, str], *, seed: int, now_ms: int
) -> Generator:
    """The generator of a CREATE TEMPORARY TABLE. Raises InvalidRequest for wrong options."""
    names = [each.name for each in fields]
    if not names:
        raise InvalidRequest("a generated table needs columns", table=name)
    settings: dict[str, dict[str, str]] = {each: {} for each in names}
    for key, value in options.items():
        found = _OPTION.fullmatch(key)
        if key in {_RATE, _ROWS}:
            continue
        if found is None or found["column"] not in settings:
            raise InvalidRequest(
                "datagen has no such option",
                option=key,
                known=[_RATE, _ROWS, "fields.COLUMN.kind|min|max|length|start|end|null-rate"],
                columns=names,
            )
        settings[found["column"]][found["setting"]] = value
    columns = tuple(_column(each, settings[each.name]) for each in fields)
    ends = [int(each.most) - int(each.least) + 1 for each in columns if each.kind == "sequence"]
    rows = _whole(_ROWS, options[_ROWS], 0) if _ROWS in options else None
    ends += [] if rows is None else [rows]
    return Generator(
        name=name,
        columns=columns,
        rows_per_second=_whole(_RATE, options.get(_RATE, str(_RATE_DEFAULT)), 1),
        rows_max=min(ends) if ends else None,
        seed=seed,
        now_ms=now_ms,
    )


def _column(given: Field, settings: Mapping[str, str]) -> _Column:
    kind = settings.get("kind", "random")
    name, what = given.name, given.type
    if kind not in _SETTINGS:
        raise InvalidRequest("a column is random or a sequence", column=name, kind=kind)
    strange = sorted(set(settings) - _SETTINGS[kind])
    if strange:
        raise InvalidRequest(
            f"a column of the kind {kind} has no such setting",
            column=name,
            settings=strange,
            known=sorted(_SETTINGS[kind]),
        )
    if not isinstance(what, Atomic) or what.root not in _SUPPORTED:
        raise Unsupported("datagen makes no values of this type", column=name, type=str(what))
    root, arrow = str(what.root), arrow_field(given).type
    if kind == "sequence":
        if root not in _BITS or not {"start", "end"} <= set(settings):
            raise InvalidRequest(
                "a sequence is a column of whole numbers with 'start' and 'end'", column=name
            )
        least, most = (_number(name, key, settings[key], whole=True) for key in ("start", "end"))
    else:
        least, most = _bounds(name, root, arrow, settings)
    if least > most:
        raise InvalidRequest("the least value is larger than the largest", column=name)
    rate = float(_number(name, "null-rate", settings.get("null-rate", "0")))
    if not 0 <= rate <= 1:
        raise InvalidRequest("null-rate is a number from 0 to 1", column=name, value=rate)
    length = _whole(f"fields.{name}.length", settings.get("length", str(_length_of(what))), 1)
    if length > _LENGTH_MAX or ("length" in settings and root not in STRINGS):
        raise InvalidRequest("'length' is for texts, and at most 1048576", column=name)
    return _Column(
        name=name,
        root=root,
        kind=kind,
        arrow=arrow,
        least=least,
        most=most,
        length=length,
        null_rate=rate,
        past_ms=_past(name, root, settings),
    )


_SUPPORTED = {*_BITS, *STRINGS, "BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL", "DATE", *TIMESTAMPS}


def _bounds(
    name: str, root: str, arrow: pa.DataType, settings: Mapping[str, str]
) -> tuple[float, float]:
    whole = root in _BITS
    if {"min", "max"} & set(settings) and not (whole or root in {"FLOAT", "DOUBLE", "DECIMAL"}):
        raise InvalidRequest("'min' and 'max' are for numbers", column=name)
    if whole:
        half = 1 << (_BITS[root] - 1)
        lowest: float = -half
        highest: float = half - 1
    elif root == "DECIMAL":
        highest = 10.0 ** (arrow.precision - arrow.scale) - 1
        lowest = -highest
    else:
        lowest, highest = 0.0, 1.0
        if {"min", "max"} & set(settings):
            lowest, highest = -1e30, 1e30
    found = []
    for key, default in (("min", lowest), ("max", highest)):
        value = _number(name, key, settings[key], whole=whole) if key in settings else default
        if not lowest <= value <= highest:
            raise InvalidRequest(
                "the bound is out of the range of the type", column=name, bound=key
            )
        found.append(value)
    return found[0], found[1]


def _past(name: str, root: str, settings: Mapping[str, str]) -> int | None:
    if "max-past" not in settings:
        return _DAYS_SPAN * _DAY_MS if root == "DATE" else 0
    if not root.startswith(("TIMESTAMP", "DATE")):
        raise InvalidRequest("'max-past' is for dates and timestamps", column=name)
    try:
        return parse_duration(settings["max-past"])
    except ValueError as error:
        raise InvalidRequest(f"max-past is {error}", column=name) from error


def _length_of(what: Atomic) -> int:
    given = getattr(what, "length", None)
    return min(given, _LENGTH_DEFAULT) if isinstance(given, int) else _LENGTH_DEFAULT


def _number(column: str, key: str, text: str, *, whole: bool = False) -> float:
    try:
        return int(text) if whole else float(text)
    except ValueError as error:
        raise InvalidRequest(
            "the setting is a number", option=f"fields.{column}.{key}", value=text
        ) from error


def _whole(option: str, text: str, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise InvalidRequest(
            f"the option is a whole number, at least {least}", option=option, value=text
        )
    return int(text)


def _mixed(numbers: NDArray[np.uint64], seed: int, place: int) -> NDArray[np.uint64]:
    """64 random bits for each row number (SplitMix64)."""
    start = np.uint64((seed * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03) % (1 << 64))
    with np.errstate(over="ignore"):
        mixed = (numbers + start) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The bits as numbers in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) / float(1 << 53)
