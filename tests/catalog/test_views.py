"""What the views of every catalog must do. Another catalog is one more parameter of `catalog`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.identifier import Identifier, parse_identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.views import (
    AddDialect,
    DropDialect,
    RemoveViewOption,
    SetViewOption,
    UpdateDialect,
    UpdateViewComment,
    View,
    decode_view,
    encode_view,
)
from lakecore.errors import AlreadyExists, CorruptTable, InvalidRequest, LakecoreError, NotFound
from lakecore.model.types import Field, parse_type
from tests.catalog.test_behaviour import at_once
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.views import ViewChange, Views

WRITERS, TURNS = 4, 5


def view(query: str = "SELECT id, n FROM shop.cups", **parts: object) -> View:
    fields = (
        Field(id=0, name="id", type=parse_type("INT"), description="a key"),
        Field(id=1, name="n", type=parse_type("DECIMAL(8, 2)")),
    )
    return View(**{"query": query, "fields": fields, **parts})  # type: ignore[arg-type]


def named(name: str, database: str = "shop") -> Identifier:
    return Identifier(database=database, table=name)


# The tests over servers import all of this module but names with an underscore.
@pytest.fixture(name="catalog", params=["jdbc", "jdbc-locked", "rest"])
def _catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with the databases `shop` and `other`, and the table `shop.cups`."""
    behind = open_catalog(
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "warehouse": str(tmp_path / "w"),
            "lock.enabled": str(request.param == "jdbc-locked").lower(),
        },
        create=True,
    )
    fill(behind)
    if request.param != "rest":
        yield behind
        return
    with rest_server(behind) as client:
        yield open_catalog(client, create=False)


def fill(catalog: Catalog) -> None:
    for database in ("shop", "other"):
        catalog.create_database(database)
    catalog.create_table("shop.cups", {"id": "INT", "n": "DECIMAL(8, 2)"})


@pytest.fixture
def views(catalog: Catalog) -> Views:
    found = catalog.views
    assert found is not None
    return found


@pytest.fixture(name="dialects")
def _dialects() -> dict[str, str]:
    """Texts of a view for other engines; none if the catalog keeps none."""
    return {"flink": "F"}


def test_view_is_found_as_it_was_stored(views: Views, dialects: dict[str, str]) -> None:
    stored = view(
        query="SELECT 'é\n😀' AS id, n FROM shop.cups",
        dialects=dialects,
        comment="of the café",
        options={"owner.team": "a=b"},
    )
    assert views.create(named("late"), stored)
    found = views.find(named("late"))

    assert found is not None
    assert (found.query, found.fields, found.dialects, found.comment) == (
        stored.query,
        stored.fields,
        stored.dialects,
        stored.comment,
    )
    assert found.options["owner.team"] == "a=b"
    assert views.names("shop") == ("late",)
    assert views.names("other") == ()


def test_view_without_a_comment_has_none(views: Views) -> None:
    views.create(named("late"), view())
    found = views.find(named("late"))

    assert found is not None
    assert found.comment is None


def test_missing_view_is_none_and_changes_nothing(views: Views) -> None:
    assert views.find(named("late")) is None
    assert not views.drop(named("late"))
    assert not views.alter(named("late"), [SetViewOption("a", "b")])
    with pytest.raises(NotFound):
        views.rename(named("late"), named("early"))
    with pytest.raises(LakecoreError):
        views.create(named("late", "nowhere"), view())
    with pytest.raises(LakecoreError):
        views.replace(named("late", "nowhere"), view())
    assert views.names("shop") == ()


def test_names_are_taken_by_tables_and_views_alike(catalog: Catalog, views: Views) -> None:
    assert views.create(named("late"), view())

    assert not views.create(named("late"), view("SELECT 2"))
    assert not views.create(named("cups"), view())
    assert not views.replace(named("cups"), view())
    with pytest.raises(AlreadyExists):
        views.rename(named("late"), named("cups"))
    with pytest.raises(AlreadyExists):
        catalog.create_table("shop.late", {"id": "INT"})
    with pytest.raises(AlreadyExists):
        catalog.rename_table("shop.cups", "shop.late")
    assert catalog.list_tables("shop") == ("cups",)
    found = views.find(named("late"))
    assert found is not None
    assert found.query == view().query


def test_view_is_replaced_as_a_whole(views: Views) -> None:
    assert views.replace(named("late"), view(comment="old", options={"a": "1"}))
    for _ in range(2):  # the same view again is no conflict
        assert views.replace(named("late"), view("SELECT 2 AS id, 3 AS n"))
    found = views.find(named("late"))

    assert found is not None
    assert (found.query, found.comment, found.dialects) == ("SELECT 2 AS id, 3 AS n", None, {})
    assert "a" not in found.options


def test_view_is_renamed_and_dropped(views: Views) -> None:
    views.create(named("late"), view(comment="c"))
    views.rename(named("late"), named("early"))
    views.rename(named("early"), named("moved", "other"))
    found = views.find(named("moved", "other"))

    assert found is not None
    assert (found.query, found.comment) == (view().query, "c")
    assert (views.names("shop"), views.names("other")) == ((), ("moved",))
    with pytest.raises(NotFound, match=r"no such database.* database=nowhere"):
        views.rename(named("moved", "other"), named("moved", "nowhere"))
    assert views.drop(named("moved", "other"))
    assert views.names("other") == ()


def test_options_and_comment_are_altered(views: Views) -> None:
    views.create(named("late"), view(comment="old", options={"a": "1", "b": "2"}))
    changes: list[ViewChange] = [
        SetViewOption("a", "3"),
        RemoveViewOption("b"),
        RemoveViewOption("no"),
        SetViewOption("ü", "é"),
    ]
    assert views.alter(named("late"), [*changes, UpdateViewComment("new")])
    found = views.find(named("late"))

    assert found is not None
    assert (found.options["a"], found.options["ü"], found.comment) == ("3", "é", "new")
    assert "b" not in found.options
    assert views.alter(named("late"), [UpdateViewComment(None)])
    found = views.find(named("late"))
    assert found is not None
    assert found.comment is None


def test_dialects_are_altered_all_or_none(views: Views, dialects: dict[str, str]) -> None:
    views.create(named("late"), view(dialects=dialects))
    if not dialects:
        with pytest.raises(LakecoreError, match="no dialects"):
            views.alter(named("late"), [AddDialect("spark", "S")])
        return
    with pytest.raises(AlreadyExists, match="dialect=flink"):
        views.alter(named("late"), [AddDialect("spark", "S"), AddDialect("flink", "S")])
    with pytest.raises(NotFound, match="dialect=trino"):
        views.alter(named("late"), [AddDialect("spark", "S"), UpdateDialect("trino", "T")])
    with pytest.raises(NotFound, match="dialect=trino"):
        views.alter(named("late"), [DropDialect("trino")])
    found = views.find(named("late"))
    assert found is not None
    assert found.dialects == {"flink": "F"}
    assert views.alter(named("late"), [AddDialect("spark", "S"), UpdateDialect("flink", "F2")])
    assert views.alter(named("late"), [DropDialect("flink")])
    found = views.find(named("late"))
    assert found is not None
    assert found.dialects == {"spark": "S"}


def test_database_with_views_is_not_empty(catalog: Catalog, views: Views) -> None:
    views.create(named("late", "other"), view())
    with pytest.raises(InvalidRequest, match="not empty"):
        catalog.drop_database("other")
    catalog.drop_database("other", cascade=True)
    catalog.create_database("other")

    assert views.names("other") == ()


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "a\\b", "a\x00b", "", " ", "x" * 300])
def test_name_that_is_none_stores_nothing(views: Views, name: str) -> None:
    with pytest.raises(InvalidRequest):
        views.create(named(name), view())
    views.create(named("late"), view())
    with pytest.raises(InvalidRequest):
        views.rename(named("late"), named(name))

    assert views.names("shop") == ("late",)


def test_half_a_character_is_stored_nowhere(views: Views) -> None:
    half = "\ud83d"
    for parts in ({"comment": half}, {"options": {"a": half}}, {"dialects": {half: "x"}}):
        with pytest.raises(InvalidRequest, match="not Unicode"):
            view(**parts)
    views.create(named("late"), view())
    with pytest.raises(LakecoreError):
        views.alter(named("late"), [SetViewOption("a", half)])

    assert views.find(named("late")) is not None


def test_of_creations_at_one_time_one_succeeds(views: Views) -> None:
    made = at_once(lambda at: views.create(named("late"), view(comment=str(at))), WRITERS)

    assert sorted(map(str, made)) == ["False", "False", "False", "True"]
    found = views.find(named("late"))
    assert found is not None
    assert found.comment == str(made.index(True))


def test_replacements_at_one_time_leave_one_of_them(views: Views) -> None:
    done = at_once(lambda at: views.replace(named("late"), view(comment=str(at))), WRITERS)

    assert done == [True] * WRITERS
    found = views.find(named("late"))
    assert found is not None
    assert found.comment in {str(at) for at in range(WRITERS)}


def test_changes_at_one_time_are_all_kept(views: Views) -> None:
    views.create(named("late"), view())

    def alter(at: int) -> list[bool]:
        changes = [SetViewOption(f"k{at}-{turn}", str(turn)) for turn in range(TURNS)]
        return [views.alter(named("late"), [each]) for each in changes]

    assert at_once(alter, WRITERS) == [[True] * TURNS] * WRITERS
    found = views.find(named("late"))
    assert found is not None
    kept = {key for key in found.options if key.startswith("k")}
    assert kept == {f"k{at}-{turn}" for at in range(WRITERS) for turn in range(TURNS)}


# --- the stored text ------------------------------------------------------------------------------


def test_stored_text_is_ascii_and_says_the_same() -> None:
    stored = view(query="SELECT 'é😀'", dialects={"flink": "ü"}, comment="c", options={"a": "b"})
    text = encode_view(stored)

    assert text.isascii()
    assert decode_view(text, named("late")) == stored


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"query": "x"}',
        '{"query": 1, "fields": []}',
        '{"query": "x", "fields": [], "dialects": {"a": 1}}',
        '{"query": "x", "fields": [], "comment": 1}',
        '{"query": "x", "fields": 1}',
        '{"query": "\\ud83d", "fields": []}',
        '{"query": "x", "fields": [], "options": {"\\ud83d": "x"}}',
    ],
)
def test_malformed_text_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptTable, match=r"shop\.late"):
        decode_view(text, parse_identifier("shop.late"))


def test_view_is_not_renamed_onto_itself(views: Views) -> None:
    views.create(named("late"), view())
    with pytest.raises(AlreadyExists):
        views.rename(named("late"), named("late"))

    found = views.find(named("late"))
    assert found is not None
    assert found.query == view().query
    assert views.drop(named("late"))
