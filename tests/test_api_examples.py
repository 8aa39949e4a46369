"""The examples of docs/api.md, which are those of the docstrings: each is there, and runs alone.

An expression with a comment has the value that the comment shows:

    table.count()  # 12
"""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import re
import shutil
from collections import defaultdict
from pathlib import Path

import duckdb
import polars as pl
import pytest

import lakecore as lc
from tests.api_page import api_page
from tests.stores import FailingStore
from tests.tables import reopened

LINES_MAX = 5
WHOLE = {"MergeInto", "SchemaChange", "StreamWrite"}
"""Classes whose example shows all that they do, and is longer."""
ROWS = [{"id": each, "item": "tea", "price": 2.5, "n": each} for each in range(1, 13)]
CATALOG = """
options = {"metastore": "jdbc", "uri": "jdbc:sqlite:/data/names", "warehouse": "/data/warehouse"}
session = lakecore.connect(options, create=True)
"""
SUMS = """
options = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
columns = {"id": "INT NOT NULL", "n": "INT"}
table = session.create_table("shop.sums", columns, primary_keys=["id"], options=options)
table.write([{"id": 1, "n": 2_147_483_647}])
table.write([{"id": 1, "n": 1}])
"""
STALE = """
def write_again():
    with table.new_write() as writer:
        writer.write([{"id": 1}])
        return writer.prepare_commit()
table = session.create_table("shop.dynamic", {"id": "INT NOT NULL"}, primary_keys=["id"])
messages = write_again()
table.write([{"id": 2}])
"""
PREPARED = """
with table.new_stream_write("loader") as writer:
    writer.write(rows)
    checkpoint, messages = 1, writer.prepare_commit(1)
"""
VARIANT = """
table = session.create_table("shop.events", {"payload": "VARIANT"})
table.write([{"payload": "[1, 2]"}])
"""
POINTS = "table = session.create_table('shop.points', {'x': 'INT', 'y': 'INT'})"
DAYS = "table = session.get_table('logs.days')"
TRIAL = "table.create_tag('day 1'); table.create_branch('trial', 'day 1')"
STREAM = "stream = table.stream(1, until='latest', consumer_id='mails'); next(stream)"
BEFORE = {
    "Branch": TRIAL,
    "ChangeStream.close": STREAM,
    "ChangeStream.commit": STREAM,
    "ChangeStream.next_snapshot": STREAM,
    "CommitConflict": STALE,
    "CommitUnknown": PREPARED + "table = reopened(table, store=NoReply(table.context.store))",
    "CorruptTable": "[each.write_bytes(b'') for each in Path(table.path).glob('bucket-0/*')]",
    "ExpiredPartitions": DAYS,
    "FastForwardResult": TRIAL,
    "Session.create_table": "session.drop_table('shop.orders')",
    "Session.repair": CATALOG,
    "StorageError": "table = reopened(table, store=NoSpace(table.context.store, fail_at=1))",
    "StreamWrite": PREPARED + "batches = [rows, rows]",
    "Table.branch": TRIAL,
    "Table.branches": TRIAL,
    "Table.compact": POINTS + "; table.write([{'x': 1, 'y': 2}])",
    "Table.delete_branch": "table.create_branch('experiment')",
    "Table.delete_tag": "table.create_tag('old-layout')",
    "Table.drop_partition": DAYS,
    "Table.expire_partitions": DAYS,
    "Table.fast_forward": TRIAL,
    "Table.mark_partition_done": DAYS,
    "Table.overwrite": DAYS + "; rows = [{'day': datetime.date(2026, 1, 1), 'n': 3}]",
    "Table.rename_branch": TRIAL,
    "Table.rename_tag": "table.create_tag('before-migration')",
    "Table.replace_tag": "table.create_tag('stable')",
    "Table.rescale": DAYS,
    "Uncomputable": SUMS,
    "variant_to_json": VARIANT,
}
"""What an example takes for granted besides `session`, `table` and `rows`."""


class NoSpace(FailingStore):
    """The first change fails, and all calls after it."""

    failure: type[BaseException] = lc.StorageError


class NoReply(FailingStore):
    """The reply to a commit is lost."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        raise lc.CommitUnknown("no reply", path=path, size=len(data))


def _parts() -> dict[str, str]:
    _, *parts = re.split(r"^#{2,4} (.*)$", api_page(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


PARTS = _parts()
EXAMPLES = {
    name: examples
    for name, text in PARTS.items()
    if (examples := re.findall(r"^```py3\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a keyed table of three snapshots, and one with partitions."""
    place = tmp_path_factory.mktemp("made")
    session = lc.connect(place / "warehouse", create=True)
    session.create_database("shop")
    session.create_database("logs")
    columns = {"id": "BIGINT NOT NULL", "item": "STRING", "price": "DOUBLE", "n": "INT"}
    table = session.create_table(
        "shop.orders", columns, primary_keys=["id"], options={"bucket": "1"}
    )
    for rows in (ROWS[:6], ROWS[6:], ROWS[:1]):
        table.write(rows)
    days = session.create_table(
        "logs.days",
        {"day": "DATE NOT NULL", "n": "INT NOT NULL"},
        primary_keys=["day", "n"],
        partition_keys=["day"],
        options={"bucket": "1"},
    )
    days.write([{"day": dt.date(2026, 1, each), "n": each} for each in (1, 2)])
    pl.DataFrame(ROWS).write_csv(place / "orders.csv")
    return place


class _Shown(ast.NodeTransformer):
    """Compares each expression with the comment on its last line."""

    def __init__(self, code: str) -> None:
        self.lines = code.splitlines()

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        _, _, comment = self.lines[(node.end_lineno or 1) - 1].partition("  # ")
        if comment:
            call = ast.Call(
                ast.Name("compare", ast.Load()), [node.value, ast.Constant(comment)], []
            )
            node.value = ast.copy_location(call, node)
        return node


def run(code: str, names: dict[str, object]) -> list[tuple[str, str]]:
    """Run the code. Returns the values that it shows, and what its comments say."""
    found: list[tuple[str, str]] = []
    names["compare"] = lambda value, comment: found.append((repr(value), comment))
    tree = ast.fix_missing_locations(_Shown(code).visit(ast.parse(code)))
    exec(compile(tree, "docs/api.md", "exec"), names)  # noqa: S102 - ours
    return found


@pytest.fixture
def names(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What examples use without saying where it is from."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lc.memory, "_process", lc.memory.Budget())
    session = lc.connect(tmp_path / "warehouse")
    rows = pl.DataFrame(ROWS)
    return {
        **{each.__name__: each for each in (NoReply, NoSpace, Path, reopened)},
        "connection": duckdb.connect(),
        "datetime": dt,
        "lakecore": lc,
        "pl": pl,
        "read_queue": lambda: iter([rows]),
        "rows": rows,
        "session": session,
        "table": session.get_table("shop.orders"),
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_shows_what_it_says(
    name: str, names: dict[str, object], tmp_path: Path
) -> None:
    run(BEFORE.get(name, "").replace("/data/", f"{tmp_path}/"), names)
    for example in EXAMPLES[name]:
        code = example.replace("/data/", f"{tmp_path}/")
        kind = getattr(lc, name, None)
        if inspect.isclass(kind) and issubclass(kind, lc.LakecoreError):
            [tried] = [node for node in ast.parse(code).body if isinstance(node, ast.Try)]
            with pytest.raises(kind):
                exec(compile(ast.Module(tried.body, []), name, "exec"), names)  # noqa: S102 - ours
        for value, comment in run(code, names):
            assert value == comment


def test_each_public_name_has_an_example() -> None:
    public = {name for name in lc.__all__ if not name.startswith("_")}
    members = {name for name in PARTS if name.startswith(("Session.", "Table."))}

    assert len(members) > 60
    assert sorted((public | members) - set(EXAMPLES)) == []


def test_each_member_of_another_class_is_in_an_example_of_it() -> None:
    shown: defaultdict[str, str] = defaultdict(str)
    for name, examples in EXAMPLES.items():
        shown[name.partition(".")[0]] += "".join(examples)
    members = [name.split(".") for name in PARTS if "." in name]

    assert [
        f"{owner}.{member}"
        for owner, member in members
        if not re.search(rf"\.{member}\b", shown[owner])
    ] == []


def test_examples_are_short() -> None:
    lines = {name: "".join(found).count("\n") for name, found in EXAMPLES.items()}

    assert {name for name, count in lines.items() if count > LINES_MAX} <= WHOLE
