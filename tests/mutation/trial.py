"""One mutant and its tests, in a forked child: killed, out of time, or survived.

The parent has imported all modules, and has neither collected nor run a test: Polars has no threads
yet that a child would miss. The child puts the code of the mutated function into the function
object, so that each importer has it, and runs the tests until one fails. No file is changed. A
function that the mutated one has made on import, such as an entry of a table, gets new code, too.

Time is that of the processor, so a busy machine changes nothing. A test has `SECONDS_FREE`. The
caller decides by the time of the same test without the mutant whether more than that is too much. A
child that uses no time for `STILL_SECONDS` waits for somebody who does not come.
"""

from __future__ import annotations

import ast
import builtins
import gc
import json
import os
import resource
import select
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import IO, TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.mutation.mutants import Mutant

SECONDS_FREE = 15
STILL_SECONDS = 60
KILLED, SLOW, STILL, SURVIVED = "killed", "slow", "still", "survived"
OPTIONS = (
    *("-q", "-s", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none"),
    # Its plugin is imported by the parent.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
DEEP = "deep"
settings.register_profile(
    DEEP, deadline=None, max_examples=100, database=None, suppress_health_check=[*HealthCheck]
)
SERVERS = ("s3", "_s3_running")
_PROBE = "__mutant_is_reached__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """The new code of function objects: of one function, and of those that it has made."""

    codes: tuple[tuple[FunctionType, CodeType], ...]

    def applied(self) -> Patch:
        """Put the code into the functions; the patch that takes it out again."""
        before = tuple((function, function.__code__) for function, _ in self.codes)
        for function, code in self.codes:
            function.__code__ = code
        return Patch(codes=before)

    @staticmethod
    def of(mutant: Mutant, root: Path) -> Patch | None:
        """The patch of a mutant; None if its function is not there or cannot take the code."""
        path = str(root / mutant.path)
        tree = ast.parse(mutant.applied((root / mutant.path).read_bytes()))
        _add_probe(tree, mutant.outermost_line)
        codes: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
        for code in _codes(compile(tree, path, "exec", dont_inherit=True)):
            if _PROBE in code.co_names:
                for each in (code, *_codes(code)):
                    codes[each.co_qualname, each.co_firstlineno].append(each)
        found = []
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename == path:
                old = each.__code__
                # Several lambdas of a line are not told apart.
                new = codes.get((old.co_qualname, old.co_firstlineno), [])
                if len(new) != 1:
                    continue
                # A mutant may need none of the variables that the function was made with.
                code = new[0] if new[0].co_freevars else new[0].replace(co_freevars=old.co_freevars)
                if code.co_freevars == old.co_freevars:
                    found.append((each, code))
        return Patch(codes=tuple(found)) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a mutant, and of which test; `reached` are the tests that ran the function.

    `seconds` says what each test took, by its name; `is_sure` that the test that failed passed in
    the same process once the mutant was gone.
    """

    outcome: str
    by: str
    reached: int
    seconds: dict[str, float]
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """What pytest is given: files or tests; of the files, `only` the tests with these names.

    `known`: the names from which these were taken; a test that is not among them is run, too.
    `deep`: only laws, each with many random examples, as long as seconds are left.
    """

    given: tuple[str, ...]
    only: frozenset[str] | None = None
    known: frozenset[str] = frozenset()
    deep: bool = False


def tried(
    patch: Patch | None,
    batches: Sequence[Batch],
    *,
    seconds: float,
    seconds_each: float = SECONDS_FREE,
    without: frozenset[str] = frozenset(),
) -> Verdict:
    """Run batches of tests with a patch until one fails, or so many seconds are used.

    The tests `without` are left out.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb", buffering=0) as pipe:
                _run(batches, _Loop(patch, pipe, seconds, seconds_each, without))
        finally:
            os._exit(0)
    os.close(writer)
    running, outcome, reached, took, is_sure = "", "", 0, dict[str, float](), False
    is_deep = False
    with os.fdopen(reader, "rb") as pipe:
        for line in _lines(child, pipe):
            running, outcome = line.get("begins", running), outcome or line.get("outcome", "")
            reached += line.get("reached", 0)
            is_deep = line.get("deep", is_deep)
            is_sure = is_sure or line.get("is_sure", False)
            if "seconds" in line:
                took[running] = line["seconds"]
    _, status = os.waitpid(child, 0)
    if not outcome:  # the child is dead; a segmentation fault is noticed too
        by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        slow, still = int(signal.SIGXCPU), int(signal.SIGKILL)
        outcome = {slow: SURVIVED if is_deep else SLOW, still: STILL}.get(by_signal, KILLED)
        assert running, "the child died before its first test"
    by = "" if outcome == SURVIVED else running
    return Verdict(outcome=outcome, by=by, reached=reached, seconds=took, is_sure=is_sure)


@dataclass(eq=False)
class _Loop:
    """How pytest runs the tests of a child."""

    patch: Patch | None
    pipe: IO[bytes]
    seconds: float
    seconds_each: float
    without: frozenset[str]
    batch: Batch | None = None
    before: Patch | None = None
    hits: set[bool] = field(default_factory=set)
    is_over: bool = False

    def say(self, **facts: object) -> None:
        self.pipe.write(json.dumps(facts).encode() + b"\n")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests until one fails or the time is used."""
        items = [each for each in session.items if _is_here(each)]
        assert self.batch is not None
        only, known, deep = self.batch.only, self.batch.known, self.batch.deep
        items = [
            each
            for each in items
            if each.nodeid not in self.without
            and (only is None or each.nodeid in only or each.nodeid not in known)
            and (not deep or getattr(getattr(each, "obj", None), "is_hypothesis_test", False))
        ]
        for item, after in zip(items, [*items[1:], None], strict=False):
            used = time.process_time()
            most = int(self.seconds if deep else used + self.seconds_each) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            self.say(begins=item.nodeid)
            self.hits.clear()
            reports = runtestprotocol(item, log=False, nextitem=after)
            took = time.process_time() - used
            self.say(seconds=round(took, 2), reached=len(self.hits))
            if any(report.failed for report in reports):
                self.say(outcome=KILLED, is_sure=self._passes_alone(item))
                self.is_over = True
            # A child's clock begins with it.
            self.is_over = self.is_over or time.process_time() > self.seconds
            if self.is_over:
                break
        return True

    def _passes_alone(self, item: pytest.Item) -> bool:
        """Whether a test passes in this process without the mutant."""
        if self.before is None:
            return False
        self.before.applied()
        item._initrequest()  # type: ignore[attr-defined] # noqa: SLF001 - as plugins that repeat
        reports = runtestprotocol(item, log=False, nextitem=None)
        return not any(report.failed for report in reports)


def _run(batches: Sequence[Batch], loop: _Loop) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # That a law fails is enough; to make its example small would take longer than the law.
    engine.MAX_SHRINKING_SECONDS = 0
    setattr(builtins, _PROBE, lambda: loop.hits.add(True))
    if loop.patch is not None:
        loop.before = loop.patch.applied()
    for batch in batches:
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        loop.batch = batch
        loop.say(deep=batch.deep)
        if batch.deep:
            settings.load_profile(DEEP)
        pytest.main([*OPTIONS, *batch.given], plugins=[loop])
        if loop.is_over or time.process_time() > loop.seconds:
            break
    loop.say(outcome=SURVIVED)


def _is_here(item: pytest.Item) -> bool:
    """Whether a test runs in this process, without a server."""
    names = getattr(item, "fixturenames", ())
    return not any(name in names for name in SERVERS) and "s3" not in item.name


def _lines(child: int, pipe: IO[bytes]) -> Iterator[dict[str, Any]]:
    """What the child says; it is ended if it uses no time."""
    used, since = -1.0, time.monotonic()
    while True:
        if select.select([pipe], [], [], 1)[0]:
            line = pipe.readline()
            if not line:
                return
            since = time.monotonic()
            yield json.loads(line)
            continue
        now = _cpu_seconds(child)
        if now > used + 0.05:
            used, since = now, time.monotonic()
        elif time.monotonic() - since > STILL_SECONDS:
            os.kill(child, signal.SIGKILL)


def _cpu_seconds(child: int) -> float:
    with open(f"/proc/{child}/stat", encoding="utf-8") as file:  # noqa: PTH123 - no path of ours
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _add_probe(tree: ast.Module, line: int) -> None:
    """Let the function that begins in this line say that it was run."""
    call = ast.Expr(ast.Call(ast.Name(_PROBE, ast.Load()), [], []))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.lineno == line:
            at = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body.insert(at, ast.fix_missing_locations(ast.copy_location(call, node.body[0])))
            return
