from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from lakecore.cli import main
from lakecore.cli.cdc import log_lines

if TYPE_CHECKING:
    from pathlib import Path

LOG = logging.getLogger("lakecore.cdc")


def test_a_line_has_time_level_pipeline_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines("shop", as_json=True, level=logging.INFO):
        LOG.warning("table set aside: it is lost. table=%s rows=%s", "shop.orders", 7)
        LOG.debug("not shown")
    with log_lines("shop", as_json=False, level=logging.INFO):
        LOG.info("checkpoint. number=%s", 3)
    LOG.info("not shown")
    first, second = capsys.readouterr().err.splitlines()

    found = json.loads(first)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "table": "shop.orders",
        "rows": 7,
        "level": "WARNING",
        "pipeline": "shop",
        "message": "table set aside: it is lost",
    }
    assert second.partition(" ")[2] == "INFO shop: checkpoint. number=3"


class Breaks:
    """An object that cannot be freed."""

    def __del__(self) -> None:
        raise ValueError("the connection is lost")


def test_no_traceback_and_no_raw_line_reaches_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken() -> None:
        raise ValueError("in a thread")

    def all_kinds() -> None:
        Breaks()
        warnings.warn("of a library", RuntimeWarning, stacklevel=1)
        logging.getLogger("some.library").warning("of its logger", exc_info=ValueError("why"))
        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()

    for level in (logging.INFO, logging.DEBUG):
        with warnings.catch_warnings(), log_lines("shop", as_json=True, level=level):
            warnings.simplefilter("always")
            all_kinds()
        found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        messages = [each["message"] for each in found]
        assert len(found) == (3 if level == logging.INFO else 4)
        assert "of its logger" in messages
        assert "a thread has ended" in messages
        assert any("of a library" in each for each in messages)
        assert any("traceback" in each for each in found) is (level == logging.DEBUG)
    with warnings.catch_warnings(), log_lines("shop", as_json=False, level=logging.INFO):
        warnings.simplefilter("always")
        all_kinds()
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize("format_flag", ["--log-format=json", "--log_format json"])
def test_the_error_that_ends_a_run_is_json_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, format_flag: str
) -> None:
    given = ["cdc", "mysql_sync_database", f"--warehouse={tmp_path}", *format_flag.split(" ")]
    for more in ([], ["--database=m", "--mysql_conf=hostname=h"], ["--no-such-flag=1"]):
        with pytest.raises(SystemExit):
            main([*given, *more])
        (line,) = capsys.readouterr().err.splitlines()
        found = json.loads(line)
        assert found["level"] == "ERROR"
    assert found["message"] == "the action has no such flag"
    assert (found["flag"], found["action"]) == ("--no-such-flag", "mysql_sync_database")
    with pytest.raises(SystemExit):
        main(given[:-1] if "=" not in format_flag else given[:3])
    assert capsys.readouterr().err.startswith("error: ")


def test_a_fault_of_the_program_is_one_line_of_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr("lakecore.cli.cdc.sync", broken)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(KeyError) as failed:
        main(["cdc", "mysql_sync_database", "--log-format=json"])
    sys.excepthook(KeyError, failed.value, None)
    assert "KeyError: 'a fault'" in json.loads(capsys.readouterr().err)["message"]
    with pytest.raises(KeyError):
        main(["cdc", "mysql_sync_database"])
