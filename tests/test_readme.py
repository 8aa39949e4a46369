"""What the documents tell a reader to do works: Python blocks run, links and targets exist."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTALL = (ROOT / "docs" / "install.md").read_text()
PAGES = [Path("README.md"), *sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON_SHOWN = re.compile(r"^```(?:python|py3|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLUMNS_MAX = 80
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The line on which each Python block begins, and its code."""
    return [
        (text.count("\n", 0, match.start(1)) + 1, match[1]) for match in PYTHON_BLOCK.finditer(text)
    ]


def test_blocks_are_found_with_their_lines() -> None:
    text = "# T\n\n```python\na = 1\n```\n\n```bash\nls\n```\n\n```python\nb = a\n\nc = b\n```\n"

    assert python_blocks(text) == [(4, "a = 1\n"), (12, "b = a\n\nc = b\n")]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_python_block_of_the_page_runs_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / page).read_text()
    blocks = python_blocks(text)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for line, code in blocks:
        # Empty lines before the code give a traceback the line numbers of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)  # noqa: S102 - ours

    assert len(blocks) == text.count("```python")


def test_the_first_block_of_the_readme_prints_what_its_comments_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, code = python_blocks((ROOT / "README.md").read_text())[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - ours

    assert line < 30
    shown = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == shown
    assert len(shown) >= 4


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_on_the_page_needs_no_line_break_of_the_browser(page: Path) -> None:
    code = "".join(PYTHON_SHOWN.findall((ROOT / page).read_text()))

    assert [line for line in code.splitlines() if len(line) > COLUMNS_MAX] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_of_the_page_leads_to_a_file_and_its_heading(page: Path) -> None:
    for target, heading in LINK.findall((ROOT / page).read_text()):
        linked = (ROOT / page).parent / target if target else ROOT / page
        assert linked.is_file(), target
        if heading:
            found = HEADING.findall(linked.read_text())
            plain = [re.sub(r"[^\w -]", "", title.lower()) for title in found]
            assert heading in [title.replace(" ", "-") for title in plain]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_target_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / document).read_text()
    named = set(re.findall(r"(?:`| {4}|part [a-z]+ \d+ )make ([a-z-]+)\b", text))

    assert named
    assert named <= targets


def test_the_table_of_extras_has_each_extra_and_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = {
        extra: {re.split(r"[<>=]", package)[0] for package in packages}
        for extra, packages in project["optional-dependencies"].items()
    }
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| .* \| (.*) \|$", INSTALL, re.MULTILINE)

    assert {extra: set(re.findall(r"`([^`]+)`", names)) for extra, names in rows} == expected


def test_every_target_is_defined_once() -> None:
    rules = re.findall(r"^([\w./$()-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert [name for name, count in Counter(rules).items() if count > 1] == []


def test_tests_that_every_run_collects_import_nothing_of_an_extra_at_the_top() -> None:
    extras = re.compile(
        r"^(?:import|from) (playwright|pyspark|py4j|jpype|hdfs_native|gcsfs|adlfs|azure|dbt|dlt)\b",
        re.MULTILINE,
    )
    collected = {
        path for part in ("tests", "property_tests") for path in (ROOT / part).rglob("test_*.py")
    }
    with_extras = {path for path in collected if extras.search(path.read_text())}

    apart = {path for part in ("spark", "loaders") for path in (ROOT / "tests" / part).glob("*.py")}
    assert with_extras <= apart


def test_modules_that_pages_for_builders_name_exist() -> None:
    pages = [
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs/decisions").glob("0*"),
    ]
    below = [ROOT, ROOT / "lakecore", ROOT / "lakecore/table", ROOT / "lakecore/cdc"]
    gone = {
        f"{page.name}: {name}"
        for page in pages
        for name in re.findall(r"`(\w+(?:/\w+)+\.py)`", page.read_text())
        if not any((place / name).exists() for place in below)
    }

    assert gone == set()


def test_the_index_of_decisions_names_each_record_and_its_status() -> None:
    records = sorted((ROOT / "docs/decisions").glob("0*.md"))
    rows = []
    for record in records:
        text = record.read_text()
        title = re.match(r"# (\d{4}): (.*)\n\n\*\*Status\.\*\* (.*?)\.?\n", text)
        assert title, f"{record.name} begins with its number, title and status"
        assert record.name.startswith(title[1])
        rows.append(f"| [{title[1]}]({record.name}) | {title[2]} | {title[3]} |")

    index = (ROOT / "docs/decisions/README.md").read_text()
    assert [line for line in index.splitlines() if line.startswith("| [")] == rows
    assert len({record.name[:4] for record in records}) == len(records)
