"""Messages of DuckDB as a cause and facts, without what only makes sense in DuckDB itself.

Dropped: the class of the error, the line of a text that lakecore has rewritten, advice to change
settings, names of lakecore's views, and suggestions that no user can follow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OWN", "cause", "syntax_hint"]

OWN = "_lakecore_"
"""The beginning of every name that lakecore gives to objects in DuckDB."""
_CLASS = re.compile(r"\A(?:[A-Z][A-Za-z]* ){1,3}?Error: ")
_LINE = re.compile(r"\n\nLINE \d+: .*", re.DOTALL)
_OWN_NAME = re.compile(rf'"?\b(?:memory\.main\.)?{OWN}\w+"?( AS )?|\b(?:memory|temp)\.main\.')
_SETTING = re.compile(r"\b(?:SET|PRAGMA|INSTALL|LOAD) ")
_SENTENCE = re.compile(r"(?<=[.!]) (?=[A-Z])")
_LITERALS = {"STRING_LITERAL": "VARCHAR", "INTEGER_LITERAL": "INTEGER"}
_PYTHON = re.compile(r"\.? Detail: Python exception: .*", re.DOTALL)
_READING = re.compile(r"\A(?:.*?reading the Arrow source failed: )(?:\w+(?: \w+)?: )?", re.DOTALL)
_COLUMN = re.compile(r'(?:Referenced column|does not have a column named|Column) "?(.+?)"?(?: |\Z)')
_TABLE = re.compile(r'Referenced table "(.+?)" not found')
_THING = re.compile(r'((?:\w+ )?Function|Type|Table) with name "?(.+?)"? does not exist')
_CANDIDATES = re.compile(r"Candidate (?:bindings|tables|Entries):[ :]*(.*)")
_SIGNATURE = re.compile(r"^\t(\S.* -> .*)$", re.MULTILINE)
_SUGGESTED = re.compile(r'Did you mean "(.+?)"')
_SIGNATURES_MAX = 3
_CALLED = re.compile(r"argument types '([^(]+)\(")
_WRITTEN = {"<=>": "x IS NOT DISTINCT FROM y", "map": "MAP {'key': value}"}
_INSTEAD = {
    "add_months": "time + INTERVAL 1 MONTH",
    "array_agg": "list(x)",
    "charindex": "strpos(text, part)",
    "collect_list": "list(x)",
    "collect_set": "list(DISTINCT x)",
    "date_add": "time + INTERVAL 1 DAY",
    "date_format": "strftime(time, '%Y-%m-%d')",
    "date_sub": "time - INTERVAL 1 DAY",
    "explode": "unnest(list)",
    "from_unixtime": "to_timestamp(seconds)",
    "get_json_object": "json_extract_string(text, path)",
    "instr": "strpos(text, part)",
    "listagg": "string_agg(x, ',')",
    "locate": "strpos(text, part)",
    "map_from_arrays": "map(keys, values)",
    "named_struct": "{'name': value}",
    "nvl": "coalesce(x, y)",
    "nvl2": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
    "percentile": "quantile_cont(x, 0.5)",
    "percentile_approx": "approx_quantile(x, 0.5)",
    "posexplode": "unnest(list) WITH ORDINALITY",
    "proctime": "now()",
    "rlike": "regexp_matches(text, pattern)",
    "size": "len(list)",
    "str_to_date": "strptime(text, '%Y-%m-%d')",
    "timestampadd": "time + INTERVAL 1 DAY",
    "timestampdiff": "date_diff('day', start, end)",
    "to_date": "CAST(text AS DATE), or strptime(text, format)",
    "to_unix_timestamp": "epoch(time)",
    "unix_timestamp": "epoch(time), or epoch(now())",
}
"""What DuckDB has in place of functions of Flink and Spark, by name."""


_OTHER_SYNTAX = [
    (re.compile(before, re.IGNORECASE), re.compile(after, re.IGNORECASE), write)
    for before, after, write in (
        (r"", r"(rlike|regexp)\b", "regexp_matches(text, pattern)"),
        (r"", r"lateral\b", "CROSS JOIN unnest(list) AS u(x)"),
        (r"\btop\s*\Z", r"\d", "LIMIT at the end"),
        (r"\blimit\s+\w+\s*\Z", r",", "LIMIT rows OFFSET first"),
        (r"", r"@", "t VERSION AS OF 1, or t TIMESTAMP AS OF '...'"),
        (r"", r"(sort|distribute|cluster)\b", "ORDER BY"),
        (r"", r"minus\b", "EXCEPT"),
    )
]


def cause(text: str) -> tuple[str, Mapping[str, object]]:
    r"""What DuckDB's message says, as a sentence and facts about unknown names.

    cause('Binder Error: Referenced column "itm" not found in FROM clause!\n...')
    # ("unknown column", {"column": "itm", "did_you_mean": "item", "columns": ["item", "id"]})
    """
    said = _PYTHON.sub("", _CLASS.sub("", _LINE.sub("", text.strip())))
    said = _READING.sub("", said)
    for literal, kind in _LITERALS.items():
        said = said.replace(literal, kind)
    first, _, rest = said.partition("\n")
    known = [name.strip(' "') for name in _listed(rest)]
    known = [name for name in known if not name.startswith(OWN)]
    thing, column, table = (each.search(first) for each in (_THING, _COLUMN, _TABLE))
    if thing is not None:
        return _missing(thing[1].lower(), thing[2], _SUGGESTED.search(rest))
    if table is not None:
        facts = {"table": table[1], **did_you_mean(table[1], known)}
        return "the query has no table of this name", {
            **facts,
            **({"tables": known} if known else {}),
        }
    if column is not None and ("not found" in first or "does not have" in first):
        name = column[1]
        without = "; the query has no FROM" if "FROM clause is missing" in first else ""
        facts = {"column": name, **did_you_mean(name, known)}
        return f"unknown column{without}", {**facts, **({"columns": known} if known else {})}
    sentences = [each for each in _SENTENCE.split(first) if not _SETTING.search(each)]
    sentences += [line for line in rest.splitlines() if line.startswith("Either ")]
    plain = _OWN_NAME.sub("", " ".join(sentences)).rstrip(" .!:")
    called = _CALLED.search(first)
    if called is not None and called[1] in _WRITTEN:
        return _lowered(plain), {"write": _WRITTEN[called[1]]}
    signatures = _SIGNATURE.findall(rest)[:_SIGNATURES_MAX]
    return _lowered(plain), {"such_as": signatures} if signatures else {}


def syntax_hint(text: str, place: int) -> str:
    """What to write in place of other systems' syntax at a syntax error; empty if unknown."""
    for before, after, write in _OTHER_SYNTAX:
        if before.search(text[:place]) and after.match(text, place):
            return f"; write {write}"
    return ""


def _listed(rest: str) -> list[str]:
    found = _CANDIDATES.search(rest)
    return found[1].split(", ") if found is not None and found[1] else []


def _missing(
    kind: str, name: str, suggested: re.Match[str] | None
) -> tuple[str, dict[str, object]]:
    what = kind.rpartition(" ")[2]
    facts: dict[str, object] = {what: name}
    instead = _INSTEAD.get(name.lower()) if what == "function" else None
    if instead is not None:
        facts["write"] = instead
    elif suggested is not None and what != "table":
        facts |= did_you_mean(name, [suggested[1]])
    return f"no such {kind.replace('scalar ', '')}", facts


def _lowered(sentence: str) -> str:
    """The sentence with a small first letter, unless it starts with a name in capitals."""
    starts_word = sentence[1:2].islower() or sentence[1:2] == " "
    return sentence[:1].lower() + sentence[1:] if starts_word else sentence
