"""Reads secrets of options from a file or the environment: `password-file`, `password-env`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.masking import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_secrets(conf: Mapping[str, str]) -> dict[str, str]:
    """The options; `...-file` and `...-env` of a secret are replaced by the secret itself.

    Raises InvalidRequest if the file or variable does not exist, or if a secret is given twice.
    """
    found: dict[str, str] = {}
    for key, value in conf.items():
        base, _, where = key.rpartition("-")
        if where not in {"file", "env"} or not is_secret(base):
            found[key] = value
            continue
        if base in conf or base in found:
            raise InvalidRequest("the option is given twice", option=base, also=key)
        if where == "env":
            if value not in os.environ:
                raise InvalidRequest("the environment has no such variable", variable=value)
            found[base] = os.environ[value]
            continue
        try:
            found[base] = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                "the file of an option cannot be read",
                option=key,
                path=value,
                reason=type(error).__name__,
            ) from error
    return found
