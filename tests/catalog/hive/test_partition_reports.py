from __future__ import annotations

import pickle

from lakecore.catalog.hive.metastore import PartitionReports
from lakecore.catalog.identifier import Identifier

NAME, OTHER = (Identifier(database="d", table=table) for table in ("t", "u"))
A, B = (("dt", "a"),), (("dt", "b"),)


def test_batch_commit_reports_at_once() -> None:
    reports = PartitionReports()

    assert reports.due(NAME, [A], 10, 1000, batch=True) == {A: 10}
    assert reports.due(NAME, [], 20, 1000, batch=True) == {}


def test_stream_reports_what_was_idle() -> None:
    reports = PartitionReports()

    assert reports.due(NAME, [A], 0, 100, batch=False) == {}
    assert reports.due(NAME, [B], 60, 100, batch=False) == {}
    assert reports.due(OTHER, [A], 101, 100, batch=False) == {}
    assert reports.due(NAME, [], 100, 100, batch=False) == {}
    assert reports.due(NAME, [], 101, 100, batch=False) == {A: 0}
    # A partition that changes again begins anew.
    assert reports.due(NAME, [B], 161, 100, batch=False) == {}
    assert reports.due(NAME, [A], 170, 100, batch=True) == {A: 170, B: 161}


def test_failed_report_is_due_again_unless_the_partition_changed() -> None:
    reports = PartitionReports()
    due = reports.due(NAME, [A, B], 0, 100, batch=True)
    reports.due(NAME, [B], 50, 100, batch=False)
    reports.put_back(NAME, due)

    assert reports.due(NAME, [], 101, 100, batch=False) == {A: 0}
    assert reports.due(NAME, [], 151, 100, batch=False) == {B: 50}


def test_another_process_begins_without_notes() -> None:
    reports = PartitionReports()
    reports.due(NAME, [A], 0, 100, batch=False)
    other = pickle.loads(pickle.dumps(reports))

    assert other.due(NAME, [], 101, 100, batch=False) == {}
    assert reports.due(NAME, [], 101, 100, batch=False) == {A: 0}
