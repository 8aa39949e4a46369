"""`lakecore action`: the flags of the Flink action jar."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main
from lakecore.cli.action_table import ACTIONS
from lakecore.sql.procedures.registry import PROCEDURES

if TYPE_CHECKING:
    from pathlib import Path

TABLE = ("--database", "shop", "--table", "t")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKECORE_WAREHOUSE", str(tmp_path / "w"))
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    for name in ("t", "s"):
        session.create_table(
            f"shop.{name}",
            {"id": "INT NOT NULL", "v": "INT", "dt": "STRING NOT NULL"},
            primary_keys=["id", "dt"],
            partition_keys=["dt"],
            options={"bucket": "1"},
        )
    for v in (1, 2):
        table(tmp_path).write([{"id": n, "v": v, "dt": dt} for n in (1, 2) for dt in "ab"])
    return tmp_path


def table(place: Path, name: str = "t") -> lc.Table:
    return lc.connect(place / "w").get_table(f"shop.{name}")


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main(["action", *arguments])
    out, err = capfd.readouterr()
    return exited.value.code or 0, out, err  # type: ignore[return-value]  # an int or None


def done(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    code, out, err = run(capfd, *arguments, "--json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_every_argument_of_a_flag_is_one_of_its_procedure() -> None:
    strange = {
        (name, argument)
        for name, each in ACTIONS.items()
        if each.procedure in PROCEDURES
        for argument in (*each.flags.values(), each.table)
        if argument and argument not in {a.name for a in PROCEDURES[each.procedure].arguments}
    }

    assert strange <= {("merge_into", "merge_actions")}


def test_names_and_flags_take_hyphens_and_underscores(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done(capfd, "create-tag", *TABLE, "--tag-name", "one", "--snapshot", "1")
    done(capfd, "create_tag", *TABLE, "--tag_name=two", "--time_retained", "1 d")

    assert [tag.name for tag in table(place).tags()] == ["one", "two"]
    done(capfd, "rollback_to", *TABLE, "--version", "one")
    assert {row["v"] for row in table(place).to_arrow().to_pylist()} == {1}
    done(capfd, "delete_tag", *TABLE, "--tag_name", "one")
    assert table(place).tags() == ()


def test_table_is_named_by_its_path(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert done(capfd, "compact", "--path", str(place / "w/shop.db/t")) == [
        {"result": "Success. snapshots: 3"}
    ]
    assert done(capfd, "compact", "--path", "w/shop.db/t", "--compact-strategy", "minor") == [
        {"result": "Success. there was nothing to compact"}
    ]


def test_partitions_and_options_may_be_repeated(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = ("--partition", "dt=a", "--partition", "dt=b", "--table_conf", "target-file-size=1 mb")
    done(capfd, "compact", *TABLE, *more, "--catalog_conf", "commit.single-writer=true")
    done(capfd, "drop_partition", *TABLE, "--partition", "dt=a")

    assert {row["dt"] for row in table(place).to_arrow().to_pylist()} == {"b"}


def test_merge_into_in_both_forms_of_the_guide(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table(place, "s").write([{"id": 1, "v": 10, "dt": "a"}, {"id": 9, "v": 90, "dt": "a"}])
    done(
        *(capfd, "merge_into", *TABLE, "--source-table", "s"),
        *("--on", "t.id = s.id AND t.dt = s.dt"),
        *("--merge-actions", "matched-upsert,not-matched-insert"),
        *("--matched-upsert-set", "v = s.v", "--not-matched-insert-values", "*"),
    )
    assert table(place).to_polars(where="dt = 'a'").sort("id").rows() == [
        (1, 10, "a"),
        (2, 2, "a"),
        (9, 90, "a"),
    ]
    done(
        *(capfd, "merge_into", "--warehouse", "w", *TABLE, "--target_as", "T"),
        *("--source_sql", "CREATE TEMPORARY VIEW X AS SELECT 9 AS id"),
        *("--source_table", "X", "--on", "T.id = X.id", "--merge_actions", "matched_delete"),
    )

    assert table(place).count("id = 9") == 0


def test_delete_and_clean_up(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert done(capfd, "delete", *TABLE, "--where", "id = 1")[0]["rows_deleted"] == 2
    found = done(capfd, "remove_orphan_files", "--database", "shop", "--dry_run")
    assert found == [{"deleted_file_count": 0, "deleted_file_total_len_in_bytes": 0}]
    assert len(done(capfd, "compact_database", "--including_databases", "shop")) == 2
    expired = done(capfd, "expire_snapshots", *TABLE, "--retain_max", "1", "--retain_min", "1")
    assert expired == [{"deleted_snapshots_count": 3}]
    assert len(table(place).context.history.snapshot_ids()) == 1


def test_compact_takes_buckets_as_numbers_and_ranges(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wide = lc.connect(place / "w").create_table(
        "shop.wide", {"id": "INT NOT NULL"}, primary_keys=["id"], options={"bucket": "5"}
    )
    for _ in range(2):
        wide.write([{"id": n} for n in range(100)])
    where = ("--path", "w/shop.db/wide", "--compact_strategy", "full")
    done(capfd, "compact", *where, "--buckets", "0-1, 3")

    files = table(place, "wide").inspect.files()
    assert files.filter(files["level"] > 0)["bucket"].sort().to_list() == [0, 1, 3]
    for wrong in ("5", "1-9", "3-1", "-1", "a", "1,,2", ""):
        assert run(capfd, "compact", *where, f"--buckets={wrong}")[0] == int(wrong != "")


def test_create_branch_may_leave_the_one_that_exists(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make = ("create_branch", *TABLE, "--branch_name", "b")
    done(capfd, *make)
    code, _, err = run(capfd, *make, "--ignore_if_exists", "false")
    assert code == 1
    assert "b" in err
    done(capfd, *make, "--ignore_if_exists")
    done(capfd, *make, "--ignore_if_exists", "true")

    assert [branch.name for branch in table(place).branches()] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clone"], "reason=copy the rows"),
        (["mongodb-sync-table"], "has no such source"),
        (["compakt"], "did_you_mean=compact"),
        (["create_tag", *TABLE, "--tagname", "x"], "flag=--tagname nearest=--tag_name"),
        (["create_tag", *TABLE], "missing=[--tag_name]"),
        (["create_tag", "--table", "t", "--tag_name", "x"], "name the table: --path, or"),
        (["compact", *TABLE, "--where"], "the flag needs a value"),
        (["compact", *TABLE, "--where", "x", "--where", "y"], "the flag is given twice"),
        (["compact", *TABLE, "all"], "expected a flag"),
        (["compact", *TABLE, "--force_start_flink_job", "true"], "without Flink"),
        (["compact", "--path", "w/shop.db/t", "--table", "t"], "give --path, or"),
        (["compact", *TABLE, "--catalog_conf", "x"], "--catalog_conf is written KEY=VALUE"),
        (["delete", *TABLE, "--where", "true", "--sink_parallelism", "2"], "how Flink runs"),
        (["compact", *TABLE, "--output", "xml"], "unknown output"),
        (["merge_into", *TABLE, "--source_table", "s", "--on", "true", "--merge_actions", "x"],
         "known=[matched-upsert"),
        (["compact", "--database", "nowhere", "--table", "t"], "nowhere"),
    ],
)  # fmt: skip
def test_wrong_actions_say_what_to_do(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capfd, *arguments)

    is_usage = any(
        text in message for text in ("nearest=--", "a value", "twice", "expected a flag")
    )
    assert (code, out) == (2 if is_usage else 1, "")
    assert message in err


def test_help_lists_actions_and_flags(capfd: pytest.CaptureFixture[str]) -> None:
    assert all(f"  {name}\n" in run(capfd)[1] for name in ACTIONS)
    assert "--where  (required)" in run(capfd, "delete", "--help")[1]


def test_compact_sorts_the_rows_of_an_append_table(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = lc.connect(place / "w")
    points = session.create_table("shop.points", {"x": "INT", "y": "INT"})
    points.write([{"x": 3, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 3}])
    where = ("--database", "shop", "--table", "points")

    done(capfd, "compact", *where, "--order_strategy", "zorder", "--order_by", "x,y")

    assert table(place, "points").to_polars()["x"].to_list() == [1, 3, 2]
    flags = ("--order-strategy", "order", "--order-by", "y")
    with pytest.raises(SystemExit) as exited:
        main(["compact", "shop.points", *flags, "--json"])
    assert not exited.value.code
    assert json.loads(capfd.readouterr().out)["rows_after"] == 3
    assert table(place, "points").to_polars()["y"].to_list() == [1, 2, 3]
    for wrong in (("--order-by", "x"), ("--order-strategy", "spiral"), (*flags, "--watch")):
        with pytest.raises(SystemExit) as exited:
            main(["compact", "shop.points", *wrong])
        assert exited.value.code
