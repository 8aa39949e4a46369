"""A process that is killed within a verb, on a real disk: the old state or the new one is there.

Death comes at a call of the operating system that changes something: unlike a store in memory, a
disk removes a directory file by file. A repeat of the verb finishes it; a repeated drop leaves no
file.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import pytest

import lakecore as lc
from property_tests.profile import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS = ("unlink", "rmdir", "link", "rename", "replace", "mkdir")


class KilledError(BaseException):
    """The process is no more."""


class _Death:
    """Lets every call that changes the disk fail from the nth one on."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.came = False

    def __enter__(self) -> Self:
        self._patches = [patch.object(os, name, self._dying(getattr(os, name))) for name in CALLS]
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.came = True
                raise KilledError
            return call(*given, **named)

        return called


@dataclass(frozen=True)
class Deed:
    """A verb, and the name under which the table is there afterwards (None: it is gone)."""

    do: Callable[[lc.Session], object]
    left: str | None = "d.t"


def _table(session: lc.Session) -> lc.Table:
    return session.get_table("d.t")


DEEDS = {
    "expire": Deed(
        lambda session: _table(session).expire_snapshots(
            retain_max=1, retain_min=1, older_than="2100-01-01", max_deletes=99
        )
    ),
    "rollback": Deed(lambda session: _table(session).rollback_to(2)),
    "rollback to an expired tag": Deed(lambda session: _table(session).rollback_to(tag="old")),
    "fast_forward": Deed(lambda session: _table(session).fast_forward("b")),
    "rename_tag": Deed(lambda session: _table(session).rename_tag("old", "older")),
    "delete_tag": Deed(lambda session: _table(session).delete_tag("old")),
    "create_branch": Deed(lambda session: _table(session).create_branch("c", "old")),
    "delete_branch": Deed(lambda session: _table(session).delete_branch("b")),
    "rename_branch": Deed(lambda session: _table(session).rename_branch("b", "c")),
    "purge": Deed(lambda session: _table(session).purge_files()),
    "drop_partition": Deed(lambda session: _table(session).drop_partition({"p": 1})),
    "rename_table": Deed(lambda session: session.rename_table("d.t", "d.s"), left="d.s"),
    "drop_table": Deed(lambda session: session.drop_table("d.t"), left=None),
    "drop_database": Deed(lambda session: session.drop_database("d", cascade=True), left=None),
}


def _built(path: Path) -> lc.Session:
    session = lc.connect(str(path), create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL", "p": "INT NOT NULL", "v": "INT"},
        primary_keys=["id", "p"],
        partition_keys=["p"],
        options={"bucket": "1", "write-only": "true"},
    )
    for number in range(4):
        table.write([{"id": 0, "p": p, "v": number} for p in (1, 2)])
        if not number:
            table.create_tag("old")
            table.create_branch("b", "old")
            table.branch("b").write([{"id": 7, "p": 1, "v": 7}])
    table.expire_snapshots(retain_max=3, retain_min=3, older_than="2100-01-01", max_deletes=9)
    table.reset_consumer("c", 5)
    return session


def _seen(session: lc.Session, name: str | None) -> object:
    """The rows of the table; None if it is not there."""
    if name is None:
        return None
    try:
        return sorted(session.get_table(name).to_polars().rows())
    except lc.NotFound:
        return None


@pytest.mark.parametrize("verb", DEEDS)
def test_a_kill_leaves_the_old_or_the_new_state_and_a_repeat_finishes(
    verb: str, tmp_path: Path
) -> None:
    deed = DEEDS[verb]
    old = _seen(_built(tmp_path / "built"), "d.t")
    shutil.copytree(tmp_path / "built", tmp_path / "whole")
    whole = lc.connect(str(tmp_path / "whole"))
    deed.do(whole)
    new = _seen(whole, deed.left)
    for number in calls_of(verb):
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "built", path)
        death = _Death(number - 1)
        with death, suppress(KilledError):
            deed.do(lc.connect(str(path)))
        there = lc.connect(str(path))
        seen = _seen(there, "d.t") if deed.left in ("d.t", None) else _either(there, deed)
        assert seen in (old, new), number
        if verb == "purge" and seen == old:
            assert _history(there) == (1, ("old",), ("b",), ("c",)), number
        if not death.came:
            break
        with suppress(lc.NotFound, lc.AlreadyExists):
            deed.do(lc.connect(str(path)))
        assert _seen(lc.connect(str(path)), deed.left) == new, number
        if verb == "purge":
            assert _history(lc.connect(str(path))) == (0, (), (), ()), number
            assert not [*path.rglob("*.parquet")], number
        if deed.left is None:
            assert not [each for each in path.rglob("*") if each.is_file()], number


def _history(session: lc.Session) -> object:
    """Whether there is more than one snapshot, and what else a purge removes."""
    table = _table(session)
    names = (
        tuple(tag.name for tag in table.tags()),
        tuple(branch.name for branch in table.branches()),
        tuple(consumer.consumer_id for consumer in table.consumers()),
    )
    return (int(table.inspect.snapshots().height > 1), *names)


def _either(session: lc.Session, deed: Deed) -> object:
    """The rows of a table under its old name or its new one; exactly one of them has it."""
    names = [name for name in ("d.t", deed.left) if name and session.table_exists(name)]
    assert len(names) == 1
    return _seen(session, names[0])
