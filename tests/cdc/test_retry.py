"""A source that cannot be reached is waited for, at the start and later, by one policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import StorageError
from lakecore.io.stores.store import MemoryStore
from tests.cdc.sources import ListSource
from tests.cdc.test_quarantine import A_STEPS
from tests.cdc.test_sink import parts, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.cdc.events import SourceSchema, SourceTable
    from lakecore.io.ambient import Ambient


@dataclass
class Away(ListSource):
    """A source that cannot be reached before a time."""

    back_ms: int = 0
    ambient: Ambient | None = None
    asked: int = 0

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        self.asked += 1
        assert self.ambient is not None
        if self.ambient.now_ms() < self.back_ms:
            raise StorageError("the server is away")
        return super().tables()


def away(seconds: int) -> tuple[Away, object]:
    catalog, sink = parts(MemoryStore())
    ambient = sink._ambient  # noqa: SLF001
    source = Away(A_STEPS[:2], back_ms=ambient.now_ms() + seconds * 1000, ambient=ambient)
    sink.catalog = catalog  # type: ignore[attr-defined]
    return source, sink


def test_a_server_that_is_back_after_two_minutes_is_followed() -> None:
    source, sink = away(120)
    sink.run(source, until_caught_up=True)  # type: ignore[attr-defined]

    assert [row[0] for row in rows(sink.catalog, "d.a")] == [1, 2]  # type: ignore[attr-defined]
    assert 8 < source.asked < 14
    assert sink._state.metrics["retries"] == source.asked - 1  # type: ignore[attr-defined]  # noqa: SLF001


def test_after_five_minutes_it_is_an_error_and_a_signal_ends_the_wait() -> None:
    source, sink = away(1000)
    with pytest.raises(StorageError, match="away"):
        sink.run(source, until_caught_up=True)  # type: ignore[attr-defined]

    assert sink.run(source, stops=lambda: True).checkpoint == 0  # type: ignore[attr-defined]
