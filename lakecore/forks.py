"""A forked child has none of its parent's threads: work for them would wait for ever.

Polars starts a pool of threads with its first query and keeps it; a child that is forked after
that, as `multiprocessing` does by default on Linux before Python 3.14, finds the pool and nobody in
it. lakecore looks just before each fork whether there is such a pool, and a child of a process with
one gets an error instead of hanging. A child forked earlier starts a pool of its own, as do
processes that are spawned.

NOTE: a LazyFrame that the child collects runs in Polars before lakecore is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Final, TypeVar

from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = TypeVar("Value")
_POOL = "polars-"
_OWN_POOL = "lakecore-"
_TASKS = "/proc/self/task"


class _Forks:
    """Whether this process was forked, and whether its parent had threads."""

    pools_at_fork = False  # whether the last fork was made while there were pools
    threads_lost = False


_forks: Final = _Forks()


def require_threads() -> None:
    """Raise Unsupported in a child that was forked from a process with pools of threads."""
    if _forks.threads_lost:
        raise Unsupported(
            "this process was forked from one that had used Polars or lakecore, whose threads it "
            "does not have, so reads and writes would hang; start it by 'spawn' or 'forkserver': "
            "multiprocessing.get_context('spawn')"
        )


def with_threads(values: Iterator[Value]) -> Generator[Value]:
    """The values of an iterator, for a process that has its threads; closed at the end."""
    with closing(values) if isinstance(values, Generator) else nullcontext():
        while True:
            require_threads()
            try:
                value = next(values)
            except StopIteration:
                return
            yield value
            del value


def _before_fork() -> None:
    _forks.pools_at_fork = _has_pools()


def _in_child() -> None:
    _forks.threads_lost = _forks.threads_lost or _forks.pools_at_fork


def _has_pools() -> bool:
    """Whether this process has threads that wait for work of Polars or lakecore."""
    threading = sys.modules.get("threading")
    if threading and any(t.name.startswith(_OWN_POOL) for t in threading.enumerate()):
        return True
    try:
        tasks = os.listdir(_TASKS)  # noqa: PTH208 - pathlib would be imported for this alone
    except OSError:  # no Linux: processes are spawned there, unless somebody insists
        return False
    # `polars-0` is of the pool; other threads of Polars start when it is imported.
    return any(name.startswith(_POOL) and name[7:].isdecimal() for name in map(_name, tasks))


def _name(task: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/comm") as file:  # noqa: PTH123 - as above
            return file.read().rstrip()
    except OSError:  # it has ended
        return ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
