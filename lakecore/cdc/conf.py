"""Checks of options that all sources share, such as `--mysql_conf` and `--postgres_conf`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import StrEnum

__all__ = ["check_keys", "checked_pattern", "matches", "startup_mode"]

Mode = TypeVar("Mode", bound="StrEnum")


def check_keys(
    flag: str, conf: Mapping[str, str], known: Sequence[str], needed: Sequence[str]
) -> None:
    """Raise InvalidRequest for an option of `flag` that is unknown or missing."""
    for key in conf:
        if key not in known:
            near = get_close_matches(key, known, 1)
            raise InvalidRequest(
                f"unknown option of {flag}",
                option=key,
                **({"nearest": near[0]} if near else {"known": known}),
            )
    missing = [key for key in needed if key not in conf]
    if missing:
        raise InvalidRequest(f"{flag} needs these options", missing=missing)


def startup_mode(modes: type[Mode], text: str) -> Mode:
    """The startup mode with this name. Raises InvalidRequest for an unknown name."""
    try:
        return modes(text.lower())
    except ValueError:
        raise InvalidRequest(
            "unknown startup mode", mode=text, known=[each.value for each in modes]
        ) from None


def checked_pattern(key: str, text: str) -> str:
    """Return the text if it is a valid regular expression. Raises InvalidRequest otherwise."""
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(
            "not a regular expression", option=key, value=text, cause=error
        ) from error
    return text


def matches(pattern: str, name: str) -> bool:
    """Whether a regular expression matches a whole name; `.` also matches a line break."""
    return re.fullmatch(pattern, name, re.DOTALL) is not None
