"""The rules for changing table options, and for renaming columns that options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.options.known import RENAMED, find_option
from lakecore.options.parse import check_known, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    options: Mapping[str, str],
    key: str,
    value: str | None,
    *,
    has_snapshots: bool,
    table: str = "",
) -> None:
    """Raise InvalidRequest if the option may not take this value (None: its default).

    An unknown key may be removed, but not set. `type` and `path` never change. Options that decide
    where rows are stored and how they merge do not change once there are snapshots.
    """
    old = options.get(key)
    if old == value:
        return
    if value is not None:
        parse_options({key: value}, table=table, creating=True)
    known = find_option(key)
    if key in ("type", "path") and value is not None:
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
