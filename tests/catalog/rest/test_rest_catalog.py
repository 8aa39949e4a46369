"""Tables of a server: who owns them, what a name may be, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.catalog.registry import open_catalog
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.model.schema_change import SchemaChange
from tests.rest_servers import Fault

if TYPE_CHECKING:
    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table
    from tests.rest_servers import BreakingApp

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING"}


def create(catalog: Catalog, name: str = "shop.orders") -> Table:
    return catalog.create_table(name, COLUMNS, primary_keys=["id"], options={"bucket": "1"})


def rows(*ids: int) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "name": [f"n{each}" for each in ids]})


def ids_of(table: Table) -> list[int]:
    return sorted(table.to_polars()["id"].to_list())


def test_session_writes_and_reads_a_table_of_the_server(
    client: dict[str, str], behind: Catalog, app: BreakingApp
) -> None:
    session = lc.connect(client)
    table = session.create_table("shop.orders", data=rows(1, 2), primary_keys=["id"])
    table.write(rows(2, 3))

    assert ids_of(session.get_table("shop.orders")) == [1, 2, 3]
    assert ids_of(behind.get_table("shop.orders")) == [1, 2, 3]
    assert app.seen.count("POST /v1/paimon/databases/shop/tables/orders/commit") == 2


def test_rows_that_do_not_fit_leave_no_table(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest):
        catalog.create_table(
            "shop.orders", COLUMNS, primary_keys=["id"], data=pl.DataFrame({"id": ["no number"]})
        )

    assert catalog.list_tables("shop") == ()


@pytest.mark.parametrize("name", ["a b", "ä+%", "c~d*", "100%25", "x.y"])
def test_any_name_survives_its_address(catalog: Catalog, behind: Catalog, name: str) -> None:
    catalog.create_table(f"shop.`{name}`", COLUMNS).write(rows(1))

    assert catalog.list_tables("shop") == behind.list_tables("shop") == (name,)
    assert ids_of(catalog.get_table(f"shop.`{name}`")) == [1]


def test_table_made_again_under_the_name_takes_no_commit_of_the_old_one(
    catalog: Catalog, behind: Catalog
) -> None:
    old = create(catalog)
    writer = old.new_stream_write("w")
    writer.write(rows(1))
    writer.prepare_commit(1)
    catalog.drop_table("shop.orders")
    create(catalog)

    with pytest.raises(NotFound, match=r"another was made in its place|was dropped or renamed"):
        writer.commit(1)
    writer.close()
    assert ids_of(behind.get_table("shop.orders")) == []


def test_external_table_is_committed_by_files(
    catalog: Catalog, app: BreakingApp, behind: Catalog
) -> None:
    create(behind).write(rows(1))
    described = catalog.names.client.get("/v1/databases/shop/tables/orders")  # type: ignore[attr-defined]
    described["isExternal"] = True
    fault = app_fault("GET", "tables/orders", json.dumps(described).encode())
    app.faults.append(fault)
    table = catalog.get_table("shop.orders")
    table.write(rows(2))

    assert ids_of(table) == [1, 2]
    assert not [seen for seen in app.seen if seen.endswith(("commit", "snapshot"))]


def app_fault(method: str, ending: str, body: bytes) -> Fault:
    """The server replies with this body."""
    return Fault(method, ending, status=200, times=100, body=body)


def test_tags_branches_and_rollback_are_calls_to_the_server(
    catalog: Catalog, behind: Catalog, app: BreakingApp
) -> None:
    table = create(catalog)
    table.write(rows(1))
    table.write(rows(2))
    tag = table.create_tag("first", snapshot_id=1, time_retained="2 d")
    with pytest.raises(AlreadyExists, match="tag=first"):
        table.create_tag("first")
    table.create_branch("trial", tag="first")
    trial = table.branch("trial")
    trial.write(rows(9))

    assert (tag.snapshot_id, tag.retained_seconds) == (1, 172_800)
    assert catalog.list_tags("shop.orders") == ("first",)
    assert catalog.list_branches("shop.orders") == ("trial",)
    assert ids_of(catalog.get_table("shop.orders$branch_trial")) == [1, 9]
    assert ids_of(table) == [1, 2]
    table.fast_forward("trial")
    assert ids_of(behind.get_table("shop.orders")) == ids_of(table) == [1, 9]
    table.rollback_to(snapshot_id=1)
    assert ids_of(table) == [1]
    table.delete_tag("first")
    table.delete_branch("trial")
    assert (catalog.list_tags("shop.orders"), catalog.list_branches("shop.orders")) == ((), ())
    place = "/v1/paimon/databases/shop/tables/orders"
    assert {f"POST {place}/tags", f"POST {place}/rollback"} <= {*app.seen}
    assert f"POST {place}/branches/trial/forward" in app.seen


def test_tag_whose_snapshot_has_expired_is_a_target(catalog: Catalog) -> None:
    table = create(catalog)
    for number in (1, 2, 3):
        table.write(rows(number))
        if number == 1:
            table.create_tag("first")
    table.expire_snapshots(retain_max=1, retain_min=1)

    assert table.create_tag("second", snapshot_id=1).snapshot_id == 1
    assert table.rollback_to(tag="first").snapshot_id == 1
    assert ids_of(table) == [1]


def test_verbs_for_which_the_protocol_has_no_call_are_refused(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(rows(1))
    table.create_tag("a")
    table.create_branch("b")

    for verb in (
        lambda: table.rename_tag("a", "c"),
        lambda: table.replace_tag("a"),
        lambda: table.rename_branch("b", "c"),
    ):
        with pytest.raises(Unsupported, match="has no call for this"):
            verb()


def test_schema_changes_of_two_clients_are_all_kept(
    catalog: Catalog, client: dict[str, str]
) -> None:
    table = create(catalog)
    other = open_catalog(client, create=False)
    other.alter_table("shop.orders", [SchemaChange.add_column("a", "INT")])
    catalog.alter_table("shop.orders", [SchemaChange.add_column("b", "INT")])
    table.write(rows(1))

    assert catalog.get_table("shop.orders").schema.names == ("id", "name", "a", "b")


def test_wrong_token_says_so_without_showing_it(client: dict[str, str]) -> None:
    with pytest.raises(StorageError, match="does not know the token") as caught:
        open_catalog({**client, "token": "some-wrong-secret"}, create=False)

    assert "some-wrong-secret" not in f"{caught.value}{caught.value!r}"


def test_server_that_is_not_there_is_named(client: dict[str, str]) -> None:
    with pytest.raises(StorageError, match=r"cannot be reached.*address=http://127\.0\.0\.1:1 "):
        open_catalog({**client, "uri": "127.0.0.1:1"}, create=False)


def test_options_of_the_server_stand_between_defaults_and_overrides(
    client: dict[str, str], app: BreakingApp
) -> None:
    stated = {
        "defaults": {"table-default.bucket": "7", "table-default.file.format": "orc", "x": None},
        "overrides": {"table-default.bucket": "2"},
    }
    app.faults.append(app_fault("GET", "config", json.dumps(stated).encode()))
    catalog = open_catalog(
        {**client, "table-default.bucket": "3", "table-default.file.format": "avro"}, create=False
    )
    table = catalog.create_table("shop.orders", COLUMNS, primary_keys=["id"])

    assert table.schema.options == {"bucket": "2", "file.format": "avro"}


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        ({"uri": ""}, InvalidRequest, "needs the address"),
        ({"token.provider": "basic"}, InvalidRequest, "token provider"),
        ({"token": ""}, InvalidRequest, "needs a token"),
        ({"tokn": "x"}, InvalidRequest, "did_you_mean=token"),
        ({"lock.enabled": "true"}, Unsupported, "not supported"),
        ({"token.provider": "dlf"}, InvalidRequest, "needs credentials"),
    ],
)
def test_options_are_checked(
    client: dict[str, str], given: dict[str, str], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        open_catalog({**client, **given}, create=False)


def test_secrets_are_shown_nowhere(client: dict[str, str]) -> None:
    secret = client["token"]
    catalog = open_catalog(client, create=False)
    catalog.create_table("shop.orders", COLUMNS)
    shown = [
        repr(catalog),
        repr(catalog.names.options),  # type: ignore[attr-defined]
        repr(lc.connect(client)),
        repr(catalog.get_table("shop.orders").context),
        str(catalog.get_table("sys.catalog_options").to_polars()),
    ]

    assert not [text for text in shown if secret in text]
