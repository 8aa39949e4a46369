"""What lakecore and Java Paimon 1.4.2 are known to do differently, each with its reason.

Two ways to treat one: histories that meet it are not drawn (`NOT_DRAWN` says where), or they are
drawn with a tag, and compared as far as both are defined (`TAGGED`).
"""

from __future__ import annotations

from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.differential.steps import (
    Alter,
    Branch,
    Compact,
    Expire,
    Overwrite,
    Tag,
    Untag,
    Write,
)
from tests.interop import limits, values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.differential.history import History
    from tests.differential.steps import Changes, Step
    from tests.interop.columns import Type


class Difference(Enum):
    """How far two engines can be compared."""

    NONE = auto()
    # What a writer makes of one commit differs; of one table both engines read the same.
    TABLES = auto()


FOLDED_ALONE = "folded without the older rows"

TAGGED: Mapping[str, tuple[Difference, str]] = {
    "begins with a retraction": (
        Difference.TABLES,
        (
            "a merge of partial-update that begins with a row that retracts starts from that row's "
            "values in 1.4.2, as if they had been added; lakecore starts from nothing, as 0.9 does"
        ),
    ),
    FOLDED_ALONE: (
        Difference.TABLES,
        (
            "1.4.2 folds the rows of a flush, or of a compaction of newer runs, even if that loses "
            "what they take back from older rows; lakecore keeps such rows apart (decision 0200)"
        ),
    ),
}

# What lakecore may refuse alone, by a part of its words.
REFUSED: Mapping[str, str] = {
    "leaves the range of its type": (
        "sums and products of integers that overflow wrap around in 1.4.2; 2.1 refuses them, too"
    ),
    "leaves null in a NOT NULL column": "Java refuses it, too, but not of every type and format",
    "does not accept rows of kind": (
        "Java lets rows of a kind in that the table can never merge; then it cannot be read"
    ),
    "cannot retract rows of kind": "the same, of a function",
    "a CHAR column cannot be in the primary key if it lacks partition keys": (
        "keys move between partitions by the rows that files hold, and ORC takes blanks off"
    ),
    "the partition was written with another number of buckets": (
        "1.4.2 compares the number only with the files of the buckets that it writes to"
    ),
}

# What Java may refuse alone, of a compaction after a rollback.
REFUSED_BY_JAVA: Mapping[str, str] = {
    "with a new bucket num": (
        "the rollback went to before a change of the number of buckets: Java asks for the number "
        "that the schema states; lakecore compacts the buckets that there are"
    ),
}

NOT_DRAWN: Mapping[str, str] = {
    "NaN, and both zeros, in keys and sequence fields": (
        "Java compares keys by `<` and `>`, so NaN equals every key and -0.0 equals 0.0"
    ),
    "a descending sequence, and a key twice in one commit": (
        "1.4.2 heeds the direction between files, but not within one flush"
    ),
    "sums of DECIMALs of up to 18 digits that overflow": (
        "Java writes values of more digits than the type has; lakecore makes them null, as of more"
    ),
    "an aggregate function of a key column": "Java takes no notice of it; lakecore refuses it",
    "first-row with binary keys": "1.4.2 cannot look them up when it compacts (ClassCastException)",
    "collect of rows": "1.4.2 cannot compare rows that come from a file",
    "collect of binaries": "1.4.2 takes equal ones for different, unless they are one object",
    "both zeros in ORC": "Java reads a batch of them as the first, for they are equal by `==`",
    "collect with distinct, aggregation.remove-record-on-delete: an element twice in a list": (
        "the list of the -D stands as it is in Java if only retractions follow; lakecore leaves "
        "each element once"
    ),
    "sums of floats that round": "they depend on the order in which files are merged",
    "partial-update.remove-record-on-delete: a -U after a -D": (
        "it brings the record back in Java; lakecore ignores it, as the option says"
    ),
    "first_non_null_value in a sequence group: null, and rows that take back, which leave null": (
        "of a row with an older sequence Java takes even a null for the first value"
    ),
    "max and min of BOOLEAN": "1.4.2 cannot compare truths, as 2.1 and lakecore can",
    "nested_update: nulls in a list, a key twice in one": (
        "1.4.2 takes the first list of a merge as it is; 2.1 and lakecore leave those out"
    ),
    "partial-update: a merge that begins with a retraction, where readers meet it": (
        "as the tag above says, but then no two readers agree either"
    ),
    "fractions of seconds before 1970, years that ORC has not, a null ROW inside a ROW in ORC": (
        "see tests.interop.limits"
    ),
    "lookup: rows that take back, sequence groups, functions that change a lone value": (
        "1.4.2 runs the merge function on the only row of a key, and tells (and, below the last "
        "level, stores) what it makes of it, which is not what a read showed before"
    ),
    "lookup, and deletion vectors, with binary keys": "as of first-row",
    "row-deduplicate with floats, arrays, maps and multisets": (
        "1.4.2 compares some of them by `==`, some by their bytes, and no array with a null in it "
        "equals another unless both are in binary form; lakecore compares their values"
    ),
    "an overwrite that leaves deletions, and a changelog of compactions": (
        "they lie in the last level, and 1.4.2 tells the deletion of what was never there"
    ),
    "another name for a column that an option names": (
        "1.4.2 reads no snapshot from before: it takes the schema of then, and the options of now"
    ),
    "verbs of partial-update under changelog-producer=input": (
        "a row of lakecore's holds the parts that it sets, and so does the changelog; Java has no "
        "verbs, and `verbs` stands whole rows in for them"
    ),
    "a new column beside groups and a default function": "both take it, and no row after that",
    "another type for a DATE that is NOT NULL": (
        "1.4.2 knows the casts of a DATE that may be null alone: it refuses the change, and reads "
        "no file of before; lakecore casts both alike"
    ),
    "a column moved to where it is": "1.4.2 refuses it; lakecore leaves it there",
    "nested-sequence-field, nested-key-null-strategy": "1.4.2 has neither",
    "keys across partitions: retractions of engines that fold rows": (
        "Java puts a row into the partition that its key is in as a row that adds, so that a -D "
        "adds, too; lakecore keeps its kind"
    ),
    "keys across partitions: rowkind.field": (
        "Java reads the kind of a deletion in the old partition from the new row's column, so the "
        "key stays in both partitions"
    ),
    "record-level expiry in compactions that are not full, or with look-ups": (
        "Java drops expired rows there, too, and older rows of their keys come back"
    ),
    "a relay of postponed rows with a MULTISET of other types than texts": (
        "the postponed bucket holds Avro, and Java casts the elements to text when it writes it"
    ),
    "a stream of Java's over such rows of lakecore's": (
        "without a changelog it reads the postponed bucket, and cannot read these elements either"
    ),
    "postponed rows, and file.compression none or lz4": (
        "the postponed bucket holds Avro: Java hands it the name, and it knows neither; lakecore "
        "refuses lz4, too"
    ),
    "postponed rows, changelog-producer=full-compaction: a compaction not full": (
        "Java's table has one bucket and lakecore's has several, so that one may reach the last "
        "level, and tell its changes, when the other does not"
    ),
    "blanks at the end of CHAR": "ORC pads with blanks, and Java takes all of them off again",
}


def known(history: History) -> Difference:
    """How far the engines can be compared on this history."""
    for tag in history.tags:
        if tag in TAGGED:
            return TAGGED[tag][0]
    return Difference.NONE


def excused(reason: str) -> bool:
    """Whether lakecore may refuse this alone."""
    return any(words in reason for words in REFUSED)


def excused_of_java(reason: str, step: Step | None, *, rolled_back: bool) -> bool:
    """Whether Java may refuse this step alone."""
    known_words = any(words in reason for words in REFUSED_BY_JAVA)
    return rolled_back and isinstance(step, Compact) and known_words


def may_stream(history: History, writer: str) -> bool:
    """Whether Java can stream this writer's table."""
    postponed = history.layout == "postponed" and history.producer == "none"
    return not (postponed and writer == limits.LAKECORE and spoils_avro(history))


def spoils_avro(history: History) -> bool:
    """Whether a MULTISET in a column has elements that Java does not write to Avro, or read."""
    return any(_spoils_avro(each.type) for shape in history.shapes for each in shape.columns)


def _spoils_avro(kind: Type) -> bool:
    types = [child.type for child in kind.children]
    return (kind.root == "MULTISET" and types[0].root not in values.TEXTS) or any(
        _spoils_avro(each) for each in types
    )


def comparable(history: History) -> bool:
    """Whether what is postponed is moved next, and merges begin as they may.

    No merge of partial-update begins with a retraction, unless the tag says so.
    """
    if history.layout == "postponed" and not _moves_next(history.steps):
        return False
    ignoring = history.table.options.get("ignore-delete") == "true"
    if history.engine != "partial-update" or ignoring or "begins with a retraction" in history.tags:
        return True
    begun: set[str] = set()
    inline = history.table.options.get("write-only") != "true"
    for step, shape in zip(history.steps, history.shapes, strict=False):
        if isinstance(step, (Alter, Tag, Untag, Branch, Expire)):
            continue
        if not isinstance(step, Write):
            # A full compaction drops deletions, so the next row of a key may be its first; what
            # else takes rows away may take the first of a key.
            begun.clear()
        if isinstance(step, (Write, Overwrite)):
            at = history.keys(shape)
            keys = [repr([row[index] for index in at]) for _, row in step.changes]
            if not _begins_well(step.changes, keys, begun):
                return False
            if inline:
                # The compaction that comes with the write drops deletions, too.
                begun.clear()
    return True


def _moves_next(steps: Sequence[Step]) -> bool:
    """Whether compactions follow writes: anything else finds the rows in Java's table alone."""
    return all(
        isinstance(then, (Write, Compact))
        for step, then in pairwise(steps)
        if isinstance(step, Write)
    )


def _begins_well(changes: Changes, keys: list[str], begun: set[str]) -> bool:
    for number, (key, (kind, _)) in enumerate(zip(keys, changes, strict=True)):
        alone = key in begun and keys.count(key) == 1
        if kind in ("-U", "-D") and key not in keys[:number] and not alone:
            return False
    begun.update(keys)
    return True
