"""Lines of a log on standard error for commands that run for long: as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FACT = re.compile(r"(\w+)=%")


class LogLines(logging.Formatter):
    """One line an event: time in UTC, level, pipeline, message.

    As JSON, the facts of a message (`table=...`) are members of their own.
    """

    def __init__(self, pipeline: str, *, as_json: bool) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line of an event."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if not self._as_json:
            return f"{at} {record.levelname} {self._pipeline}: {record.getMessage()}"
        names = _FACT.findall(str(record.msg))
        values = record.args if isinstance(record.args, tuple) else ()
        facts = {
            k: v if isinstance(v, int) else str(v) for k, v in zip(names, values, strict=False)
        }
        line = {
            "time": at,
            "level": record.levelname,
            "pipeline": self._pipeline,
            "message": str(record.msg).partition(". ")[0] if facts else record.getMessage(),
        }
        return json.dumps({**facts, **line}, ensure_ascii=False)


@contextmanager
def log_lines(pipeline: str, *, as_json: bool, level: int) -> Iterator[None]:
    """A context manager: events of CDC from this level on are lines on standard error."""
    logger = logging.getLogger("lakecore.cdc")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(pipeline, as_json=as_json))
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
