"""Every option that lakecore knows, by key: declared attributes, families, and other keys."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from lakecore.options.files import BlobOptions, FileOptions, LayoutOptions, LineFileOptions
from lakecore.options.other_keys import OTHER_KEYS, OTHER_PATTERNS, matches
from lakecore.options.retention import RetentionOptions
from lakecore.options.scans import ScanOptions
from lakecore.options.writing import (
    ClusteringOptions,
    CompactionOptions,
    MergeOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.options.kinds import Option

_CHAPTERS = (
    LayoutOptions,
    MergeOptions,
    FileOptions,
    LineFileOptions,
    WriteOptions,
    BlobOptions,
    CompactionOptions,
    ClusteringOptions,
    ScanOptions,
    RetentionOptions,
)

DECLARED: Mapping[str, Option] = {
    part.name: part.metadata["option"] for chapter in _CHAPTERS for part in fields(chapter)
}
SINGLE = {known.key: name for name, known in DECLARED.items() if "#" not in known.key}
FAMILIES = {known.key: name for name, known in DECLARED.items() if "#" in known.key}
NEVER_STORED = frozenset(known.key for known in DECLARED.values() if not known.stored)
"""The options that only the process that uses a table gives."""
RENAMED = {old: known.key for known in DECLARED.values() for old in known.fallbacks}


def option_keys() -> list[str]:
    """The keys of the options that lakecore reads."""
    return [option.key for option in DECLARED.values()]


def find_option(key: str) -> Option | None:
    """The option with that key. The key may be an older one, or belong to a family of keys."""
    if (name := SINGLE.get(RENAMED.get(key, key))) is not None:
        return DECLARED[name]
    if key in OTHER_KEYS:
        return OTHER_KEYS[key]
    if (found := member(key)) is not None:
        return DECLARED[found[0]]
    return next((known for known in OTHER_PATTERNS if matches(known.key, key)), None)


def member(key: str) -> tuple[str, str] | None:
    """The attribute and the column X of a key such as `fields.X.aggregate-function`, or None."""
    for pattern, name in FAMILIES.items():
        before, _, after = pattern.partition("#")
        if key.startswith(before) and key.endswith(after) and len(key) > len(pattern) - 1:
            return name, key[len(before) : len(key) - len(after)]
    return None
