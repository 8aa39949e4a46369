"""What people see of values: representations are short, and say what matters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.sql.python_objects import SqlRelation

SIMPLE = ("str", "int", "float", "bool", "None", "MoveKind")


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    session = lc.connect(tmp_path)
    session.create_database("d")
    session.create_table("d.t", {"id": "INT NOT NULL", "n": "INT"}, primary_keys=["id"])
    return session


def test_no_public_value_prints_a_nested_dataclass() -> None:
    public = [getattr(lc, name) for name in lc.__all__]
    generated = [
        each
        for each in public
        if isinstance(each, type)
        and dataclasses.is_dataclass(each)
        and hasattr(each.__repr__, "__wrapped__")
    ]
    nested = {
        (each.__name__, field.name)
        for each in generated
        for field in dataclasses.fields(each)
        if not set(str(field.type).split(" | ")) <= {*SIMPLE}
    }

    assert nested == set()


def test_a_branch_is_named(session: lc.Session) -> None:
    table = session.get_table("d.t")
    table.write([{"id": 1, "n": 1}])
    table.create_branch("b1")

    assert "branch='b1'" in repr(session.get_table("d.t$branch_b1"))
    assert "branch=" not in repr(table)


def test_branches_and_consumers_are_tables_in_a_notebook(session: lc.Session) -> None:
    table = session.get_table("d.t")
    table.create_branch("<b>")
    table.reset_consumer("reader", next_snapshot=1)
    branch, consumer = table.branches()[0], table.consumers()[0]

    assert "<td style='text-align:left'>&lt;b&gt;</td>" in branch._repr_html_()
    assert "latest snapshot" not in branch._repr_html_(), "it has none"
    assert "next snapshot</th><td style='text-align:left'>1<" in consumer._repr_html_()


def test_the_rows_of_a_statement_are_a_table_in_a_notebook(session: lc.Session) -> None:
    texts = ("SELECT NULL AS n, '<b>' AS t", "SELECT 'row ' || range AS r FROM range(1000)")
    shown, long = (cast("SqlRelation", session.sql(text))._repr_html_() for text in texts)

    assert "<caption>1 rows</caption>" in shown
    assert "<td style='text-align:left'>NULL</td><td style='text-align:left'>&lt;b&gt;<" in shown
    assert "<caption>the first 50 rows</caption>" in long
    assert ("row 49<" in long, "row 50<" in long) == (True, False)


def test_a_merge_that_was_not_executed_says_so(session: lc.Session) -> None:
    merge = session.get_table("d.t").merge([{"id": 1, "n": 2}], on="id").when_matched_delete()

    assert repr(merge) == (
        "MergeInto('d.t', 1 clause: nothing has happened yet; execute() runs the merge)"
    )


@pytest.mark.parametrize("argument", ["primary_keys", "partition_keys", "options"])
def test_none_is_no_keys_and_no_options(session: lc.Session, tmp_path: Path, argument: str) -> None:
    table = session.create_table("d.x", {"id": "INT"}, **{argument: None})  # type: ignore[arg-type]
    opened = lc.open_table(
        tmp_path / "y",
        create=True,
        schema={"id": "INT"},
        **{argument: None},  # type: ignore[arg-type]
    )

    assert table.schema.primary_keys == opened.schema.partition_keys == ()


def test_an_expression_given_as_a_string_is_hinted_at(session: lc.Session) -> None:
    table = session.get_table("d.t")
    with pytest.raises(InvalidRequest, match=r"lc\.sql_expr\('n \+ 1'\)"):
        table.update({"n": "n + 1"})
    merge = table.merge([{"id": 1, "n": 2}], on="id").when_matched_update({"n": "source.n + 1"})
    with pytest.raises(InvalidRequest, match=r"lc\.sql_expr\('source\.n \+ 1'\)"):
        merge.execute()


def test_a_time_in_an_error_is_readable() -> None:
    error = NotFound("no such state", time_ms=1_795_898_083_738, waited_ms=1500)

    assert str(error) == "no such state. time=2026-11-28T20:34:43.738Z waited_ms=1500"
    assert error.facts["time_ms"] == 1_795_898_083_738


def test_integer_that_python_does_not_print_is_named_by_its_type() -> None:
    error = NotFound("no such state", one=10**5000, some=[1, -(10**5000)])

    shown = "<int with too many digits to be shown>"
    assert str(error) == f"no such state. one={shown} some=[1, {shown}]"
