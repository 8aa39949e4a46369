"""Lets the server decode bytes in a character set that Python does not decode exactly as it does.

Python knows some of these character sets, but maps some bytes to other characters. The server
decodes the strings of the snapshot, so it must also decode those of the log. Decoded strings are
cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.mysql.connection import connect, plain_mysql_errors
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.mysql.settings import MySqlSettings

__all__ = ["ServerTexts"]

_ASKED_AT_ONCE, _ASKED_BYTES = 500, 1 << 20
_KNOWN_MAX, _KNOWN_BYTES = 50_000, 16 << 20


class ServerTexts:
    """Decodes bytes by a request to the server, with a bounded cache."""

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self._known: dict[tuple[str, bytes], str] = {}
        self._known_bytes = 0

    def texts(self, charset: str, values: Sequence[object]) -> list[str | None]:
        """The text of each value; None for None.

        Raises InvalidRequest for bytes that are invalid in this character set.
        """
        wanted = {each for each in values if isinstance(each, bytes)}
        missing = [each for each in wanted if (charset, each) not in self._known]
        if missing:
            self._ask(charset, missing)
        found = [self._known[charset, each] if isinstance(each, bytes) else None for each in values]
        if len(self._known) > _KNOWN_MAX or self._known_bytes > _KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = 0
        return found

    def _ask(self, charset: str, values: Sequence[bytes]) -> None:
        connection = connect(self._settings)
        try:
            cursor = connection.cursor()
            with plain_mysql_errors(self._settings, "texts of a character set cannot be read"):
                for some in _groups(values):
                    asked = ", ".join(
                        f"CONVERT(CONVERT(x'{each.hex()}' USING {charset}) USING utf8mb4)"
                        for each in some
                    )
                    cursor.execute(f"SELECT {asked}")
                    row = cursor.fetchone() or ()
                    for value, text in zip(some, row, strict=True):
                        if text is None:
                            raise InvalidRequest(
                                "a value of the source is no text of its character set",
                                charset=charset,
                                value=value[:100],
                            )
                        self._known[charset, value] = str(text)
                        self._known_bytes += len(value)
        finally:
            connection.close()


def _groups(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The values in groups that fit into one statement: the server limits the statement's bytes."""
    group: list[bytes] = []
    size = 0
    for value in values:
        if group and (len(group) >= _ASKED_AT_ONCE or size + len(value) > _ASKED_BYTES):
            yield group
            group, size = [], 0
        group.append(value)
        size += len(value)
    if group:
        yield group
