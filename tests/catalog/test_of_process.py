"""What a process allows its tables: given by every door of the process, by nothing stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.rest.rest_options import merged_options, parse_rest_options
from lakecore.cli import main
from lakecore.errors import InvalidRequest
from lakecore.options import NEVER_STORED
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "lakecore.external-paths"


def _hostile(root: Path) -> lc.Session:
    """A warehouse whose table `d.t` has one row, in a file outside, and declares that place."""
    session = lc.connect(root / "w", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT"}, options={"bucket": "1", "bucket-key": "id"})
    with table.new_write() as writer:
        writer.write([{"id": 7}])
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    (root / "out").mkdir()
    (root / "w/d.db/t/bucket-0" / file.name).rename(root / "out" / file.name)
    outside = replace(file, external_path=str(root / "out" / file.name))
    allowed = table.copy({KEY: str(root)})
    allowed.commit([replace(message, new_files=(outside,))])
    path = root / "w/d.db/t/schema/schema-0"
    stored = json.loads(path.read_text())
    stored["options"] |= {KEY: str(root), "data-file.external-paths": str(root)}
    path.write_text(json.dumps(stored))
    return session


def _cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> bool:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    printed = capsys.readouterr()
    assert not ended.value.code or KEY in printed.err, printed
    return not ended.value.code and "7" in printed.out


def test_every_door_of_the_process_allows_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _hostile(tmp_path)
    where, path = str(tmp_path / "w"), str(tmp_path / "w/d.db/t")

    def flags(given: dict[str, str]) -> list[str]:
        return [f"--option={key}={text}" for key, text in given.items()]

    def rows(table: lc.Table) -> bool:
        return bool(table.to_arrow()["id"].to_pylist() == [7])

    def hint(given: dict[str, str]) -> str:
        listed = ", ".join(f"'{key}' = '{text}'" for key, text in given.items())
        return f" /*+ OPTIONS({listed}) */" if given else ""

    jdbc = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": where}
    lc.connect(jdbc, create=True).repair()
    by_path = f"SELECT id FROM '{path}'"
    with rest_server(open_catalog({"warehouse": where}, create=False)) as rest:
        doors: dict[str, Callable[[dict[str, str]], bool]] = {
            "connect": lambda g: rows(lc.connect({"warehouse": where} | g).get_table("d.t")),
            "jdbc": lambda g: rows(lc.connect(jdbc | g).get_table("d.t")),
            "rest": lambda g: rows(lc.connect(rest | g).get_table("d.t")),
            "sql": lambda g: (
                lc.connect({"warehouse": where} | g).sql("SELECT id FROM d.t").fetchall() == [(7,)]
            ),
            "sql by path": lambda g: (
                lc.connect({"warehouse": where} | g).sql(by_path).fetchall() == [(7,)]
            ),
            "hint": lambda g: (
                lc.connect(where).sql(f"SELECT id FROM d.t{hint(g)}").fetchall() == [(7,)]
            ),
            "open_table": lambda g: rows(lc.open_table(path, options=g)),
            "create=True": lambda g: rows(lc.open_table(path, create=True, options=g)),
            "copy": lambda g: rows(lc.open_table(path).copy(g)),
            "cli by path": lambda g: _cli(capsys, "read", path, *flags(g)),
            "cli": lambda g: _cli(capsys, "read", "d.t", "--warehouse", where, *flags(g)),
            "cli sql": lambda g: _cli(
                capsys, "sql", "-e", "SELECT id FROM d.t", "--warehouse", where, *flags(g)
            ),
        }
        for name, opens in doors.items():
            assert opens({KEY: f"{tmp_path}/out"}), name
            try:
                assert not opens({KEY: f"{tmp_path}/ou", "lakecore.blob-paths": "/"}), name
            except InvalidRequest as error:
                assert KEY in str(error), name  # noqa: PT017 - the command line prints it


def test_a_table_is_created_without_what_the_process_allows(tmp_path: Path) -> None:
    allowed = dict.fromkeys(NEVER_STORED, "/x")
    made = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"}, options=allowed)

    assert made.options.lakecore_external_paths == ("/x",)
    assert not NEVER_STORED & made.schema.options.keys()
    session = lc.connect({"warehouse": str(tmp_path / "w")} | allowed, create=True)
    session.create_database("d")
    assert session.create_table("d.t", {"id": "INT"}).options.lakecore_blob_paths == ("/x",)
    assert not NEVER_STORED & session.get_table("d.t").schema.options.keys()


@pytest.mark.parametrize("key", sorted(NEVER_STORED))
def test_a_server_allows_its_client_nothing(key: str) -> None:
    mine: Any = {"uri": "http://x", "metastore": "rest", "warehouse": "w"}

    assert key not in merged_options(parse_rest_options(mine), {key: "/"}, {key: "/"}).texts
    given = parse_rest_options(mine | {key: "/a"})
    assert merged_options(given, {key: "/"}, {key: "/"}).texts[key] == "/a"
