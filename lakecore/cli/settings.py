"""Determines the warehouse, the options and the memory of a command.

A setting is taken from the first of these that has it: a flag of the command; the profile that
`--profile` names; an environment variable `LAKECORE_*`; the profile that `LAKECORE_PROFILE` names,
or else the profile `default`, if it exists.

Profiles are tables of `config.toml` in `$XDG_CONFIG_HOME/lakecore` (`~/.config/lakecore`), or of
the file that `LAKECORE_CONFIG` names:

    [profile.prod]
    warehouse = "s3://lake/warehouse"
    memory = "4 gb"
    "s3.endpoint" = "https://minio:9000"

All keys except `warehouse` and `memory` are options of the catalog and its storage. Messages never
show values of the file.
"""

from __future__ import annotations

import os
import tomllib
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakecore.memory import set_process_budget
else:
    set_process_budget = deferred("lakecore.memory", "set_process_budget")

CONFIG = "LAKECORE_CONFIG"
MEMORY = "LAKECORE_MEMORY"
PROFILE_VARIABLE = "LAKECORE_PROFILE"
WAREHOUSE = "LAKECORE_WAREHOUSE"
_DEFAULT = "default"
PROFILE: ContextVar[str | None] = ContextVar("PROFILE", default=None)
"""The profile that `--profile` names; `main` sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings from the profile and the environment variables.

    `origins` names the source of each value.
    """

    profile: str | None = None
    warehouse: str | None = None
    memory: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    origins: Mapping[str, str] = field(default_factory=dict)


def settings() -> Settings:
    """Read the settings of this run, and set the memory budget of the process.

    Raises NotFound if a named profile does not exist, and InvalidRequest if the file is not valid.
    """
    found = _resolved()
    if found.memory is not None:
        _set_memory(found.memory)
    return found


def config_path() -> Path:
    """The path of the configuration file, which need not exist."""
    stated = os.environ.get(CONFIG)
    if stated:
        return Path(stated).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "lakecore" / "config.toml"


def profiles() -> dict[str, dict[str, str]]:
    """The profiles of the configuration file, each with its keys and values as text."""
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get(CONFIG):
            raise NotFound("no configuration file", file=path, variable=CONFIG) from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the configuration file cannot be read", file=path) from error
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(
            "the configuration file is not valid TOML", file=path, reason=str(error)
        ) from None
    stray = sorted(set(content) - {"profile"})
    named = content.get("profile", {})
    if stray or not isinstance(named, dict):
        raise InvalidRequest(
            "the configuration file has tables [profile.NAME] only", file=path, found=stray
        )
    found: dict[str, dict[str, str]] = {}
    for name, given in named.items():
        if not isinstance(given, dict):
            raise InvalidRequest("a profile is a table [profile.NAME]", file=path, profile=name)
        found[name] = dict(_flat(given, path, name))
    return found


def _flat(
    given: Mapping[str, object], path: Path, profile: str, start: str = ""
) -> Iterator[tuple[str, str]]:
    """The keys and values of a profile.

    In TOML, an unquoted `s3.endpoint = ...` makes a table `s3`. Here, it is the key `s3.endpoint`.
    """
    for key, value in given.items():
        match value:
            case dict():
                yield from _flat(value, path, profile, f"{start}{key}.")
            case bool():
                yield f"{start}{key}", str(value).lower()
            case str() | int() | float():
                yield f"{start}{key}", str(value)
            case _:
                raise InvalidRequest(
                    "a value of a profile is a text, a number, true or false",
                    file=path,
                    profile=profile,
                    key=f"{start}{key}",
                )


def _resolved() -> Settings:
    named = PROFILE.get()
    by_variable = os.environ.get(PROFILE_VARIABLE) or None
    known = profiles()
    name = named or by_variable or (_DEFAULT if _DEFAULT in known else None)
    if name is not None and name not in known:
        raise NotFound(
            "no profile of that name", profile=name, file=config_path(), known=sorted(known)
        )
    own = {} if name is None else dict(known[name])
    origin = f"profile {name}"
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for key, variable in (("warehouse", WAREHOUSE), ("memory", MEMORY)):
        stated = os.environ.get(variable) or None
        from_profile = own.pop(key, None)
        chosen = from_profile or stated if named else stated or from_profile
        if chosen is not None:
            values[key] = chosen
            origins[key] = origin if chosen is from_profile else variable
    return Settings(
        profile=name,
        warehouse=values.get("warehouse"),
        memory=values.get("memory"),
        options=own,
        origins=origins | dict.fromkeys(own, origin),
    )


def _set_memory(size: str) -> None:
    try:
        set_process_budget(size)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"the memory of a profile or of {MEMORY} is a size such as '2 gb'", memory=size
        ) from error


def stated(pairs: Iterable[str] | None, what: str = "an option") -> Mapping[str, str]:
    """Parse KEY=VALUE arguments to options. Raises InvalidRequest for any other form."""
    options: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(f"{what} is written KEY=VALUE", given=pair)
        options[key.strip()] = value.strip()
    return options
