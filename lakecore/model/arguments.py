"""Checks of arguments of public functions that must be True or False."""

from __future__ import annotations

from lakecore.errors import InvalidRequest


def check_flags(**flags: object) -> None:
    """Raise InvalidRequest for an argument that is neither True nor False; the error names it."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{name} is True or False", **{name: flag})
