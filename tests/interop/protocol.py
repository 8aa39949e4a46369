"""How the suite talks with a peer: one JSON object per line, each way.

A request is `{"verb": …, …arguments}`; the answer `{"result": …}` or `{"error": {"type", "message",
"trace"}}`. The peer's own standard output is turned to standard error, which goes to a log, so no
library can spoil the stream. A peer answers requests one after another until its input ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.interop.columns import Json

    Verb = Callable[..., Json]

REPOSITORY = Path(__file__).resolve().parents[2]
ANSWER_SECONDS_MAX = 180
_LOG_TAIL_CHARACTERS = 4000


class PeerRefused(Exception):
    """The peer answered with an error of its own."""

    def __init__(self, peer: str, verb: str, error: Mapping[str, str]) -> None:
        """Keep what the peer said; `reason` is its type and message in one line."""
        self.reason = f"{error['type']}: {error['message']}"
        self.trace = error["trace"]
        super().__init__(f"{peer} refused to {verb}: {self.reason}\n{self.trace}")


class PeerDied(RuntimeError):
    """The peer ended, or gave no answer in time."""


class Peer:
    """A running peer. `ask` sends one request and returns its result."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start the process; its standard error is appended to `log`."""
        self.name = name
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, verb: str, **arguments: Json) -> Json:
        """Send one request; return the result, or raise `PeerRefused` or `PeerDied`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        watchdog = threading.Timer(ANSWER_SECONDS_MAX, self._process.kill)
        watchdog.start()
        try:
            stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            tail = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]
            message = f"{self.name} died in {verb}, exit {self._process.poll()}; its log:\n{tail}"
            raise PeerDied(message)
        answer = json.loads(line)
        if "error" in answer:
            raise PeerRefused(self.name, verb, answer["error"])
        result: Json = answer["result"]
        return result

    def close(self) -> None:
        """End the process by ending its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(verbs: Mapping[str, Verb]) -> None:
    """Answer requests from standard input until it ends (the peer's side)."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("verb")
        try:
            answer: dict[str, Json] = {"result": verbs[verb](**request)}
        except Exception as error:  # noqa: BLE001 -- every failure is an answer
            answer = {"error": _described(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _described(error: Exception) -> Json:
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(f"{_name(cause)}: {cause}")
        cause = cause.__cause__
    trace = "".join(traceback.format_exception(error))
    java_trace = getattr(error, "stacktrace", None)
    if java_trace is not None:
        trace = f"{java_trace()}\n{trace}"
    return {
        "type": _name(error),
        "message": " <- ".join(causes).removeprefix(f"{_name(error)}: "),
        "trace": trace,
    }


def _name(error: BaseException) -> str:
    # The classes of Java's errors carry their whole name already.
    return type(error).__name__.rpartition(".")[2]
