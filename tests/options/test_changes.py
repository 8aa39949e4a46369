from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.options import check_dynamic_options, check_option_change, rename_in_options


def test_dynamic_options_follow_the_same_rules() -> None:
    check_option_change({"bucket": "2"}, "scan.snapshot-id", "3", has_snapshots=True)
    with pytest.raises(InvalidRequest, match="once the table has snapshots"):
        check_option_change({"bucket": "2"}, "merge-engine", "first-row", has_snapshots=True)


def test_value_that_stays_is_always_allowed_and_unknown_keys_may_only_go() -> None:
    check_option_change(
        {"merge-engine": "first-row"}, "merge-engine", "first-row", has_snapshots=True
    )
    check_option_change({"shiny.mode": "on"}, "shiny.mode", None, has_snapshots=True)
    with pytest.raises(InvalidRequest, match=r"unknown table option\. option=shiny\.mode"):
        check_option_change({}, "shiny.mode", "on", has_snapshots=False)


def test_retention_may_change_at_any_time() -> None:
    for key, value in (
        ("snapshot.num-retained.max", "7"),
        ("partition.expiration-time", "7 d"),
        ("tag.automatic-creation", "process-time"),
        ("consumer.expiration-time", "1 d"),
    ):
        check_option_change({}, key, value, has_snapshots=True)


def test_renamed_column_is_renamed_in_keys_and_values() -> None:
    options = {
        "sequence.field": "a,b",
        "fields.a.aggregate-function": "sum",
        "fields.a,c.sequence-group": "d,a",
        "file-index.bloom-filter.columns": "a",
        "bucket": "a",
    }

    assert rename_in_options(options, "a", "x") == {
        "sequence.field": "x,b",
        "fields.x.aggregate-function": "sum",
        "fields.x,c.sequence-group": "d,x",
        "file-index.bloom-filter.columns": "x",
        "bucket": "a",
    }


def test_authorization_of_queries_is_not_switched_off_for_one_reader() -> None:
    stored = {"query-auth.enabled": "true"}
    with pytest.raises(InvalidRequest, match="cannot be switched off"):
        check_dynamic_options(stored, {"query-auth.enabled": "false"})
    check_dynamic_options(stored, {"query-auth.enabled": "TRUE"})
    check_dynamic_options(stored, {"scan.snapshot-id": "1"})
    check_dynamic_options({}, {"query-auth.enabled": "false"})
