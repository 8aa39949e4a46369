"""Arguments of the public surface that are True or False."""

from __future__ import annotations

from lakecore.errors import InvalidRequest


def check_flags(**flags: object) -> None:
    """Raise InvalidRequest, naming it, for an argument that is not True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{name} is True or False", **{name: flag})
