"""Flags of actions: `--flag value` or `--flag=value`; `-` and `_` are the same in names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?P<rest>=(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags that an action has.

    `switches` may be given without a value, which then is `true`. `unsupported` maps each refused
    flag to the reason.
    """

    action: str
    known: Sequence[str]
    repeated: Collection[str] = ()
    switches: Collection[str] = ()
    unsupported: dict[str, str] | None = None
    example: str = "--table"


class WrongFlag(InvalidRequest):
    """A command line that does not fit: the program ends with 2, as for every wrong usage."""


def read_flags(flags: Flags, arguments: Sequence[str]) -> dict[str, list[str]]:
    """The flags with their values.

    Raises WrongFlag for a flag that is unknown, has no value or is given twice.
    """
    found: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        part = rest.pop(0)
        match = _FLAG.fullmatch(part)
        if match is None:
            raise WrongFlag(
                f"expected a flag, such as {flags.example}", action=flags.action, given=part
            )
        flag = match["name"].replace("-", "_")
        _check_known(flags, flag, part.partition("=")[0])
        if match["rest"] is not None:
            value = match["value"]
        elif flag in flags.switches and (not rest or _FLAG.fullmatch(rest[0]) is not None):
            value = "true"
        elif rest and not _is_long_flag(rest[0]):
            value = rest.pop(0)
        else:
            raise WrongFlag("the flag needs a value", action=flags.action, flag=part)
        if flag in found and flag not in flags.repeated:
            raise WrongFlag("the flag is given twice", action=flags.action, flag=part)
        found.setdefault(flag, []).append(value)
    return found


def _check_known(flags: Flags, flag: str, shown: str) -> None:
    reason = (flags.unsupported or {}).get(flag)
    if reason is not None:
        raise Unsupported(reason, flag=f"--{flag}")
    if flag not in flags.known:
        near = get_close_matches(flag, flags.known, 1)
        raise WrongFlag(
            "the action has no such flag",
            action=flags.action,
            flag=shown,
            **({"nearest": f"--{near[0]}"} if near else {"known": list(flags.known)}),
        )


def _is_long_flag(text: str) -> bool:
    return text.startswith("--") and _FLAG.fullmatch(text) is not None
