"""Detects forked child processes, which would hang: they do not have the threads of their parent.

Polars starts a pool of threads with its first query and keeps it. A child that is forked later, as
`multiprocessing` does by default on Linux before Python 3.14, inherits the pool without its
threads. lakecore checks just before each fork whether such a pool exists. If so, reads and writes
in the child raise an error instead of hanging. A child that was forked earlier, or was spawned,
starts a pool of its own.

The child's garbage collector leaves alone what the parent has made.

NOTE: a LazyFrame that the child collects runs in Polars before lakecore can check.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from typing import Final, TypeVar

from lakecore.errors import Unsupported

Value = TypeVar("Value")
_POOL = "polars-"
_OWN_POOL = "lakecore-"
_TASKS = "/proc/self/task"


class _Forks:
    """Whether this process was forked from a parent with thread pools.

    The child lacks these threads.
    """

    pools_at_fork = False  # whether there were pools just before the last fork
    threads_lost = False


_forks: Final = _Forks()


def require_threads() -> None:
    """Raise Unsupported if this process was forked from a process with thread pools."""
    if _forks.threads_lost:
        raise Unsupported(
            "this process was forked from one that had used Polars or lakecore, whose threads it "
            "does not have, so reads and writes would hang; start it by 'spawn' or 'forkserver': "
            "multiprocessing.get_context('spawn')"
        )


def with_threads(values: Iterator[Value]) -> Generator[Value]:
    """The values of an iterator, which is closed at the end.

    Before each value, `require_threads` raises Unsupported in a forked child that lacks the
    threads.
    """
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
    if _forks.pools_at_fork:
        _forks.threads_lost = True
        # The parent's garbage stays: the ends of native objects need threads, and would crash.
        gc.freeze()


def _has_pools() -> bool:
    """Whether Polars or lakecore has started a thread pool in this process."""
    threading = sys.modules.get("threading")
    if threading and any(t.name.startswith(_OWN_POOL) for t in threading.enumerate()):
        return True
    try:
        tasks = os.listdir(_TASKS)  # noqa: PTH208 - pathlib would be imported for this alone
    except OSError:  # not Linux: other systems spawn processes by default
        return False
    # `polars-0` is a thread of the pool; other threads of Polars start when it is imported.
    return any(name.startswith(_POOL) and name[7:].isdecimal() for name in map(_name, tasks))


def _name(task: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/comm") as file:  # noqa: PTH123 - as above
            return file.read().rstrip()
    except OSError:  # the thread has ended
        return ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
