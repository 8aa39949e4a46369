"""Names whose module is imported when they are first used.

Importing all of lakecore takes longer than many commands. A module that only some calls need is
therefore named by a string. Type checkers and the rules of imports see a plain import:

    if TYPE_CHECKING:
        from lakecore.table.handle import load_table
    else:
        load_table = deferred("lakecore.table.handle", "load_table")

A module whose many names are used, such as `polars`, is deferred as a whole.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def deferred(module: str, name: str) -> Callable[..., object]:
    """A stand-in for the function or class `name` of a module. Calling it imports the module."""

    def call(*arguments: object, **named: object) -> object:
        called: Callable[..., object] = getattr(import_module(module), name)
        return called(*arguments, **named)

    call.__name__ = name
    return call


def deferred_module(module: str) -> _Module:
    """A stand-in for a module. The first use of a name imports the module."""
    return _Module(module)


def named(module: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a module that imports its names when they are first used.

    `homes`: for each module, the names that it defines. The module's own name stands for those of
    its submodules.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def found(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            message = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(message)
        if home == module:
            return import_module(f"{module}.{name}")
        value: object = getattr(import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    return found


def is_of(held: object, module: str, kind: str) -> bool:
    """Whether an object is an instance of a class of this module. Does not import the module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(held, getattr(loaded, kind))


class _Module:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self._module), name)
