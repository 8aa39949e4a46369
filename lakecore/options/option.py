"""The declaration of an option: its key, kind, default, meaning, and what needs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from lakecore.options.choices import Effect, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.options.kinds import Kind

T = TypeVar("T")
D = TypeVar("D")

READ, WRITE, MAINTAIN, OTHER = Effect.READ, Effect.WRITE, Effect.MAINTAIN, Effect.OTHER
KEYED, APPEND = Scope.PRIMARY_KEY, Scope.APPEND
IGNORE_KEY = "lakecore.ignore-options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The declaration of one option; `default` is the value, `default_text` its form in documents.

    `supported` is False if lakecore honours only the default value. `ignorable` says that the rows
    are still right if another value is ignored. `no_effect` says why lakecore accepts any value
    without effect; it is empty if the value has an effect. `fallbacks` are older keys of the same
    meaning. An `immutable` option cannot change once there are snapshots. An option that is not
    `stored` counts only if the process that uses the table gives it: no table and no view states
    it.
    """

    key: str
    kind: Kind[object]
    default: object
    effect: Effect
    meaning: str
    scope: Scope = Scope.ALL
    supported: bool = True
    ignorable: bool = False
    immutable: bool = False
    stored: bool = True
    no_effect: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def default_text(self) -> str:
        """The default as documents show it; empty if there is none."""
        return "" if self.default in (None, (), "", {}) else self.kind.show(self.default)


def option(  # noqa: PLR0913  one declaration says all about an option
    key: str,
    kind: Kind[T],
    default: D,
    effect: Effect,
    meaning: str,
    *,
    scope: Scope = Scope.ALL,
    supported: bool = True,
    ignorable: bool = False,
    immutable: bool = False,
    stored: bool = True,
    no_effect: str = "",
    fallbacks: tuple[str, ...] = (),
) -> T | D:
    """A dataclass field that declares an option: its metadata has the text form and the meaning."""
    declared = Option(
        key=key,
        kind=cast("Kind[object]", kind),
        default=default,
        effect=effect,
        meaning=meaning,
        scope=scope,
        supported=supported,
        ignorable=ignorable,
        immutable=immutable,
        stored=stored,
        no_effect=no_effect,
        fallbacks=fallbacks,
    )
    metadata = {"option": declared}
    if isinstance(default, dict):
        return cast("T | D", field(default_factory=dict, metadata=metadata))
    return cast("T | D", field(default=default, metadata=metadata))


def keyed_family(
    pattern: str, kind: Kind[T], effect: Effect, meaning: str, *, ignorable: bool = False
) -> Mapping[str, T]:
    """A dataclass field for a family of keys.

    It maps the text in place of `#` to the option's value.
    """
    declared = Option(
        key=pattern,
        kind=cast("Kind[object]", kind),
        default=None,
        effect=effect,
        meaning=meaning,
        ignorable=ignorable,
    )
    return cast("Mapping[str, T]", field(default_factory=dict, metadata={"option": declared}))


def family(
    suffix: str, kind: Kind[T], effect: Effect, meaning: str, *, scope: Scope = Scope.ALL
) -> Mapping[str, T]:
    """A dataclass field that maps each column X to the value of its option `fields.X.suffix`."""
    declared = Option(
        key=f"fields.#.{suffix}",
        kind=cast("Kind[object]", kind),
        default=None,
        effect=effect,
        meaning=meaning,
        scope=scope,
    )
    return cast("Mapping[str, T]", field(default_factory=dict, metadata={"option": declared}))
