"""A rule of `alter_table` holds through every way by which a table is altered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.catalog.rest.rest_catalog import ServedNames
from lakecore.catalog.rest.wire import change_to_json
from lakecore.cdc.sink_parts import TargetTable
from lakecore.cli import main
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange
from lakecore.session import Session
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.model.schema_change import Change

Door: TypeAlias = Callable[[dict[str, str], list["Change"]], object]

MODIFIABLE, ENABLED = "deletion-vectors.modifiable", "deletion-vectors.enabled"
ALLOW = SchemaChange.set_option(MODIFIABLE, "true")
ENABLE = SchemaChange.set_option(ENABLED, "true")


def by_catalog(options: dict[str, str], changes: list[Change]) -> None:
    open_catalog(options, create=False).alter_table("d.t", changes)


def by_session(options: dict[str, str], changes: list[Change]) -> None:
    Session(open_catalog(options, create=False)).alter_table("d.t", changes)


def by_sql(options: dict[str, str], changes: list[Change]) -> None:
    stated = ", ".join(f"'{change.key}' = '{change.value}'" for change in changes)  # type: ignore[union-attr]
    Session(open_catalog(options, create=False)).sql(f"ALTER TABLE d.t SET ({stated})")


def by_pipeline(options: dict[str, str], changes: list[Change]) -> None:
    target = TargetTable(open_catalog(options, create=False), "d.t", "pipeline")
    target.change(changes)


def by_command(options: dict[str, str], changes: list[Change]) -> None:
    own = {key: text for key, text in options.items() if key != "warehouse"}
    given = [word for key, text in own.items() for word in ("-o", f"{key}={text}")]
    stated = [word for each in changes for word in ("--set", f"{each.key}={each.value}")]  # type: ignore[union-attr]
    with pytest.raises(SystemExit) as ended:
        main(["alter", "-w", options["warehouse"], *given, "d.t", *stated])
    if ended.value.code:
        raise InvalidRequest("the command failed")


def by_request(options: dict[str, str], changes: list[Change]) -> None:
    """As a client of another engine does, which leaves all rules to the server."""
    with rest_server(open_catalog(options, create=False)) as client:
        names = open_catalog(client, create=False).names
        assert isinstance(names, ServedNames)
        body = {"changes": [change_to_json(change) for change in changes]}
        names.client.post(f"{names.root}/databases/d/tables/t", body)


DOORS: dict[str, Door] = {
    "catalog": by_catalog,
    "session": by_session,
    "sql": by_sql,
    "pipeline": by_pipeline,
    "command": by_command,
    "request": by_request,
}


@pytest.fixture(name="options", params=["filesystem", "jdbc", "rest"])
def _options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of a catalog with a table whose buckets hold several sorted runs."""
    options = {"metastore": "filesystem", "warehouse": str(tmp_path / "w")}
    if request.param == "jdbc":
        options |= {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    catalog = open_catalog(options, create=True)
    catalog.create_database("d")
    columns = {"id": "INT NOT NULL", "n": "INT"}
    table = catalog.create_table("d.t", columns, primary_keys=["id"], options={"bucket": "1"})
    for n in range(3):
        table.write(pa.table({"id": [1, n], "n": [n, n]}).cast(table.schema.arrow))
    if request.param != "rest":
        yield options
        return
    with rest_server(catalog) as client:
        yield client


def state(options: dict[str, str]) -> tuple[object, ...]:
    table = open_catalog(options, create=False).get_table("d.t")
    rows = sorted(map(tuple, map(dict.values, table.to_arrow().to_pylist())))
    levels = set(table.inspect.files()["level"].to_list())
    return rows, levels, table.options.deletion_vectors_enabled


ROWS = [(0, 0), (1, 2), (2, 2)]


@pytest.mark.parametrize("door", DOORS)
def test_deletion_vectors_come_on_through_every_door(door: str, options: dict[str, str]) -> None:
    DOORS[door](options, [ALLOW, ENABLE])

    assert state(options) == (ROWS, {5}, True)


@pytest.mark.parametrize("door", DOORS)
def test_a_switch_that_is_not_allowed_compacts_nothing(door: str, options: dict[str, str]) -> None:
    before = state(options)
    with pytest.raises(Exception, match=r"modifiable|command failed"):
        DOORS[door](options, [ENABLE])

    assert state(options) == before
