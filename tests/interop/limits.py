"""What the peers cannot do, each with its reason. A limit is a claim, and the tests check it.

Where a limit holds for a case, the peer must be seen to refuse, or to give other rows: a limit that
no longer holds fails its test. What has no limit here must work. So nothing is left out silently.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.interop.model import Case

JAVA = "java-1.4.2"
JAVA_OLD = "java-0.9.0"
JAVA_NEW = "java-2.0.0"
"""It meets the tests of what happens over time; the exchange of values is with the others."""
PYPAIMON = "pypaimon"
RUST = "paimon-rust"
LAKECORE = "lakecore"
TRIES = 3
# Java 1.4.2 again, in a zone of its own.
JAVA_SHANGHAI = "java-1.4.2-shanghai"
PEERS = (JAVA, JAVA_OLD, PYPAIMON, RUST)

_INT64_NANOS = "takes the int64 nanoseconds of Arrow's Parquet for something else; Java has INT96"
_AVRO_NANOS = "Avro has no timestamps finer than microseconds"
_ORC_1970 = "ORC stores the last second before 1970 with the wrong second (12, ORC-763)"
_ORC_CALENDAR = "ORC in Java counts days before 1582 in the Julian calendar, and back otherwise"
_ORC_NANOS = "Arrow holds every ORC timestamp as int64 nanoseconds, which end in 1677 and 2262"
_NEGATIVE_NANOS = "Arrow's ORC writer stores fractions before 1970 as negative nanoseconds"
_MULTISET = "pypaimon has no Arrow type for MULTISET"


# To filter is to read with a condition; to relay is to go on writing where another engine left off.
Verb: TypeAlias = Literal["write", "read", "filter", "relay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`peers` cannot do `verb` where a case has all of `where` (and any of `any_of`, if given)."""

    peers: frozenset[str]
    verb: Verb
    where: frozenset[str]
    any_of: frozenset[str]
    writers: frozenset[str]
    how: Literal["refuses", "differs"]
    says: str
    because: str

    def holds(self, peer: str, verb: Verb, features: frozenset[str], writer: str) -> bool:
        return (
            peer in self.peers
            and verb == self.verb
            and self.where <= features
            and (not self.any_of or bool(self.any_of & features))
            and (not self.writers or writer in self.writers)
        )

    def fits(self, reason: str) -> bool:
        """Whether a refusal for this reason is the one that the limit speaks of."""
        return self.how == "refuses" and re.search(self.says, reason) is not None


def limit(peer: str, verb: Verb, features: frozenset[str], writer: str = "") -> Limit | None:
    """The limit that keeps a peer from writing a case, or from reading what `writer` wrote."""
    for found in LIMITS:
        if found.holds(peer, verb, features, writer):
            return found
    return None


def claims(writer: str, readers: Iterable[str], features: frozenset[str]) -> frozenset[Limit]:
    """The limits that tell how it ends when `writer` writes a case and `readers` read it."""
    found = [limit(writer, "write", features)]
    if found == [None]:
        found = [limit(reader, "read", features, writer) for reader in readers]
    return frozenset(each for each in found if each is not None)


def tried(writer: str, readers: Iterable[str], cases: Iterable[Case]) -> Iterator[Case]:
    """The cases without limits, and a few for each limit: many more would say nothing new."""
    seen: Counter[Limit] = Counter()
    for case in cases:
        claimed = claims(writer, readers, case.features)
        if not claimed or any(seen[each] < TRIES for each in claimed):
            yield case
        seen.update(claimed)


def _limit(
    peers: str | Iterable[str],
    verb: Verb,
    *where: str,
    because: str,
    says: str | None = None,
    any_of: Iterable[str] = (),
    writers: Iterable[str] = (),
) -> Limit:
    """A limit; one that says nothing gives other rows."""
    return Limit(
        peers=frozenset([peers] if isinstance(peers, str) else peers),
        verb=verb,
        where=frozenset(where),
        any_of=frozenset(any_of),
        writers=frozenset(writers),
        how="differs" if says is None else "refuses",
        says=says or "",
        because=because,
    )


def _stamps(role: str, precisions: Iterable[int]) -> list[str]:
    zones = ("", " WITH LOCAL TIME ZONE")
    return [f"{role}:TIMESTAMP({p}){zone}" for p in precisions for zone in zones]


_NANO_VALUES = [*_stamps("value", (7, 9)), "value:ARRAY<TIMESTAMP(9)>"]
_BEFORE_1970 = ("the last second before 1970", "the last nanosecond before 1970")
_NESTED_AVRO = (
    *("value:ARRAY<INT>", "value:ARRAY<ARRAY<STRING>>", "value:ARRAY<DATE>", "value:ARRAY<BYTES>"),
    *("value:ARRAY<DECIMAL(5, 2)>", "value:ARRAY<DECIMAL(38, 10)>", "value:ARRAY<TIMESTAMP(3)>"),
    "value:ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>",
    "value:ARRAY<ROW<a TIMESTAMP(6), b BYTES>>",
)

LIMITS: tuple[Limit, ...] = (
    _limit(
        LAKECORE,
        "write",
        "format:orc",
        any_of=(
            *_BEFORE_1970,
            *(f"{unit}seconds before 1970" for unit in ("milli", "micro", "nano")),
        ),
        says="before 1970 with a fraction",
        because=_NEGATIVE_NANOS + ", so it refuses them",
    ),
    _limit(
        LAKECORE,
        "write",
        "format:orc",
        "value:ROW<x INT NOT NULL, y ROW<z BIGINT, w TIMESTAMP(3)>>",
        says="null ROW inside a ROW",
        because="Arrow's ORC writer puts what follows such a null one place too late",
    ),
    # ------------------------------------------------------------------------- what no writer can
    _limit(
        (JAVA, JAVA_OLD, LAKECORE),
        "write",
        "format:avro",
        any_of=_NANO_VALUES,
        says="Avro does not support TIMESTAMP|avro stores timestamps with|Avro has TIMESTAMP up",
        because=_AVRO_NANOS,
    ),
    _limit((PYPAIMON, RUST), "write", "value:MULTISET", says="Unsupported data", because=_MULTISET),
    _limit((PYPAIMON, RUST), "read", "value:MULTISET", says="Unsupported data", because=_MULTISET),
    # ------------------------------------------------------------------------------ paimon-rust
    *(
        _limit(
            RUST,
            "write",
            f"format:{name}",
            says="the writer is Python's",
            because="pypaimon writes only Parquet through Rust",
        )
        for name in ("orc", "avro")
    ),
    *(
        _limit(
            RUST,
            verb,
            any_of=("partition:FLOAT", "partition:DOUBLE"),
            says="not supported as partition key|the writer is Python's",
            because="Rust has no floating point partitions",
        )
        for verb in ("write", "read")
    ),
    # --------------------------------------------------------------------------------- pypaimon
    _limit(
        (JAVA, PYPAIMON, RUST),
        "read",
        "option:dynamic-bucket.target-row-num=20",
        writers=(PYPAIMON,),
        because="pypaimon counts no deletions in its files, so a lone file is read with them",
    ),
    _limit(
        PYPAIMON,
        "write",
        "format:avro",
        any_of=_NANO_VALUES,
        says="Avro does not support pyarrow timestamp with unit ns",
        because=_AVRO_NANOS,
    ),
    _limit(
        PYPAIMON,
        "write",
        "format:avro",
        any_of=_NESTED_AVRO,
        says="do not match",
        because="its Avro schema has no nullable elements",
    ),
    _limit(
        PYPAIMON,
        "write",
        "format:avro",
        "value:MAP",
        says="Unsupported pyarrow type for Avro",
        because="it writes no maps to Avro",
    ),
    _limit(
        PYPAIMON,
        "write",
        "format:orc",
        "value:MAP<DATE, TIME(3)>",
        says="unsupported Arrow type: time32",
        because="Arrow's ORC writer has no TIME, and pypaimon converts top-level columns only",
    ),
    _limit(
        PYPAIMON,
        "read",
        "format:orc",
        "value:ROW",
        any_of=(
            "value:ROW<x INT NOT NULL, y ROW<z BIGINT, w TIMESTAMP(3)>>",
            "value:ROW<x INT NOT NULL, y ROW<z DECIMAL(38, 10), w DECIMAL(5, 2)>>",
        ),
        says="cannot cast nullable field to non-nullable",
        because="ORC has no NOT NULL, and Arrow casts no nullable field to one that is not",
    ),
    _limit(
        PYPAIMON,
        "read",
        any_of=_stamps("key", (9,)),
        because="it keys rows by Python's datetime, which ends at microseconds",
    ),
    _limit(
        PYPAIMON,
        "read",
        any_of=_stamps("partition", (9,)),
        says="Failed to open local file",
        because="it names partitions by Python's datetime, which ends at microseconds",
    ),
    # ---------------------------------------------------------------------------------- Java 0.9
    _limit(
        JAVA_OLD,
        "write",
        "option:file.compression=none",
        "format:parquet",
        says="No enum constant .*NONE",
        because="0.9 hands the name to Parquet, where it is `uncompressed`",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "format:parquet",
        "value:ARRAY<STRING NOT NULL>",
        because="0.9 misreads empty Parquet lists of NOT NULL elements",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "format:parquet",
        "value:MULTISET",
        because="0.9 misreads empty Parquet maps of NOT NULL values",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "format:parquet",
        any_of=(
            "value:ROW<x INT NOT NULL, y ROW<z BIGINT, w TIMESTAMP(3)>>",
            "value:ROW<x INT NOT NULL, y ROW<z DECIMAL(38, 10), w DECIMAL(5, 2)>>",
        ),
        says="ArrayIndexOutOfBounds|ClassCast",
        because="0.9 fails on Parquet rows inside rows",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "format:parquet",
        "a row of nulls",
        because="0.9 reads a Parquet row whose fields are all null as null",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "format:parquet",
        any_of=("the last nanosecond before 1970", "nanoseconds before 1970"),
        says="IllegalArgumentException",
        writers=(JAVA, JAVA_OLD),
        because="Java writes INT96 before 1970 with negative nanoseconds, which 0.9 fails on",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "option:data-file.thin-mode=true",
        says="Required column is missing",
        because="thin mode is of 1.0 (12)",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "option:sequence.field.sort-order=descending",
        because="the option is of 1.0; 0.9 silently reads as ascending (12)",
    ),
    _limit(
        JAVA_OLD,
        "read",
        "option:partition.legacy-name=false",
        says="FileNotFoundException",
        because="the option is of 1.0; 0.9 looks for day numbers (01)",
        writers=(JAVA, PYPAIMON, RUST, LAKECORE),
    ),
    _limit(
        (JAVA, LAKECORE),
        "read",
        "option:partition.legacy-name=false",
        says="FileNotFound|is missing",
        because="the option is of 1.0; 0.9 wrote day numbers (01)",
        writers=(JAVA_OLD,),
    ),
    _limit(
        JAVA_OLD,
        "filter",
        "format:parquet",
        any_of=("value:TINYINT", "value:SMALLINT"),
        says="ClassCastException",
        because="0.9 hands small integers to Parquet's filters as they are",
    ),
    _limit(
        (JAVA, JAVA_OLD),
        "filter",
        "format:orc",
        any_of=("value:DATE",),
        because=_ORC_CALENDAR,
    ),
    _limit(
        (JAVA_OLD, PYPAIMON),
        "relay",
        any_of=("option:bucket-function.type=mod", "option:bucket-function.type=hive"),
        because="it does not know bucket functions, and puts keys into the default's buckets",
    ),
    _limit(
        RUST,
        "relay",
        "option:bucket=4",
        any_of=_stamps("key", (9,)),
        because="Rust puts keys of nanoseconds into other buckets than Java",
    ),
    # ----------------------------------------------------------------------------------- ORC
    _limit(
        (JAVA, JAVA_OLD, PYPAIMON, RUST, LAKECORE),
        "read",
        "format:orc",
        any_of=_BEFORE_1970,
        writers=(JAVA, JAVA_OLD),
        because=_ORC_1970,
    ),
    _limit(
        (JAVA, JAVA_OLD, PYPAIMON),
        "read",
        "format:orc",
        "the year 1500",
        writers=(JAVA, JAVA_OLD),
        because=_ORC_CALENDAR,
    ),
    _limit(
        PYPAIMON,
        "read",
        "format:orc",
        any_of=("the year 1500", "the year 9999", "the year 9999 in milliseconds"),
        because=_ORC_NANOS,
    ),
    _limit(
        (RUST, LAKECORE),
        "read",
        "format:orc",
        any_of=("the year 1500", "the year 9999", "the year 9999 in milliseconds"),
        says="Overflow while decoding timestamp|outside the years 1677 to 2262",
        because=_ORC_NANOS,
    ),
    _limit(
        LAKECORE,
        "write",
        "format:orc",
        any_of=("the year 1500", "the year 9999", "the year 9999 in milliseconds"),
        says="outside the years 1677 to 2262",
        because=_ORC_NANOS,
    ),
    _limit(
        (PYPAIMON, RUST),
        "read",
        "format:orc",
        "short CHAR",
        writers=(JAVA, JAVA_OLD),
        because="ORC pads CHAR with blanks, which Java takes off again",
    ),
    # ------------------------------------------------------- what Java makes of the peers' tables
    _limit(
        JAVA,
        "read",
        "format:parquet",
        any_of=("the last nanosecond before 1970", "nanoseconds before 1970"),
        writers=(PYPAIMON, RUST),
        because=_INT64_NANOS,
    ),
    _limit(
        JAVA,
        "read",
        "format:parquet",
        any_of=[*_NANO_VALUES, *_stamps("key", (9,))],
        says="OverflowError|Failed to read batch",
        writers=(PYPAIMON, RUST),
        because=_INT64_NANOS,
    ),
    _limit(
        JAVA,
        "read",
        any_of=_stamps("partition", (9,)),
        writers=(PYPAIMON,),
        because="it names partitions by Python's datetime, which ends at microseconds",
    ),
    _limit(
        (JAVA, LAKECORE),
        "read",
        any_of=_stamps("partition", (9,)),
        says="FileNotFound|is missing",
        writers=(RUST,),
        because="pypaimon decodes Rust's partitions by Python's datetime, and commits what is left",
    ),
    _limit(
        (JAVA, JAVA_OLD),
        "read",
        "format:orc",
        any_of=(*_BEFORE_1970, "microseconds before 1970", "nanoseconds before 1970"),
        says="IllegalArgumentException",
        writers=(PYPAIMON,),
        because=_NEGATIVE_NANOS,
    ),
    _limit(
        RUST,
        "read",
        "format:orc",
        any_of=("the last nanosecond before 1970", "nanoseconds before 1970"),
        writers=(PYPAIMON,),
        because=_NEGATIVE_NANOS,
    ),
    _limit(
        RUST,
        "read",
        "format:orc",
        any_of=(
            "the last second before 1970",
            "milliseconds before 1970",
            "microseconds before 1970",
        ),
        says="Overflow while decoding timestamp",
        writers=(PYPAIMON,),
        because=_NEGATIVE_NANOS,
    ),
)
