"""Who committed what: found whatever came before and after, and each snapshot read once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.io.history import Commits
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot


class Snapshots:
    """Snapshots from 1 on, `"a1 b - a2"`: who committed and under which number; what was read."""

    def __init__(self, text: str) -> None:
        self.all: dict[int, Snapshot] = {}
        self.reads: list[int] = []
        self.add(text)

    def add(self, text: str, *, salt: str = "") -> None:
        for word in text.split():
            number = len(self.all) + 1
            self.all[number] = Snapshot(
                id=number,
                schema_id=0,
                base_manifest_list=f"base-{number}{salt}",
                delta_manifest_list=f"delta-{number}{salt}",
                commit_user=word[0],
                commit_identifier=int(word[1:]) if word[1:] else BATCH_COMMIT_IDENTIFIER,
                commit_kind=CommitKind.APPEND,
                time_ms=0,
            )

    def read(self, number: int) -> Snapshot | None:
        self.reads.append(number)
        return self.all.get(number)

    @property
    def latest(self) -> Snapshot | None:
        return self.all.get(max(self.all, default=0))


def last(commits: Commits, snapshots: Snapshots, user: str) -> int | None:
    found = commits.last_numbered(user, snapshots.latest)
    return None if found is None else found.id


@pytest.mark.parametrize(
    ("text", "user", "wanted"),
    [
        ("", "a", None),
        ("a1", "a", 1),
        ("a1 a2 b1", "a", 2),
        ("a1 a b1", "a", 1),
        ("a1 b1", "c", None),
        ("a1 " + "b " * 500, "a", 1),
        ("b " * 500, "a", None),
    ],
)
def test_newest_number_of_a_user_is_found(text: str, user: str, wanted: int | None) -> None:
    snapshots = Snapshots(text)
    commits = Commits(snapshots.read)

    assert last(commits, snapshots, user) == wanted
    assert last(commits, snapshots, user) == wanted


def test_each_snapshot_is_read_once_however_many_commits_follow() -> None:
    snapshots = Snapshots("x " * 300)
    commits = Commits(snapshots.read)
    for number in range(1, 100):
        assert last(commits, snapshots, "a") == (None if number == 1 else 300 + number - 1)
        assert last(commits, snapshots, "z") is None
        snapshots.add(f"a{number}")

    old = [number for number in snapshots.reads if 0 < number < 300]
    assert sorted(old) == list(range(1, 300))
    assert len(snapshots.reads) < 300 + 2 * 100


def test_only_as_much_is_read_as_the_answer_needs() -> None:
    snapshots = Snapshots("x " * 300 + "a1 b1")
    commits = Commits(snapshots.read)

    assert last(commits, snapshots, "a") == 301
    assert len(snapshots.reads) < 4


def test_what_others_commit_meanwhile_is_seen() -> None:
    snapshots = Snapshots("a1 b1")
    commits = Commits(snapshots.read)
    assert last(commits, snapshots, "a") == 1
    snapshots.add("c1 a2 b2 c2")

    assert [last(commits, snapshots, user) for user in "abcd"] == [4, 5, 6, None]


def test_rollback_is_seen_whether_others_came_after_it_or_not() -> None:
    snapshots = Snapshots("a1 b1 a2 b2")
    commits = Commits(snapshots.read)
    assert last(commits, snapshots, "a") == 3
    for number in (3, 4):
        del snapshots.all[number]

    assert last(commits, snapshots, "a") == 1
    snapshots.add("c1 c2 c3", salt="again")
    assert [last(commits, snapshots, user) for user in "abc"] == [1, 2, 5]


def test_snapshot_that_took_the_number_of_another_counts_for_itself() -> None:
    snapshots = Snapshots("a1 a2")
    commits = Commits(snapshots.read)
    assert last(commits, snapshots, "a") == 2
    snapshots.all[2] = replace(snapshots.all[2], commit_user="b")
    assert [last(commits, snapshots, user) for user in "ab"] == [1, 2]
    snapshots.all[2] = replace(snapshots.all[2], commit_user="c")
    snapshots.add("d1")

    assert [last(commits, snapshots, user) for user in "bcd"] == [None, 2, 3]


def test_gap_below_the_latest_is_looked_at_anew() -> None:
    snapshots = Snapshots("a1 b1 b2 b3")
    commits = Commits(snapshots.read)
    assert last(commits, snapshots, "a") == 1
    snapshots.add("b4 b5 b6")
    del snapshots.all[5]

    assert [last(commits, snapshots, user) for user in "ab"] == [None, 7]


def test_newest_is_found_from_what_was_it_before() -> None:
    snapshots = Snapshots("a1 b1 c1")
    commits = Commits(snapshots.read)
    for word in ("", "a2", "a3 a4 a5 a6 a7 a8", "b " * 40):
        before = snapshots.latest
        assert before is not None
        snapshots.add(word)

        assert commits.follow(before) == snapshots.latest
    assert [last(commits, snapshots, user) for user in "abc"] == [10, 2, 3]
    assert len(snapshots.reads) < 3 * len(snapshots.all)


def test_what_was_the_newest_and_is_gone_leads_nowhere() -> None:
    snapshots = Snapshots("a1 b1 c1")
    commits = Commits(snapshots.read)
    before = snapshots.latest
    assert before is not None
    assert commits.follow(before) == before
    snapshots.all[3] = replace(before, commit_user="d")
    assert commits.follow(before) is None
    del snapshots.all[3]
    assert commits.follow(before) is None


def test_snapshots_after_one_are_read_once_each_newest_first() -> None:
    snapshots = Snapshots("x " * 30)
    commits = Commits(snapshots.read)
    latest = snapshots.latest
    assert latest is not None

    assert [each.id for each in commits.after(20, latest)] == [*range(30, 20, -1)]
    assert [each.id for each in commits.after(15, latest)] == [*range(30, 15, -1)]
    assert commits.at(18, latest) == snapshots.all[18]
    assert sorted(snapshots.reads) == [*range(16, 30)]
    assert commits.at(3, latest) == snapshots.all[3]
    assert commits.after(30, latest) == []


def test_snapshots_before_a_rollback_are_forgotten() -> None:
    snapshots = Snapshots("x " * 20)
    commits = Commits(snapshots.read)
    assert len(commits.after(10, snapshots.all[20])) == 10
    for number in range(5, 21):
        del snapshots.all[number]
    snapshots.add("y " * 18, salt="again")

    assert commits.after(10, snapshots.all[22]) == [snapshots.all[at] for at in range(22, 10, -1)]
    assert commits.at(12, snapshots.all[22]) == snapshots.all[12]


def test_snapshots_after_one_end_where_they_have_expired() -> None:
    snapshots = Snapshots("x " * 30)
    for number in range(1, 25):
        del snapshots.all[number]
    latest = snapshots.all[30]

    assert [each.id for each in Commits(snapshots.read).after(3, latest)] == [*range(30, 24, -1)]
    assert Commits(snapshots.read).at(24, latest) is None


def test_expired_snapshots_end_the_search() -> None:
    snapshots = Snapshots("a1 b1 c1 c2 c3 c4")
    for number in (1, 2, 3):
        del snapshots.all[number]
    commits = Commits(snapshots.read)

    assert last(commits, snapshots, "a") is None
    assert last(commits, snapshots, "c") == 6
