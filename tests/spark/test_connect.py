"""Spark Connect writes as the classic session does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.conftest import answer_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    seen: dict[str, Any] = answer_of("connect", tmp_path_factory.mktemp("connect"))
    return seen


def test_rows_are_written_once(found: dict[str, Any]) -> None:
    assert found["write"] == [500, "sql", 2]
    assert (found["again"], found["rows"], found["grouped"]) == (True, True, 500)


def test_error_of_a_task_is_one_of_lakecore(found: dict[str, Any]) -> None:
    assert {"column", "value", "task"} <= set(found["refused"])


def test_data_source_writes(found: dict[str, Any]) -> None:
    assert found["sunk"] is True


def test_every_way_of_reading(found: dict[str, Any]) -> None:
    assert "error" not in found, found["error"]
    assert found["attached"] == ["remote.t"]
    assert [found[way] for way in ("merged", "loaded", "selected", "pruned")] == [100, 100, 100, 7]
    assert [found[way] for way in ("inserted", "raw", "files")] == [101, 101, 2]


def test_every_verb(found: dict[str, Any]) -> None:
    assert found["verbs"] == {
        "limit": 7,
        "delete": 1,
        "update": 3,
        "merge": [10, 0],
        "changes": True,
        "compact": 2,
        "analyze": 1,
        "expire": 5,
        "orphans": 0,
        "rescale": 499,
        "evolve": 5,
        "sql": [1, 500],
    }


def test_streams(found: dict[str, Any]) -> None:
    assert found["streams"] == {
        "sink": [True, True, True, 9],
        "complete": [["a", 7], ["b", 2]],
        "function": [list(range(10)), True],
        "refused": [
            ["foreach_batch", "foreach_batch"],
            ["inside", "foreach_batch"],
            ["cdc", "cdc"],
        ],
    }
