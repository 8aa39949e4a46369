"""Finds secrets, and shows them as `***`: one rule for messages, logs and representations.

Secrets are: the value of an option whose key names a secret, the user part of a URI, and the value
after such a key in a text, because exceptions of storage clients repeat their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"

_WORD = (
    r"secret|passw(?:or)?d|token|credential|signature|sas[-._]?(?:key|token)|"
    r"(?:access|account|private|api|shared)[-._]?key|keyfile"
)
_SECRET_KEY = re.compile(_WORD, re.IGNORECASE)
# NOTE: repetitions are bounded or cannot overlap, so that long strings take linear time.
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s'\":]*:[^/\s'\"]*@")
_STATED = re.compile(
    rf"((?:{_WORD}|(?<![a-z])sig(?!\w))[\w.-]{{0,200}}['\"]?\s*[=:]\s*['\"]?)(?!\*\*\*)[^\s'\"&,;)\]}}>]+",
    re.IGNORECASE,
)
_SHORT = 4
"""Values of fewer characters are too common to look for in a text."""


def is_secret(key: str) -> bool:
    """Whether an option of that key holds a secret; `fields.*` never do: they name columns."""
    return not key.startswith("fields.") and _SECRET_KEY.search(key) is not None


def secret_values(options: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets among the options, both as they are and as a URL encodes them."""
    secrets = [text for key, text in options.items() if is_secret(key)]
    escaped = [quote(text, safe=safe) for text in secrets for safe in ("", "/")]
    return tuple(dict.fromkeys(sorted([*secrets, *escaped], key=len, reverse=True)))


def masked(text: str, values: Iterable[str] = ()) -> str:
    """The text with `***` for these values, for users in URIs, and for values of secret keys."""
    for value in values:
        if len(value) >= _SHORT:
            text = text.replace(value, MASK)
    return _STATED.sub(rf"\1{MASK}", _USER.sub(rf"\1{MASK}@", text))


def masked_options(options: Mapping[str, object]) -> dict[str, object]:
    """The options, with their secrets hidden."""
    return {
        key: MASK if is_secret(str(key)) else masked(value) if isinstance(value, str) else value
        for key, value in options.items()
    }


def masked_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """The facts of an error, with secrets hidden.

    If `option` is a secret key, `value` is hidden too.
    """
    hides = is_secret(str(facts.get("option", "")))
    return {name: MASK if hides and name == "value" else _fact(facts[name]) for name in facts}


def mask_exception(error: BaseException, values: Iterable[str]) -> None:
    """Hide secrets in the arguments of an exception, and of the exceptions that caused it."""
    hidden, seen = tuple(values), set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        cause.args = tuple(
            masked(each, hidden) if isinstance(each, str) else each for each in cause.args
        )
        if isinstance(cause, OSError) and isinstance(cause.strerror, str):
            cause.strerror = masked(cause.strerror, hidden)
        cause = cause.__cause__ or cause.__context__


def _fact(value: object) -> object:
    if isinstance(value, str):
        return masked(value) if "://" in value else value
    if isinstance(value, Mapping):
        return masked_options(value)
    return value
