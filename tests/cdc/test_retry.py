"""A source that cannot be reached is waited for, at the start and later, by one policy."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lakecore.cdc.pipeline import status_of
from lakecore.errors import StorageError
from lakecore.io.stores.store import MemoryStore
from lakecore.metrics import pipeline_text
from tests.cdc.sources import ListSource
from tests.cdc.test_quarantine import A_STEPS
from tests.cdc.test_sink import parts, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakecore.cdc.events import Position, SourceSchema, SourceTable, Step
    from lakecore.cdc.pipeline import PipelineStatus
    from lakecore.cdc.sink_parts import Progress
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


@dataclass
class Lost(ListSource):
    """A source that has caught up, and then cannot be reached for a minute."""

    ambient: Ambient | None = None
    back_ms: int | None = None

    def steps(self, after: Position | None) -> Iterator[Step]:
        assert self.ambient is not None
        if self.back_ms is not None and self.ambient.now_ms() < self.back_ms:
            raise StorageError("the server is away")
        for step in super().steps(after):
            yield step
            if step.caught_up and self.back_ms is None:
                self.back_ms = self.ambient.now_ms() + 60_000
                raise StorageError("the connection was lost")


def test_the_status_says_since_when_the_source_is_not_reachable(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    catalog, sink = parts(store)
    ambient = sink._ambient  # noqa: SLF001
    monkeypatch.setattr("lakecore.cdc.pipeline.state_store", lambda *_: (store, "w/.cdc"))
    seen: list[PipelineStatus] = []
    lines: list[str] = []

    def status() -> PipelineStatus:
        found = status_of(catalog, "p", None, ambient)
        assert found is not None
        return found

    def reports(progress: Progress) -> None:
        if progress.outage is not None:
            seen.append(status())
            lines.append(progress.line("p"))

    source = Lost(A_STEPS[:2], ambient=ambient)
    begun_ms = ambient.now_ms()
    caplog.set_level(logging.INFO, "lakecore.cdc")
    sink.run(source, reports=reports, stops=lambda: bool(seen) and status().reachable)

    assert len(seen) > 4
    last = seen[-1]
    assert (last.reachable, last.caught_up, last.lag_bytes) == (False, False, None)
    assert last.state == "not reachable"
    assert last.unreachable_reason == "the server is away"
    assert 10 < last.unreachable_seconds < 70
    assert last.lag_seconds == pytest.approx(last.unreachable_seconds, abs=0.1)
    assert last.unreachable_since == datetime.fromtimestamp(begun_ms // 1000, UTC).isoformat()
    assert last.retries == len(seen) - 1
    assert [each.unreachable_seconds for each in seen] == sorted(
        each.unreachable_seconds for each in seen
    )
    assert lines[-1].endswith(f"source not reachable since {last.unreachable_since}")
    text = pipeline_text(last, "p", 0.0)
    assert 'lakecore_cdc_source_reachable{pipeline="p"} 0' in text
    assert 'lakecore_cdc_caught_up{pipeline="p"} 0' in text
    assert f'unreachable_seconds{{pipeline="p"}} {last.unreachable_seconds}' in text

    after = status()
    assert (after.reachable, after.unreachable_seconds) == (True, 0.0)
    (back,) = [each for each in caplog.messages if "reachable again" in each]
    assert float(back.partition("seconds=")[2]) > 10
    assert 'lakecore_cdc_source_reachable{pipeline="p"} 1' in pipeline_text(after, "p", 0.0)
    assert capfd.readouterr().err == ""


def test_a_pipeline_that_never_reached_its_source_has_a_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    catalog, sink = parts(store)
    ambient = sink._ambient  # noqa: SLF001
    monkeypatch.setattr("lakecore.cdc.pipeline.state_store", lambda *_: (store, "w/.cdc"))
    source = Away(A_STEPS[:2], back_ms=ambient.now_ms() + 10_000_000, ambient=ambient)
    with pytest.raises(StorageError):
        sink.run(source)

    found = status_of(catalog, "p", None, ambient)
    assert found is not None
    assert (found.checkpoint, found.state) == (0, "not reachable")
    assert found.unreachable_seconds >= 300
    source.back_ms = 0
    sink.run(source, until_caught_up=True)
    found = status_of(catalog, "p", None, ambient)
    assert found is not None
    assert found.state == "caught up"
