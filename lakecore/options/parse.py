"""Parses table options: strings in, one frozen typed value out.

An unknown key is refused: it may change what the rows mean. The dynamic option
`lakecore.ignore-options` names keys that are ignored: unknown keys, and options without which the
rows are still right. A `*` at the end of a key stands for any text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.options.choices import Effect
from lakecore.options.kinds import FOLDER, IGNORE_KEY, NAME, NAMES, Option, nearest
from lakecore.options.other_keys import OTHER_KEYS
from lakecore.options.table_options import (
    DECLARED,
    FAMILIES,
    RENAMED,
    SINGLE,
    TableOptions,
    find_option,
    member,
)

_KEYS: Mapping[str, str] = {
    **{key: key for key in (*SINGLE, *OTHER_KEYS)},
    **{key.replace("#", "NAME"): key.replace("#", "NAME") for key in FAMILIES},
    **RENAMED,
}
"""Each key that may be set, by itself and by its older names."""


def parse_options(
    options: Mapping[str, str], *, table: str = "", creating: bool = False
) -> TableOptions:
    """The typed value of these options, which are strings.

    Raises InvalidRequest for a text outside an option's domain. An unknown key raises Unsupported:
    a newer release may know it, and it may change the rows. When `creating` (or altering) a table,
    an unknown key raises InvalidRequest with the nearest known one, and so does an option that no
    longer has an effect.
    """
    _check_texts(options, table=table)
    patterns = parse_ignored(options, table=table)
    kept = {key: text for key, text in options.items() if not _is_ignored(key, patterns, table)}
    for key in kept:
        known = find_option(key)
        if known is None:
            raise _unknown(key, table, creating=creating)
        if creating and known.effect is Effect.NOTHING:
            raise InvalidRequest(
                "the option does nothing any more", option=key, meaning=known.meaning, table=table
            )
    for old, today in RENAMED.items():
        if old in kept:
            text = kept.pop(old)
            kept.setdefault(today, text)
    values: dict[str, object] = {}
    for key, text in kept.items():
        if key in SINGLE:
            values[SINGLE[key]] = _value(DECLARED[SINGLE[key]], key, text, table)
        elif key in OTHER_KEYS:
            _value(OTHER_KEYS[key], key, text, table)
        elif (found := member(key)) is not None:
            name, column = found
            values.setdefault(name, {})
            by_column = cast("dict[str, object]", values[name])
            by_column[column] = _value(DECLARED[name], key, text, table)
    return replace(TableOptions(texts=kept, table=table), **values)  # type: ignore[arg-type]


def tidy(options: Mapping[str, str]) -> dict[str, str]:
    """The options in the form in which they are stored, without extra blanks and empty names.

    lakecore ignores blanks and empty names, but other engines would look for a column of such a
    name.
    """
    stored: dict[str, str] = {}
    for key, text in options.items():
        known = find_option(key)
        kept = text if known is None else known.kind.tidy(text)
        if kept.strip() or known is None or known.kind not in (NAME, NAMES, FOLDER):
            stored[key] = kept
    return stored


def parse_known(options: Mapping[str, str], *, table: str = "") -> TableOptions:
    """The typed value of the options that lakecore knows; unknown keys are ignored."""
    known = {key: text for key, text in options.items() if find_option(key) is not None}
    return parse_options(known, table=table)


def _check_texts(options: object, *, table: str = "") -> None:
    """Raise InvalidRequest unless keys and values are strings."""
    if not isinstance(options, Mapping):
        raise InvalidRequest(
            "options are a mapping of texts to texts", options=type(options).__name__, table=table
        )
    for key, value in options.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidRequest(
                "an option's value is a text", option=key, value=value, table=table
            )


def check_known(options: Mapping[str, str], *, table: str = "") -> None:
    """Raise InvalidRequest for an unknown key; the error suggests similar known keys.

    Keys that `lakecore.ignore-options` matches are not checked.
    """
    patterns = parse_ignored(options, table=table)
    for key in options:
        if find_option(key) is None and not _is_ignored(key, patterns, table):
            raise _unknown(key, table, creating=True)


def parse_ignored(options: Mapping[str, str], *, table: str = "") -> tuple[str, ...]:
    """The keys that the option `lakecore.ignore-options` names; a key may end in `*`."""
    known = DECLARED[SINGLE[IGNORE_KEY]]
    patterns = _value(known, IGNORE_KEY, options.get(IGNORE_KEY, ""), table)
    return cast("tuple[str, ...]", patterns)


def _value(known: Option, key: str, text: str, table: str) -> object:
    try:
        return known.kind.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "the option's value is not allowed",
            option=key,
            value=text,
            allowed=str(error),
            table=table,
        ) from error


def _is_ignored(key: str, patterns: Sequence[str], table: str) -> bool:
    if not any(_covers(pattern, key) for pattern in patterns):
        return False
    known = find_option(key)
    if known is None or known.ignorable or known.effect in {Effect.OTHER, Effect.NOTHING}:
        return True
    raise InvalidRequest(
        "the option cannot be ignored: rows or files would be wrong",
        option=key,
        effect=known.effect,
        table=table,
    )


def _covers(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern


def _unknown(key: str, table: str, *, creating: bool) -> InvalidRequest | Unsupported:
    facts: dict[str, object] = {"option": key, "table": table}
    if creating:
        near = nearest(key, _KEYS)
        if near:
            facts["did_you_mean"] = near[0] if len(near) == 1 else list(near)
        return InvalidRequest("unknown table option", **facts)
    facts["way_out"] = f"set the dynamic option {IGNORE_KEY}={key} if it cannot change the rows"
    return Unsupported("lakecore does not know this table option", **facts)


# --- changes -------------------------------------------------------------------------------------
# The rules for changing table options, and for renaming columns that options name.

_NAME_LISTS = (
    "bucket-key",
    "sequence.field",
    "rowkind.field",
    "record-level.time-field",
    "partial-update.remove-record-on-sequence-group",
    "changelog-producer.row-deduplicate-ignore-fields",
    "clustering.columns",
)
"""Options whose value is a list of columns."""
_NEVER_BACK = ("ignore-delete", "ignore-update-before")
"""Options that stay on: the rows that they skipped would return in some reads and not in others."""


_AUTHORIZED = "query-auth.enabled"


def check_dynamic_options(
    stored: Mapping[str, str], given: Mapping[str, str], *, table: str = ""
) -> None:
    """Raise InvalidRequest for a dynamic option that is unknown, or that may not change.

    An unknown key is allowed if `lakecore.ignore-options`, stored or given, lists it.
    """
    check_known({**stored, **given}, table=table)
    if _is_true(stored.get(_AUTHORIZED)) and not _is_true(given.get(_AUTHORIZED, "true")):
        raise InvalidRequest(
            "the catalog decides what may be read of this table: that cannot be switched off",
            option=_AUTHORIZED,
            value=given[_AUTHORIZED],
            table=table,
        )
    for key, value in given.items():
        if find_option(key) is not None:
            check_option_change(stored, key, value, has_snapshots=True, table=table)


def check_option_change(
    options: Mapping[str, str], key: str, value: str | None, *, has_snapshots: bool, table: str = ""
) -> None:
    """Raise InvalidRequest if the option may not take this value (None: its default).

    An unknown key may be removed, but not set. `type`, `path` and `field-id.one-based` never
    change. Options that decide where rows are stored and how they merge do not change once there
    are snapshots.
    """
    old = options.get(key)
    if old == value:
        return
    if value is not None:
        parse_options({key: value}, table=table, creating=True)
    known = find_option(key)
    if key in ("type", "path", "field-id.one-based") and value is not None:
        raise InvalidRequest(
            "the option cannot change", option=key, old=old, new=value, table=table
        )
    if not has_snapshots or known is None:
        return
    before = parse_options({key: old} if old is not None else {}, table=table)
    after = parse_options({key: value} if value is not None else {}, table=table)
    if known.immutable:
        raise InvalidRequest(
            "the option cannot change once the table has snapshots",
            option=key,
            old=old,
            new=value,
            table=table,
        )
    if key == "bucket" and -1 in (before.bucket, after.bucket) and before.bucket != after.bucket:
        raise InvalidRequest(
            "bucket cannot change from or to -1 once the table has snapshots",
            old=before.bucket,
            new=after.bucket,
            table=table,
        )
    if key == "deletion-vectors.enabled":
        modifiable = _is_true(options.get("deletion-vectors.modifiable"))
        if before.deletion_vectors_enabled != after.deletion_vectors_enabled and not modifiable:
            raise InvalidRequest(
                "deletion-vectors.enabled cannot change: deleted rows might come back",
                way_out="compact fully and set deletion-vectors.modifiable=true first",
                table=table,
            )
    if not _skipped(options) <= _skipped({**options, key: value}):
        raise InvalidRequest("the option cannot go from true to false", option=key, table=table)


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _skipped(options: Mapping[str, str | None]) -> frozenset[str]:
    """The row kinds (-D, -U) that the options ignore, under their current or older keys."""
    stated = {
        key: text
        for key, text in options.items()
        if text is not None and RENAMED.get(key, key) in _NEVER_BACK
    }
    parsed = parse_options(stated)
    deletes, updates = parsed.ignore_delete, parsed.ignore_update_before
    return frozenset([*["-D"] * deletes, *["-U"] * (deletes or updates)])


def rename_in_options(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options with a column renamed in all keys and values that name it."""

    def renamed(names: str) -> str:
        return ",".join(renamed_part(part) for part in names.split(","))

    def renamed_part(part: str) -> str:
        # `map[key]` names a key of a map.
        column, bracket, rest = part.strip().partition("[")
        return f"{new}{bracket}{rest}" if column == old else part

    out: dict[str, str] = {}
    for key, value in options.items():
        if key in _NAME_LISTS or (key.startswith("file-index.") and key.endswith(".columns")):
            out[key] = renamed(value)
        elif (parts := file_index_setting(key)) is not None:
            index_type, column, setting = parts
            out[f"file-index.{index_type}.{renamed_part(column)}.{setting}"] = value
        elif key.startswith("fields.") and key.endswith(".sequence-group"):
            group = key.removeprefix("fields.").removesuffix(".sequence-group")
            out[f"fields.{renamed(group)}.sequence-group"] = renamed(value)
        elif key.startswith(f"fields.{old}."):
            out[f"fields.{new}." + key.removeprefix(f"fields.{old}.")] = value
        else:
            out[key] = value
    return out


def file_index_setting(key: str) -> tuple[str, str, str] | None:
    """Type, column and setting of a key `file-index.TYPE.COLUMN.SETTING`; None for other keys."""
    index_type, _, rest = key.removeprefix("file-index.").partition(".")
    column, _, setting = rest.rpartition(".")
    named = key.startswith("file-index.") and index_type and column and setting
    return (index_type, column, setting) if named else None
