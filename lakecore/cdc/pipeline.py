"""Runs pipelines, and reads their status. A pipeline is a CDC action with a stored state.

The state is in `WAREHOUSE/.cdc/NAME/`. For a warehouse that is not a directory (a REST server), the
caller must state the directory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.options import is_storage_option
from lakecore.cdc.action_table import SYNC_ACTIONS
from lakecore.cdc.sink import Sink
from lakecore.cdc.sink_parts import SinkSettings
from lakecore.cdc.state import StateFiles
from lakecore.errors import InvalidRequest
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.actions import Arguments
    from lakecore.cdc.sink_parts import Progress
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store

__all__ = ["Pipeline", "PipelineStatus", "run_pipeline", "state_store", "statuses"]

STATE_DIRECTORY = ".cdc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """An action with its arguments, and the settings of its commits.

    `name` must be unique within a warehouse; by default, it consists of the action and the target.
    """

    action: str
    arguments: Arguments
    name: str | None = None
    state: str | None = None
    interval_seconds: float = 10.0
    keeps_dead_letters: bool = False

    @property
    def label(self) -> str:
        """The name of the pipeline."""
        given = self.arguments
        target = given.database if given.table is None else f"{given.database}.{given.table}"
        return self.name or f"{self.action}-{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """The status of a pipeline, from its stored state.

    `lag_seconds` is the age of the newest committed change; None if the source states no times. It
    also grows while the source has no changes.
    """

    name: str
    checkpoint: int
    age_seconds: float
    lag_seconds: float | None
    rows_total: int
    rows_per_second: float
    rows_left_out: int
    caught_up: bool
    position: str
    source: Mapping[str, str]
    left_out: Mapping[str, str]


def run_pipeline(
    catalog: Catalog,
    pipeline: Pipeline,
    ambient: Ambient,
    *,
    until_caught_up: bool = False,
    stops: Callable[[], bool] = bool,
    reports: Callable[[Progress], None] | None = None,
) -> Progress:
    """Replicate the source to the targets; see `Sink.run`. Creates the target database."""
    action = SYNC_ACTIONS.get(pipeline.action)
    if action is None:
        raise InvalidRequest("unknown action", action=pipeline.action, known=list(SYNC_ACTIONS))
    opened = action.opens(pipeline.arguments, ambient)
    try:
        catalog.create_database(pipeline.arguments.database, ignore_if_exists=True)
        store, root = state_store(catalog, pipeline.state)
        database, opens = pipeline.arguments.database, opened.opens_at_start
        tables = () if opens is None else filter(opens, catalog.list_tables(database))
        settings = SinkSettings(
            interval_seconds=pipeline.interval_seconds,
            takes_new_tables=opened.follows_new_tables,
            needs_key=opened.needs_key,
            opened_at_start=tuple(f"{database}.{each}" for each in tables),
            ignores_incompatible=opened.ignores_incompatible,
            keeps_dead_letters=pipeline.keeps_dead_letters,
        )
        files = StateFiles(store, f"{root}/{_checked(pipeline.label)}", ambient)
        sink = Sink(catalog, opened.rules, files, settings, ambient)
        return sink.run(
            opened.source, until_caught_up=until_caught_up, stops=stops, reports=reports
        )
    finally:
        opened.source.close()


def statuses(catalog: Catalog, state: str | None, ambient: Ambient) -> list[PipelineStatus]:
    """The status of every pipeline of a warehouse, by name."""
    store, root = state_store(catalog, state)
    found = []
    for child in store.list(root):
        name = child.path.rpartition("/")[2]
        latest = StateFiles(store, child.path, ambient).latest() if child.is_directory else None
        if latest is None:
            continue
        metrics, position = latest.metrics, latest.position or {}
        now_ms = ambient.now_ms()
        time_ms, changed_ms = metrics.get("time_ms"), position.get("time_ms")
        left_out = metrics.get("left_out")
        found.append(
            PipelineStatus(
                name=name,
                checkpoint=latest.checkpoint,
                age_seconds=_seconds(now_ms, time_ms) or 0.0,
                lag_seconds=_seconds(now_ms, changed_ms),
                rows_total=_count(metrics.get("rows_total")),
                rows_per_second=float(_count(metrics.get("rows_per_second"))),
                rows_left_out=_count(metrics.get("rows_left_out")),
                caught_up=metrics.get("caught_up") is True,
                position=json.dumps({k: v for k, v in position.items() if k != "snapshot"}),
                source=latest.source,
                left_out={str(k): str(v) for k, v in left_out.items()}
                if isinstance(left_out, dict)
                else {},
            )
        )
    return found


def state_store(catalog: Catalog, state: str | None) -> tuple[Store, str]:
    """The store and the directory of the states of pipelines.

    Raises InvalidRequest if `state` is None and a server keeps the warehouse.
    """
    options = {k: v for k, v in catalog.option_texts.items() if is_storage_option(k)}
    place = state
    if place is None:
        warehouse = catalog.warehouse
        if catalog.option_texts.get("metastore") == "rest":
            raise InvalidRequest("the warehouse is a server: say where the state of pipelines is")
        place = f"{warehouse.rstrip('/')}/{STATE_DIRECTORY}"
    located = locate(place)
    return open_store(located, options), located.rstrip("/")


def _checked(name: str) -> str:
    if not name or "/" in name or "\\" in name or name.startswith("."):
        raise InvalidRequest("the name of a pipeline is one part of a path", name=name)
    return name


def _seconds(now_ms: int, time_ms: object) -> float | None:
    return round((now_ms - time_ms) / 1000, 1) if isinstance(time_ms, int) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
