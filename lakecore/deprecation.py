"""How a public name goes away: docs/versions.md states the rule."""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def deprecated(
    *, instead: str, since: str, removed_in: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator of a public function or method that has a successor.

    Each call raises a DeprecationWarning at the caller's line. It names the successor (`instead`:
    such as `Table.compact`) and two versions, such as `0.3`: that which deprecates the function,
    and that which removes it.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        said = (
            f"{function.__qualname__} is deprecated since lakecore {since}, and lakecore "
            f"{removed_in} removes it; use {instead}"
        )

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            warnings.warn(said, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call

    return decorate
