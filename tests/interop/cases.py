"""The cases, in families: each a product of what can differ on disk.

| family | product |
|---|---|
| `value_cases` | value type x file format (Parquet: x append or primary key) |
| `key_cases` | key type x buckets (1, 4, dynamic); upserts and deletes |
| `partition_cases` | partition type x append or primary key |
| `bucket_cases` | file format x append or primary key x buckets x partitioned or not, some rows |
| `option_cases` | table options that change what is written or how rows merge |

Nothing is left out here because a peer cannot do it: `limits` says so, and is checked.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from tests.interop.columns import Column, columns, parse_type
from tests.interop.model import Case, case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.interop.columns import Json

FORMATS = ("parquet", "orc", "avro")
BUCKETS = ("1", "4", "-1")
WIDE = 200
# Milliseconds, microseconds and nanoseconds begin at 0, 4 and 7.
PRECISIONS = (0, 1, 3, 4, 6, 7, 9)

_SECONDS = ("1970-01-01T00:00:00", "2024-02-29T23:59:59", "1969-12-31T23:59:58")


def _timestamps(precision: int, suffix: str = "") -> list[Json]:
    digits = f".{'123456789'[:precision]}" if precision else ""
    return [
        f"{second}{fraction}{suffix}"
        for second in _SECONDS
        for fraction in dict.fromkeys(("", digits))
        # What engines make of fractions before 1970 is among the edges.
        if not fraction or second >= "1970"
    ]


VALUES: Mapping[str, Sequence[Json]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [0, 1, -1, 127, -128],
    "SMALLINT": [0, 300, -300, 32767, -32768],
    "INT": [0, 70000, -1, 2147483647, -2147483648],
    "BIGINT": [0, 5000000000, -1, 9223372036854775807, -9223372036854775808],
    "FLOAT": [1.1, -2.5, "0.0", "-0.0", "NaN", "Infinity", "-Infinity", 3.4028234e38, 1e-45],
    "DOUBLE": [1.1, -2.5, "0.0", "-0.0", "NaN", "Infinity", "-Infinity", 1.7e308, 5e-324],
    "CHAR(5)": ["abcde", "é中文😀x"],
    "VARCHAR(10)": ["", "a", "0123456789", "é中文😀"],
    "STRING": [
        "",
        " ",
        "a",
        "abcdefg",
        "abcdefgh",
        "a somewhat longer text, é中文😀",
        "\u0000\n\t",
    ],
    "BINARY(3)": ["00ff10"],
    "VARBINARY(10)": ["", "00", "ff00ff"],
    "BYTES": ["", "deadbeef", "00" * 40, "ff" * 17],
    "DECIMAL(5, 2)": ["0", "1.5", "-999.99", "999.99"],
    "DECIMAL(9, 0)": ["0", "999999999", "-999999999"],
    "DECIMAL(18, 4)": ["0", "-99999999999999.9999", "12345678901234.5678"],
    "DECIMAL(38, 10)": ["0", f"-{'9' * 28}.{'9' * 10}", "0.0000000001", "1.5"],
    "DECIMAL(38, 38)": ["0", f"0.{'1' * 38}", f"-0.{'9' * 38}"],
    "DATE": ["1970-01-01", "2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31"],
    "TIME(0)": ["00:00:00", "23:59:59"],
    "TIME(3)": ["00:00:00", "12:34:56.789", "23:59:59.999"],
    **{f"TIMESTAMP({p})": _timestamps(p) for p in PRECISIONS},
    **{f"TIMESTAMP({p}) WITH LOCAL TIME ZONE": _timestamps(p, "Z") for p in PRECISIONS},
    "ARRAY<INT>": [[], [1, None, 3], [None]],
    "ARRAY<STRING NOT NULL>": [[], ["", "é", "a longer text than fits"]],
    "ARRAY<ARRAY<STRING>>": [[], [["a", None], None, []]],
    "ARRAY<DECIMAL(5, 2)>": [["1.25", None, "-999.99"]],
    "ARRAY<DECIMAL(38, 10)>": [["1.25", None]],
    "ARRAY<DATE>": [["2024-01-01", None]],
    "ARRAY<TIMESTAMP(3)>": [["2024-01-01T00:00:00.123", None]],
    "ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>": [["2024-01-01T00:00:00.123456Z", None]],
    "ARRAY<TIMESTAMP(9)>": [["2024-01-01T00:00:00.123456789", None]],
    "ARRAY<BYTES>": [["", None, "00ff"]],
    "MAP<STRING, BIGINT>": [[], [["a", 1], ["b", None]]],
    "MAP<INT, STRING>": [[], [[1, "x"], [-5, None]]],
    "MAP<STRING, ARRAY<DOUBLE>>": [[["k", [1.5, None]], ["", None]]],
    "MAP<DATE, TIME(3)>": [[["2024-01-01", "12:00:00.001"]]],
    "MULTISET<STRING>": [[], [["a", 2], ["b", 1]]],
    "ROW<x INT, y STRING>": [[1, "a"], [None, "b"], [2, None]],
    "ROW<x INT NOT NULL, y ROW<z BIGINT, w TIMESTAMP(3)>>": [
        [1, [15, "2024-01-01T00:00:00.123"]],
        [2, None],
    ],
    "ROW<x INT NOT NULL, y ROW<z DECIMAL(38, 10), w DECIMAL(5, 2)>>": [[1, ["1.5", "2.5"]]],
    "ARRAY<ROW<a TIMESTAMP(6), b BYTES>>": [[["2024-01-01T00:00:00.123456", "00ff"], None]],
    "MAP<STRING, ROW<a INT, b ARRAY<INT>>>": [[["k", [1, [1, None]]]]],
}

# Values that some engine is known to spoil, each in a table of its own.
EDGES: Mapping[str, tuple[str, Sequence[Json]]] = {
    "short CHAR": ("CHAR(5)", ["", "ab", "é"]),
    "a row of nulls": ("ROW<x INT, y STRING>", [[None, None]]),
    "the last second before 1970": ("TIMESTAMP(6)", ["1969-12-31T23:59:59.999999"]),
    "the last nanosecond before 1970": ("TIMESTAMP(9)", ["1969-12-31T23:59:59.999999999"]),
    "milliseconds before 1970": ("TIMESTAMP(3)", ["1969-12-31T23:59:58.123"]),
    "microseconds before 1970": ("TIMESTAMP(6)", ["1969-12-31T23:59:58.123456"]),
    "nanoseconds before 1970": ("TIMESTAMP(9)", ["1969-12-31T23:59:58.123456789"]),
    "the year 1500": ("TIMESTAMP(6)", ["1500-03-01T00:00:00"]),
    "the day 1500-03-01": ("DATE", ["1500-03-01"]),
    "the year 9999": ("TIMESTAMP(6)", ["9999-12-31T23:59:59.999999"]),
    "the year 9999 in milliseconds": ("TIMESTAMP(3)", ["9999-12-31T23:59:59.999"]),
}

# Types of keys. Java compares floats by `<` and `>`, so NaN equals every key of its file, and -0.0
# equals 0.0: such keys have no right answer.
KEYS: Mapping[str, Sequence[Json]] = {
    name: [1.5, -2.5, 0.1] if name in ("FLOAT", "DOUBLE") else found
    for name, found in VALUES.items()
    if name.split("(")[0].split("<")[0] not in ("ARRAY", "MAP", "MULTISET", "ROW")
    and not name.startswith(tuple(f"TIMESTAMP({p})" for p in (1, 4, 7)))
}

COMPOSITE_KEYS: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Json]]]] = {
    "STRING, BIGINT": (
        ["STRING", "BIGINT"],
        [["a", 1], ["a", 2], ["a somewhat longer text", 1], ["", 0], ["é中文😀", -1]],
    ),
    "DECIMAL, TIMESTAMP, STRING": (
        ["DECIMAL(30, 5)", "TIMESTAMP(6)", "STRING"],
        [
            ["1.5", "2024-01-01T00:00:00.123456", "x"],
            ["123456789012345678901.12345", "2024-01-01T00:00:00.123456", "x"],
            ["-1.5", "2024-01-01T00:00:00", "a text of more than seven bytes"],
            ["1.5", "2024-01-01T00:00:00.123457", ""],
        ],
    ),
}

# Java names the directory of a binary value after the identity of the array in memory, so it does
# not find its own files again.
PARTITIONS: Mapping[str, Sequence[Json]] = {
    name: found
    for name, found in KEYS.items()
    if name.split("(", maxsplit=1)[0] not in ("BINARY", "VARBINARY", "BYTES")
}
PARTITION_TEXTS = ("a", "a/b=c d%:é", "x'y\"z", "#1 {2} [3]", "中文", "__x__", "a+b&c?d")


def _kept(family: Callable[[], Iterator[Case]]) -> Callable[[], tuple[Case, ...]]:
    return cache(lambda: tuple(family()))


def all_cases() -> Iterator[Case]:
    """Every case of every family."""
    yield from value_cases()
    yield from key_cases()
    yield from partition_cases()
    yield from bucket_cases()
    yield from option_cases()


@_kept
def value_cases() -> Iterator[Case]:
    """One column of each type beside a key."""
    named = {name: (name, found) for name, found in VALUES.items()} | dict(EDGES)
    for file_format in FORMATS:
        for keyed in (False, True) if file_format == "parquet" else (True,):
            # The value columns of other formats are written in one way for both kinds of table.
            for label, (kind, found) in named.items():
                rows: list[Sequence[Json]] = [[i, value] for i, value in enumerate(found)]
                yield case(
                    f"{file_format}-{'pk' if keyed else 'append'}-{label}",
                    columns(k="INT", v=kind),
                    [[("+I", row) for row in [*rows, [100, None]]]],
                    primary_keys=["k"] if keyed else [],
                    options={"file.format": file_format} | ({"bucket": "1"} if keyed else {}),
                    tags=() if label == kind else (label,),
                )


@_kept
def key_cases() -> Iterator[Case]:
    """Keys of each type, updated, deleted and inserted again, in each kind of bucket."""
    single = {name: ([name], [[value] for value in found]) for name, found in KEYS.items()}
    for buckets in BUCKETS:
        for label, (kinds, found) in {**single, **COMPOSITE_KEYS}.items():
            names = [f"k{i}" for i in range(len(kinds))]
            fields = [
                Column(name, parse_type(kind)) for name, kind in zip(names, kinds, strict=True)
            ]
            yield case(
                f"key {label} in {buckets}",
                [*fields, *columns(v="INT")],
                _upserts(found),
                primary_keys=names,
                options={"bucket": buckets},
            )


@_kept
def partition_cases() -> Iterator[Case]:
    """Partitions of each type."""
    texts: list[Json] = list(PARTITION_TEXTS)
    for label, found in {**PARTITIONS, "STRING": texts, "VARCHAR(10)": texts}.items():
        for keyed in (False, True):
            more: list[Json] = [] if keyed else [None, *([""] if label == "STRING" else [])]
            rows: list[Sequence[Json]] = [[value, i, i] for i, value in enumerate([*found, *more])]
            again: list[tuple[str, Sequence[Json]]] = [("+I", [found[0], 0, 100])]
            if keyed:
                again.append(("-D", rows[-1]))
            yield case(
                f"partition {label} {'pk' if keyed else 'append'}",
                columns(p=label, k="INT", v="BIGINT"),
                [[("+I", row) for row in rows], again],
                primary_keys=["p", "k"] if keyed else [],
                partition_keys=["p"],
                options={"bucket": "2"} if keyed else {},
            )


@_kept
def bucket_cases() -> Iterator[Case]:
    """Some rows in each kind of bucket, partitioned or not, in each file format."""
    for file_format in FORMATS:
        for keyed in (False, True):
            for buckets in BUCKETS:
                for partitioned in (False, True):
                    yield _wide_case(
                        f"{file_format}-{'pk' if keyed else 'append'}-bucket {buckets}"
                        f"{'-partitioned' if partitioned else ''}",
                        {"file.format": file_format, "bucket": buckets},
                        keyed=keyed,
                        partitioned=partitioned,
                    )


# Options beside `bucket=4` on a primary-key table, and what is special about them.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "sequence.field": {"sequence.field": "seq"},
    "two sequence fields": {"sequence.field": "seq,v"},
    "descending sequence": {"sequence.field": "seq", "sequence.field.sort-order": "descending"},
    "ignore-delete": {"ignore-delete": "true"},
    "small dynamic buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "20"},
    "bucket-key": {"bucket-key": "k2"},
    "bucket function mod": {"bucket-key": "k1", "bucket-function.type": "mod"},
    "bucket function hive": {"bucket-function.type": "hive"},
    "write-only": {"write-only": "true"},
    "input changelog": {"changelog-producer": "input"},
    "no statistics": {"metadata.stats-mode": "none"},
    "counts only": {"metadata.stats-mode": "counts"},
    "full statistics": {"metadata.stats-mode": "full"},
    "sparse statistics": {"metadata.stats-dense-store": "false"},
    "some statistics": {"fields.v.stats-mode": "none", "fields.note.stats-mode": "counts"},
    "thin mode": {"data-file.thin-mode": "true"},
    "many small manifests": {"manifest.merge-min-count": "2", "manifest.target-file-size": "1 kb"},
    "uncompressed": {"file.compression": "none"},
    "zstd 9": {"file.compression": "zstd", "file.compression.zstd-level": "9"},
    "uncompressed manifests": {"manifest.compression": "null"},
    "file names": {
        "data-file.prefix": "part-",
        "file.suffix.include.compression": "true",
    },
}


@_kept
def option_cases() -> Iterator[Case]:
    """Tables whose options change what is written, or how rows merge."""
    for label, options in OPTIONS.items():
        yield _wide_case(f"with {label}", {"bucket": "4", **options}, keyed=True, partitioned=False)
    yield _wide_case(
        "with dates as names",
        {"bucket": "2", "partition.legacy-name": "false"},
        keyed=True,
        partitioned=True,
    )
    for codec in ("none", "lz4", "snappy", "gzip"):
        yield _wide_case(
            f"append with {codec}", {"file.compression": codec}, keyed=False, partitioned=False
        )


def _wide_case(name: str, options: Mapping[str, str], *, keyed: bool, partitioned: bool) -> Case:
    """Three commits over composite keys: inserts; updates, deletes and inserts; and once more."""
    chance = random.Random(name)
    fields = columns(
        k1="BIGINT", k2="STRING", p="DATE", seq="INT", v="DECIMAL(12, 2)", note="STRING"
    )
    commits: list[list[tuple[str, Sequence[Json]]]] = []
    for number in range(3):
        changes: list[tuple[str, Sequence[Json]]] = []
        size = WIDE if number == 0 else WIDE // 2
        drawn = chance.choices(range(WIDE), k=size)
        # Java 1.4.2 heeds the descending order between files, but not within one flush.
        for key in dict.fromkeys(drawn) if "sequence.field.sort-order" in options else drawn:
            kind = "-D" if keyed and number and chance.random() < 0.3 else "+I"
            cents = chance.randrange(-(10**6), 10**6)
            note = chance.choice([None, "", f"note {key}", "é中文😀" * 20])
            row: Sequence[Json] = [
                key - WIDE // 2,
                f"key {key % 7}",
                # A key stays in its partition.
                f"2024-01-0{1 + key % 3}",
                chance.randrange(5) if "sequence.field" in options else number,
                f"{cents / 100:.2f}",
                note,
            ]
            changes.append((kind, row))
        commits.append(changes)
    keys = ["p", "k1", "k2"] if partitioned else ["k1", "k2"]
    more = {} if keyed or options.get("bucket", "-1") == "-1" else {"bucket-key": "k1,k2"}
    return case(
        name,
        fields,
        commits,
        primary_keys=keys if keyed else [],
        partition_keys=["p"] if partitioned else [],
        options={**options, **more},
    )


def _upserts(keys: Sequence[Sequence[Json]]) -> list[list[tuple[str, Sequence[Json]]]]:
    """All keys; every other one updated and the second deleted; that one back, the first gone."""
    return [
        [("+I", [*key, i]) for i, key in enumerate(keys)],
        [
            *(("+I", [*key, 100 + i]) for i, key in enumerate(keys) if i % 2 == 0),
            *(("-D", [*key, 1]) for key in keys[1:2]),
        ],
        [*(("+I", [*key, 200]) for key in keys[1:2]), *(("-D", [*key, None]) for key in keys[:1])],
    ]
