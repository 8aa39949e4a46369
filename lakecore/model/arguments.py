"""Arguments of the public surface that are True or False."""

from __future__ import annotations

from lakecore.errors import InvalidRequest


def check_flags(**flags: object) -> None:
    """Raise InvalidRequest, with its name, for an argument that is neither True nor False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{name} is True or False", **{name: flag})
