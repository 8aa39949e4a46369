"""Runs queries of Spark SQL over attached tables: pruned, with time travel and system tables.

1. The mentions of attached tables in the text are found. Spark's planner refuses `VERSION AS OF`,
   `TIMESTAMP AS OF` and `t$snapshots` for a Python source, and has no `table_changes`.
2. Spark optimizes the query over probes, and the plan shows which columns and rows of each mention
   the query needs (`pushdown.py`).
3. The mentions are replaced by frames of these columns and rows; the rest of the text is passed to
   Spark unchanged. All mentions of a table read one snapshot.

If step 2 is impossible (Spark Connect has no plan, or a mention was no table), tables without time
travel stay as they are, and Spark reads them whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakecore import InvalidRequest, LakecoreError, Table, Unsupported
from lakecore.distributed import SYSTEM_TABLES, Kind, TableContext, Token, Travel, tokenize
from spark_bridge.attach_tables import attached_table
from spark_bridge.bucket_sql import quoted
from spark_bridge.plan_read import Pinned, pin, read_schema
from spark_bridge.pushdown import EVERYTHING, NOTHING, Need, needs_of, probe
from spark_bridge.read_frame import changes, read, read_needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# --- sql strings ---------------------------------------------------------------------------------
# Strings of Spark's SQL that lakecore's tokenizer would read in another way.
#
# In a string, Spark reads a backslash as an escape: `'it\\'s'` is one string. lakecore's tokenizer
# has DuckDB's rules. Such strings are therefore masked, at the same places. A statement without
# expressions (CREATE TABLE) instead gets plain strings with the values that Spark reads.

_SPARK = re.compile(
    r"""
      --[^\n]* | /\*.*?\*/ | `(?:[^`]|``)*`
    | (?P<raw>[rR](?:'[^']*'|"[^"]*")) | \w+
    | (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    """,
    re.VERBOSE | re.DOTALL,
)


def masked(text: str) -> str:
    """The text, in the same length, without backslashes and escaped characters."""
    if "\\" not in text:
        return text
    return _SPARK.sub(_mask, text)


def unmasked(part: str, text: str) -> str:
    """The original of `part`, the end of a masked text. Raises Unsupported for any other part."""
    if not masked(text).endswith(part):
        require_plain(text)
        return part
    head = text[: len(text) - len(part)]
    require_plain(head)
    return text[len(head) :]


def require_plain(text: str) -> None:
    """Raise Unsupported for strings that Spark and lakecore read in two ways.

    Such strings have a backslash, or double quotes, which name a column in DuckDB.
    """
    if any((each["string"] or "").startswith('"') for each in _SPARK.finditer(text)):
        raise Unsupported(
            'Spark reads "x" as a string, and lakecore reads it as a name in this statement: write '
            "'x' for a string, `x` for a name"
        )
    if masked(text) != text:
        raise Unsupported(
            "lakecore reads no backslash in the strings of this statement, where Spark and DuckDB "
            "read two values: write a quote as '', and other characters as chr(92) || 'n'"
        )


def plain(spark: SparkSession, text: str) -> str:
    """The text, with every string in plain form, with the value that Spark reads."""

    def one(found: re.Match[str]) -> str:
        literal = found["raw"] or found["string"]
        if literal is None or (literal.startswith("'") and "\\" not in literal):
            return found[0]
        value = str(spark.sql(f"SELECT {literal}").collect()[0][0])
        return "'" + value.replace("'", "''") + "'"

    return _SPARK.sub(one, text)


def spelled_string(value: str) -> str:
    """The string as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _mask(found: re.Match[str]) -> str:
    part = found[0]
    if found["string"] is None or "\\" not in part:
        return part
    return part[0] + "x" * (len(part) - 2) + part[-1]


# --- sql query -----------------------------------------------------------------------------------

_NAMES = {Kind.WORD, Kind.QUOTED}
_UNITS = {"VERSION": "VERSION", "SYSTEM_VERSION": "VERSION"} | dict.fromkeys(
    ("TIMESTAMP", "SYSTEM_TIME"), "TIMESTAMP"
)
_AFTER_TABLE = re.compile(
    "ANTI|CLUSTER|CROSS|DISTRIBUTE|EXCEPT|FETCH|FULL|GROUP|HAVING|INNER|INTERSECT|JOIN|LATERAL|LEFT"
    "|LIMIT|MINUS|NATURAL|OFFSET|ON|ORDER|PIVOT|QUALIFY|RIGHT|SELECT|SEMI|SORT|TABLESAMPLE|UNION"
    "|UNPIVOT|USING|WHEN|WHERE|WINDOW|WITH"
)
"""Words that are no alias after the name of a table."""
_PROBE = "lakecore_probe_{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    context: TableContext
    pinned: Pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A table in the text of a query: its place, an alias if the text has none, and what to read.

    `plain`: Spark itself could read the table by its name.
    """

    start: int
    end: int
    alias: str
    source: DataFrame | _State
    plain: bool


def query(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a query."""
    mentions = list(_mentions(spark, text))
    try:
        needs = _needs(spark, text, mentions)
    except (PySparkException, Py4JError, AttributeError):
        # Without a plan: through Spark Connect, or for an error, which the query raises itself.
        needs = {}
        mentions = [mention for mention in mentions if not mention.plain]
    frames = [
        read_needed(
            spark, mention.source.context, mention.source.pinned, needs.get(number, EVERYTHING)
        )
        if isinstance(mention.source, _State)
        else mention.source
        for number, mention in enumerate(mentions)
    ]
    return _filled(spark, text, mentions, frames)


def _needs(spark: SparkSession, text: str, mentions: Sequence[_Mention]) -> Mapping[int, Need]:
    """What the query needs of each mention, by Spark's optimizer; none for a missing number."""
    states = {n: each.source for n, each in enumerate(mentions) if isinstance(each.source, _State)}
    if not states:
        return {}
    frames = [
        probe(spark, _PROBE.format(number), _schema(mention.source))
        if isinstance(mention.source, _State)
        else mention.source
        for number, mention in enumerate(mentions)
    ]
    found = needs_of(_filled(spark, text, mentions, frames))
    return {number: found.get(_PROBE.format(number), NOTHING) for number in states}


def _schema(state: _State) -> StructType:
    return read_schema(state.context.history.schema(state.pinned.schema_id))


def _filled(
    spark: SparkSession, text: str, mentions: Sequence[_Mention], frames: Sequence[DataFrame]
) -> DataFrame:
    """The query with frames in the places of the mentions."""
    if not mentions:
        return spark.sql(text)
    pieces: list[str] = []
    copied = 0
    for number, mention in enumerate(mentions):
        pieces += [_literal(text[copied : mention.start]), f"{{lakecore_{number}}}"]
        if mention.alias:
            pieces.append(f" AS {quoted(mention.alias)}")
        copied = mention.end
    named = {f"lakecore_{number}": frame for number, frame in enumerate(frames)}
    return spark.sql("".join([*pieces, _literal(text[copied:])]), **named)


def _literal(text: str) -> str:
    """The text with doubled braces: `spark.sql` reads single braces as placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _mentions(spark: SparkSession, text: str) -> Iterator[_Mention]:
    tokens = tokenize(masked(text))
    names = _Names.of(spark, tokens)
    place = 0
    while tokens[place].kind is not Kind.END:
        chain, end = chain_at(text, tokens, place)
        found = (
            None
            if not chain
            else _system(spark, chain, end) or _past(spark, text, tokens, chain, end)
        )
        if found is None and chain == ["table_changes"]:
            found = _changes(spark, tokens, end)
        if found is None and chain and place and _opens_table(tokens[place - 1]):
            state = names.state(chain)
            found = None if state is None else (state, end - 1)
        if found is None:
            place = max(end, place + 1)
            continue
        source, last = found
        after = tokens[last + 1]
        named = after.kind in _NAMES and not _AFTER_TABLE.fullmatch(after.word)
        alias = "" if named or after.word == "TABLESAMPLE" else chain[-1]
        yield _Mention(
            start=tokens[place].start,
            end=tokens[last].end,
            alias=alias,
            source=source,
            plain=last == end - 1 and isinstance(source, _State),
        )
        place = last + 1


def chain_at(text: str, tokens: Sequence[Token], place: int) -> tuple[list[str], int]:
    """The names separated by dots that start at a token, and the index of the token after them."""
    names: list[str] = []
    while tokens[place].kind in _NAMES and text[tokens[place].start] != '"':
        names.append(tokens[place].value)
        place += 1
        if tokens[place].value != "." or tokens[place].kind is not Kind.OTHER:
            break
        place += 1
    return names, place


def _opens_table(token: Token) -> bool:
    return token.word in {"FROM", "JOIN"} or (token.kind is Kind.OTHER and token.value == ",")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Which names of a query are attached tables. `session` is None if none is replaced.

    `ctes`: names that the query itself defines. `states`: the tables found so far.
    """

    spark: SparkSession
    session: JavaObject | None
    ctes: frozenset[str]
    states: dict[tuple[str, str], _State] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: SparkSession, tokens: Sequence[Token]) -> _Names:
        try:
            session = spark._jsparkSession  # noqa: SLF001  Spark's only way
        except (PySparkException, AttributeError):
            session = None
        return cls(spark=spark, session=session, ctes=_ctes(tokens))

    def state(self, chain: Sequence[str]) -> _State | None:
        """The newest state of an attached table; None for other names.

        None also for a table under CACHE TABLE: Spark then reads the cached rows.
        """
        session = self.session
        found = None if session is None else attached_table(self.spark, chain)
        if session is None or found is None or (len(chain) == 1 and self._is_other(chain[0])):
            return None
        if not session.sharedState().cacheManager().isEmpty() and self.spark.catalog.isCached(
            ".".join(map(quoted, chain))
        ):
            return None
        database, name = found
        key = database.name, name
        if key not in self.states:
            try:
                context = database.session.get_table(f"{database.name}.{name}").context
                self.states[key] = _State(context=context, pinned=pin(context, Travel()))
            except LakecoreError:
                # Spark raises the error if the name is that of a table.
                return None
        return self.states[key]

    def _is_other(self, name: str) -> bool:
        """Whether the query or a temporary view defines the name."""
        assert self.session is not None, "the caller checks"
        catalog = self.session.sessionState().catalog()
        return name.lower() in self.ctes or catalog.getTempView(name).isDefined()


def _ctes(tokens: Sequence[Token]) -> frozenset[str]:
    """The names that are defined by `name AS (` or `name (...) AS (`, in lower case."""
    found = set()
    for place, token in enumerate(tokens[:-1]):
        if token.word != "AS" or tokens[place + 1].value != "(":
            continue
        before = place - 1
        if tokens[before].value == ")":
            before = max(at for at in range(before) if tokens[at].value == "(") - 1
        found.add(tokens[before].value.lower())
    return frozenset(found)


def _system(
    spark: SparkSession, chain: Sequence[str], end: int
) -> tuple[DataFrame | _State, int] | None:
    """The frame of a system table, and the index of its last token; None for other names."""
    base, mark, system = chain[-1].rpartition("$")
    if not mark or system.lower() not in SYSTEM_TABLES:
        return None
    found = attached_table(spark, [*chain[:-1], base])
    if found is None:
        return None
    table = found[0].session.get_table(f"{found[0].name}.{found[1]}")
    return read(spark, table.inspect.system_table(system.lower())), end - 1


def _past(
    spark: SparkSession, text: str, tokens: Sequence[Token], chain: Sequence[str], end: int
) -> tuple[DataFrame | _State, int] | None:
    """The state for `VERSION AS OF` or `TIMESTAMP AS OF`, and the index of its last token."""
    place = end + (tokens[end].word == "FOR")
    unit = _UNITS.get(tokens[place].word)
    words = [tokens[each].word for each in range(place + 1, min(place + 3, len(tokens)))]
    if unit is None or words != ["AS", "OF"]:
        return None
    found = attached_table(spark, chain)
    if found is None:
        return None
    table = found[0].session.get_table(f"{found[0].name}.{found[1]}")
    moment, last = _moment(text, tokens, place + 3)
    return _at(spark, table, unit, moment), last


def _changes(
    spark: SparkSession, tokens: Sequence[Token], place: int
) -> tuple[DataFrame | _State, int] | None:
    """The frame for `table_changes('t', start [, end])`, and the index of its last token."""
    ends = [at for at in range(place, len(tokens)) if tokens[at].value == ")"]
    given = [] if not ends else [each for each in tokens[place + 1 : ends[0]] if each.value != ","]
    kinds = [each.kind for each in given]
    if kinds not in ([Kind.STRING, Kind.NUMBER], [Kind.STRING, Kind.NUMBER, Kind.NUMBER]):
        return None
    found = attached_table(spark, given[0].value.split("."))
    if found is None:
        return None
    table = found[0].session.get_table(f"{found[0].name}.{found[1]}")
    numbers = [int(each.value) for each in given[1:]]
    # `table_changes` includes its first snapshot, `changes` does not.
    return changes(spark, table, numbers[0] - 1, *numbers[1:]), ends[0]


def _moment(text: str, tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """The text of a version or a time, and the index of its last token."""
    first = last = place
    if tokens[place].value == "(" and tokens[place].kind is Kind.OTHER:
        depth = 0
        while True:
            if tokens[last].kind is Kind.END:
                raise InvalidRequest("a parenthesis has no end", text=text)
            depth += (tokens[last].value == "(") - (tokens[last].value == ")")
            if not depth:
                break
            last += 1
    elif tokens[place].word in {"TIMESTAMP", "DATE"} and tokens[place + 1].kind is Kind.STRING:
        last += 1
    elif tokens[place].kind not in {Kind.STRING, Kind.NUMBER}:
        raise InvalidRequest(
            "the version or time of a table is a literal, or an expression in parentheses",
            given=text[tokens[place].start : tokens[place].end],
        )
    return text[tokens[first].start : tokens[last].end], last


def _at(spark: SparkSession, table: Table, unit: str, moment: str) -> _State:
    if unit == "TIMESTAMP":
        value = spark.sql(f"SELECT unix_millis(CAST({moment} AS TIMESTAMP)) AS ms").collect()[0].ms
        if value is None:
            raise InvalidRequest("the time of a table is null", given=moment)
        context, travel = table.context, Travel(timestamp=int(value))
    else:
        version = spark.sql(f"SELECT CAST({moment} AS STRING) AS version").collect()[0].version
        if version is None:
            raise InvalidRequest("the version of a table is null", given=moment)
        context, travel = table.copy({"scan.version": version}).context, Travel()
    return _State(context=context, pinned=pin(context, travel))
