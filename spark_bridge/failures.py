"""Transport of lakecore errors from a task to the driver, which raises them again.

- A row that does not fit fails every attempt in the same way. A writing task returns such an error
  as its outcome (`portable`): if it raised the error, Spark would run the task three more times.
- Any other error is raised. Spark reports a failure of a Python worker only as text, so a task adds
  class, sentence and facts of the error to the text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

import lakecore
from lakecore import InvalidRequest, LakecoreError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Class = TypeVar("Class")

DATA_ERRORS = (InvalidRequest, Unsupported)
"""Errors of the rows or the table: another attempt of the task fails in the same way."""

_CARRIED = re.compile(r"lakecore-error:([A-Za-z0-9+/=]+);")
_ABSENT = re.compile(
    r"No module named '(lakecore|spark_bridge|duckdb|fastavro|fsspec|numpy|polars|pyarrow|pyroaring"
    r"|zstandard)"
)


def portable(error: LakecoreError, **facts: object) -> LakecoreError:
    """The same error with more facts. All facts are strings, so that the error can be pickled."""
    texts = {name: str(value) for name, value in {**error.facts, **facts}.items()}
    return type(error)(error.message, **texts)


class TaskFailed(RuntimeError):
    """The exception that carries a LakecoreError from a task to the driver."""


def raised_shallow(cls: type[Class]) -> type[Class]:
    """The class, with public methods that raise lakecore's errors without inner stack frames.

    Spark calls these methods in other processes and shows the whole traceback to the user.
    """
    for name, member in list(vars(cls).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(
                cls,
                name,
                _shallow_rows(member) if isgeneratorfunction(member) else _shallow(member),
            )
    return cls


def _shallow(method: Callable[..., object]) -> Callable[..., object]:
    @wraps(method)
    def run(*given: object, **named: object) -> object:
        try:
            return method(*given, **named)
        except LakecoreError as error:
            raise error.with_traceback(None) from None

    return run


def _shallow_rows(method: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
    @wraps(method)
    def run(*given: object, **named: object) -> Iterator[object]:
        try:
            yield from method(*given, **named)
        except LakecoreError as error:
            raise error.with_traceback(None) from None

    return run


@contextmanager
def raised_in_task() -> Iterator[None]:
    """Wrap lakecore's errors so that they reach the driver."""
    try:
        yield
    except LakecoreError as error:
        content = {
            "kind": type(error).__name__,
            "message": error.message,
            "facts": portable(error).facts,
        }
        carried = base64.b64encode(json.dumps(content).encode()).decode()
        text = f"{error} lakecore-error:{carried};"
        raise TaskFailed(text) from error


@contextmanager
def raised_as_own() -> Iterator[None]:
    """On the driver: raise the LakecoreError that made a task fail. Other errors are unchanged."""
    try:
        yield
    except PySparkException as failure:
        text = str(failure)
        error = _carried(text)
        if error is None and _ABSENT.search(text):
            error = InvalidRequest(
                "the Python of the executors lacks lakecore or what it needs: install it there or "
                "ship an environment (PYSPARK_PYTHON names the interpreter)",
                missing=_ABSENT.findall(text)[0],
            )
        if error is None:
            raise
        raise error from failure


def _carried(text: str) -> LakecoreError | None:
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        content = json.loads(base64.b64decode(found.group(1), validate=True))
        kind: type[LakecoreError] = getattr(lakecore, content["kind"])
        return kind(content["message"], **content["facts"])
    except (binascii.Error, ValueError, KeyError, AttributeError):
        return None
