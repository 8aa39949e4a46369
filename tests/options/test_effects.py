"""An option that is accepted has an effect here, or its declaration says why it has none."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from lakecore.options import DECLARED, Effect
from tests.reference_pages import describe_options

ROOT = Path(__file__).parents[2]
PACKAGES = ("lakecore", "spark_bridge", "pyspark_lakecore")

# Attributes that nothing reads: the text of the key is looked up before the options are parsed.
READ_AS_TEXT = {
    "auto-create": "lakecore/session.py",
    "commit.single-writer": "lakecore/io/stores/remote.py",
    "deletion-vectors.modifiable": "lakecore/options/parse.py",
    "lakecore.ignore-options": "lakecore/options/kinds.py",
}
# Options without an effect whose value is still looked at, to refuse what would be wrong.
LOOKED_AT: dict[str, str] = {}


@cache
def readers() -> dict[str, frozenset[str]]:
    """The files that read an attribute, by its name; declarations and schema rules do not count."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            own = name.startswith("lakecore/options/") and not name.endswith("table_options.py")
            if own or name == "lakecore/model/option_rules.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    found[node.attr].add(name)
    return {attribute: frozenset(names) for attribute, names in found.items()}


def test_every_option_that_is_said_to_act_is_read() -> None:
    unread = [
        known.key
        for attribute, known in DECLARED.items()
        if known.supported
        and not known.no_effect
        and known.key not in READ_AS_TEXT
        and not readers().get(attribute)
    ]

    assert unread == []


def test_options_that_are_read_as_text_are_named_where_they_are_read() -> None:
    for key, path in READ_AS_TEXT.items():
        assert f'"{key}"' in (ROOT / path).read_text(), key


def test_no_option_that_is_said_to_have_no_effect_is_read() -> None:
    acting = {
        known.key: sorted(readers()[attribute])
        for attribute, known in DECLARED.items()
        if known.no_effect and readers().get(attribute)
    }

    assert acting == {key: [path] for key, path in LOOKED_AT.items()}


def test_every_option_acts_is_refused_or_says_why_it_has_no_effect() -> None:
    attributes = {known.key for known in DECLARED.values()}
    silent = [
        known.key
        for known in describe_options()
        if known.key not in attributes and known.supported and not known.no_effect
    ]

    assert silent == []
    for known in describe_options():
        assert not (known.no_effect and not known.supported), known.key
        assert known.no_effect == "" or known.no_effect.endswith("."), known.key
        assert known.effect is not Effect.NOTHING or known.no_effect, known.key


def test_no_option_that_decides_rows_is_accepted_without_an_effect() -> None:
    """Those named here keep the rows right whatever their value is; each is explained."""
    named = {known.key for known in describe_options() if known.no_effect}
    deciding = {k.key for k in describe_options() if k.effect in (Effect.READ, Effect.WRITE)}

    assert named & deciding == {
        "orc.timestamp-ltz.legacy.type",  # in UTC both values mean the same files
    }


def test_options_without_an_effect_are_these() -> None:
    """Retention and tags stay settable, since tables of other engines carry them."""
    assert {known.key for known in DECLARED.values() if known.no_effect} == NO_EFFECT


NO_EFFECT = {
    "bucket-append-ordered",
    "commit.force-compact",
    "compaction.file-num-limit",
    "csv.mode",
    "file.block-size",
    "lookup-wait",
    "orc.timestamp-ltz.legacy.type",
    "read.batch-size",
    "scan.manifest.parallelism",
    "write.batch-size",
}
