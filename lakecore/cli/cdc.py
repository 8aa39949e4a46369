"""`lakecore cdc`: runs a pipeline from flags or a TOML file; shows the status of pipelines.

1. Read the flags.
2. Passwords: an option of the source that ends in `-file` or `-env` names a file or an environment
   variable that holds its value.
3. Run until SIGINT or SIGTERM; the current rows are committed first. With `--until caught-up`, end
   when everything that the source held at the start is committed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import tomllib
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import REPEATED_FLAGS, Action, Arguments
from lakecore.cdc.pipeline import (
    RUN_FLAGS,
    SYNC_ACTIONS,
    Launch,
    PipelineStatus,
    check_pipeline,
    duration_seconds,
    launch_of,
    request_resync,
    statuses,
)
from lakecore.cdc.quarantine import SetAside, tables_of
from lakecore.cli.flags import Flags, WrongFlag, read_flags
from lakecore.cli.output import ERROR_LINE
from lakecore.cli.printing import Column, grid_lines, say
from lakecore.cli.settings import stated
from lakecore.cli.target import catalog_options_of
from lakecore.deferred import deferred, deferred_module
from lakecore.display import json_text, show_bytes
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.ambient import SYSTEM
from lakecore.io.secret_options import with_secrets
from lakecore.model.rows import KIND_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import rich.text as rich_text
    from rich.live import Live

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.sink_parts import Progress
    from lakecore.rest_server.app import server_library
    from lakecore.rest_server.pipeline_endpoint import endpoint
else:
    Live = deferred("rich.live", "Live")
    rich_text = deferred_module("rich.text")
    endpoint = deferred("lakecore.rest_server.pipeline_endpoint", "endpoint")
    server_library = deferred("lakecore.rest_server.app", "server_library")

_OF_WAREHOUSE = ("warehouse", "catalog_conf")
_OF_STATUS = (*_OF_WAREHOUSE, "state")
_OF_RESYNC = (*_OF_STATUS, "tables")
_OF_RUN = (*RUN_FLAGS, "metrics", "metrics_address", "log_format", "log_level")
_SET_ASIDE = 3
"""The exit code of a run that set a table aside."""
_CONFS = ("catalog_conf", "table_conf")
_JSON_FORMAT = re.compile(r"(?:^| )--log[-_]format[ =]json(?: |$)")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


def run_pipeline(arguments: Sequence[str]) -> None:
    """Run what the arguments name: an action, a file, `check`, `status` or `resync`."""
    name = arguments[0].lower().replace("-", "_")
    if _JSON_FORMAT.search(" ".join(arguments)):
        _errors_as_json("")
    if name == "status":
        _status(arguments[1:])
    elif name == "resync":
        _resync(arguments[1:])
    elif name == "run":
        _start(*_of_file(arguments[1:]))
    elif name == "check":
        _check(arguments[1:])
    else:
        sync(arguments)


def sync(arguments: Sequence[str]) -> None:
    """Run an action with its flags."""
    name = arguments[0].lower().replace("-", "_")
    action = _action(name)
    if {"-h", "--help"} & set(arguments[1:]):
        say(_usage(name, action))
        return
    _start(name, action, _flags(name, action, arguments[1:]))


def _of_file(arguments: Sequence[str]) -> tuple[str, Action, Mapping[str, Sequence[str]]]:
    """The pipeline of a TOML file; flags after it override its entries."""
    if not arguments or arguments[0].startswith("-"):
        raise InvalidRequest("name the file: lakecore cdc run FILE.toml")
    try:
        found = tomllib.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "the file of the pipeline cannot be read",
            path=arguments[0],
            reason=type(error).__name__,
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest("not a TOML file", path=arguments[0], cause=error) from error
    name = str(found.pop("action", "")).replace("-", "_")
    action = _action(name)
    known = _known(action)
    flags: dict[str, list[str]] = {}
    for key, value in found.items():
        flag = key.replace("-", "_")
        if flag not in known:
            raise InvalidRequest(
                "the action has no such entry", path=arguments[0], entry=key, known=list(known)
            )
        flags[flag] = _texts(value)
    return name, action, {**flags, **_flags(name, action, arguments[1:])}


def _texts(value: object) -> list[str]:
    """A TOML value as the string values of a flag."""
    match value:
        case bool():
            return ["true" if value else "false"]
        case dict():
            return [f"{key}={','.join(_texts(each))}" for key, each in value.items()]
        case list():
            return [_texts(each)[0] for each in value]
        case _:
            return [str(value)]


# --- flags ----------------------------------------------------------------------------------------


def _action(name: str) -> Action:
    found = SYNC_ACTIONS.get(name)
    if found is None:
        near = get_close_matches(name, SYNC_ACTIONS, 1)
        raise NotFound(
            "no action of that name; `lakecore cdc` lists them",
            action=name,
            **({"did_you_mean": near[0]} if near else {"known": list(SYNC_ACTIONS)}),
        )
    return found


def _known(action: Action) -> tuple[str, ...]:
    target = ("database", "table") if action.takes_table else ("database",)
    own = (action.conf, "table_conf", *action.known)
    return (*_OF_WAREHOUSE, *target, *own, *_OF_RUN)


def _flags(name: str, action: Action, arguments: Sequence[str]) -> dict[str, list[str]]:
    repeated = (*REPEATED_FLAGS, *_CONFS, action.conf)
    known = Flags(action=name, known=_known(action), repeated=repeated, example="--database")
    return read_flags(known, arguments)


def _usage(name: str, action: Action) -> str:
    required = {"database", action.conf, *(["table"] if action.takes_table else [])}
    lines = [f"Usage: lakecore cdc {name} [--FLAG VALUE]...", "", "Flags:"]
    for flag in _known(action):
        facts = [
            *(["required"] if flag in required else []),
            *(["may be repeated"] if flag in REPEATED_FLAGS or flag.endswith("_conf") else []),
        ]
        lines.append(f"  --{flag}" + (f"  ({', '.join(facts)})" if facts else ""))
    lines += [
        "",
        "--until caught-up ends once what the source held at the start is committed.",
        "--interval '10 s' is the time between two commits; --metrics FILE gets JSON after each.",
        "--metrics-address 127.0.0.1:9400 serves /metrics for Prometheus, and /live for probes.",
        "--patience '5 min' is how long a source that cannot be reached is waited for.",
        "--log-format json writes each line of the log as a JSON object; text is the default.",
        "--log-level debug also shows tracebacks; info is the default, and warning on a terminal.",
        "--dead_letters true keeps rows that do not fit in files beside the state.",
        "--source-moved true lets the same source have another address or user than before.",
        "--skip-unsupported true sets aside what does not fit at the first start.",
        "--on-table-error quarantine sets aside a table that cannot be followed; stop ends.",
        f"--{action.conf} password-file=PATH or password-env=NAME keeps a password off the line.",
    ]
    return "\n".join(lines)


# --- a run ----------------------------------------------------------------------------------------


def _check(arguments: Sequence[str]) -> None:
    """List all problems of a pipeline, given as an action with flags or as a file."""
    if not arguments or arguments[0].startswith("-"):
        raise InvalidRequest("name an action or a file: lakecore cdc check FILE.toml")
    if arguments[0].endswith(".toml"):
        name, action, flags = _of_file(arguments)
    else:
        name = arguments[0].lower().replace("-", "_")
        action = _action(name)
        flags = _flags(name, action, arguments[1:])
    launch, catalog = _launch(name, action, flags)
    found = check_pipeline(catalog, launch.pipeline, SYSTEM)
    for error in found.problems:
        tables = ", ".join(map(str, sorted(tables_of(error))))
        say(f"problem: {tables}: {error}" if tables else f"problem: {error}")
    for text in found.notes:
        say(f"note: {text}")
    if any(map(tables_of, found.problems)):
        say(
            "--skip-unsupported true sets these tables aside by name and mirrors the others; "
            "--excluding_tables leaves tables out",
        )
    if found.problems:
        raise SystemExit(1)
    say("no problems")


def _start(name: str, action: Action, flags: Mapping[str, Sequence[str]]) -> None:
    one = {key: values[-1] for key, values in flags.items() if values}
    form, depth = one.get("log_format"), one.get("log_level")
    if form not in {None, "text", "json"}:
        raise InvalidRequest("unknown value of --log-format", value=form, known=["text", "json"])
    if depth not in {None, *_LEVELS}:
        raise InvalidRequest("unknown value of --log-level", value=depth, known=[*_LEVELS])
    if form == "json":
        _errors_as_json(one.get("name", ""))
    launch, catalog = _launch(name, action, flags)
    label = launch.pipeline.label
    if form == "json":
        _errors_as_json(label)

    def report(progress: Progress) -> None:
        _show(label, progress, one.get("metrics"))

    # A terminal has a status line instead of events that are no warnings.
    is_quiet = form is None and sys.stderr.isatty()
    level = _LEVELS[depth or ("warning" if is_quiet else "info")]
    address = one.get("metrics_address")
    with log_lines(label, as_json=form == "json", level=level), ExitStack() as stack:
        beats: Callable[[], object] = bool
        if address is not None:
            server_library("uvicorn")
            token = os.environ.get("LAKECORE_METRICS_TOKEN") or None
            beats = stack.enter_context(endpoint(address, catalog, launch.pipeline, token))
        progress, _ = launch.run(catalog, SYSTEM, report, beats)
    say(json_text(_facts(label, progress)))
    if progress.newly_set_aside:
        raise SystemExit(_SET_ASIDE)


def _launch(
    name: str, action: Action, flags: Mapping[str, Sequence[str]]
) -> tuple[Launch, Catalog]:
    """The pipeline that the flags define, and its catalog."""
    needed = ["database", *(["table"] if action.takes_table else []), action.conf]
    missing = [f"--{flag}" for flag in needed if not flags.get(flag)]
    if missing:
        raise WrongFlag("the action needs these flags", action=name, missing=missing)
    one = {key: values[-1] for key, values in flags.items() if values}
    catalog = open_catalog(
        catalog_options_of(None, one.get("warehouse"), flags.get("catalog_conf")), create=True
    )
    arguments = Arguments(
        database=one["database"],
        table=one.get("table"),
        conf=with_secrets(stated(flags[action.conf], f"--{action.conf}")),
        table_conf=stated(flags.get("table_conf"), "--table_conf"),
        flags={flag: tuple(values) for flag, values in flags.items() if flag in action.known},
        case_sensitive=catalog.case_sensitive,
    )
    return launch_of(name, arguments, flags), catalog


def _show(name: str, progress: Progress, metrics: str | None) -> None:
    """Show the status line on a terminal, and write the metrics to their file."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{progress.line(name)}")
        sys.stderr.flush()
    if metrics is not None:
        written = Path(f"{metrics}.new")
        written.write_text(json_text(_facts(name, progress)) + "\n", encoding="utf-8")
        written.replace(metrics)


def _facts(name: str, progress: Progress) -> dict[str, object]:
    return {
        "name": name,
        "checkpoint": progress.checkpoint,
        "rows": progress.rows,
        "rows_left_out": progress.rows_left_out,
        "rows_per_second": progress.rows_per_second,
        "caught_up": progress.caught_up and progress.outage is None,
        "unreachable": None if progress.outage is None else progress.outage.to_json(),
        "tables": progress.tables,
        "left_out": progress.left_out,
        "not_read_again": progress.not_read_again,
        "quarantine": [each.to_json() for each in progress.quarantine],
        "newly_set_aside": list(progress.newly_set_aside),
    }


# --- status ---------------------------------------------------------------------------------------


def _status(arguments: Sequence[str]) -> None:
    names, rest = [*arguments[:1]], arguments[1:]
    if names and names[0].startswith("-"):
        names, rest = [], arguments
    known = Flags(
        action="status",
        known=(*_OF_STATUS, "json", "watch", "interval"),
        repeated=_CONFS,
        switches=("json", "watch"),
        example="--warehouse",
    )
    flags = read_flags(known, rest)
    one = {name: values[-1] for name, values in flags.items()}
    options = catalog_options_of(None, one.get("warehouse"), flags.get("catalog_conf"))
    catalog, state = open_catalog(options, create=False), one.get("state")
    seconds = duration_seconds("interval", one.get("interval", "2 s"))

    def found() -> list[PipelineStatus]:
        pipelines = statuses(catalog, state, SYSTEM)
        chosen = [each for each in pipelines if each.name in names or not names]
        if names and not chosen:
            known = [each.name for each in pipelines]
            raise NotFound("no such pipeline", name=names[0], known=known)
        return chosen

    if "watch" not in one:
        _say_status(found(), as_json="json" in one, has_tables=bool(names))
        return
    while "json" in one or not sys.stdout.isatty():
        _say_status(found(), as_json="json" in one, has_tables=bool(names))
        SYSTEM.sleep(seconds)
    with Live(auto_refresh=False) as live:
        while True:
            text = _status_text(found(), has_tables=bool(names))
            live.update(rich_text.Text.from_ansi(text), refresh=True)
            SYSTEM.sleep(seconds)


def _say_status(found: Sequence[PipelineStatus], *, as_json: bool, has_tables: bool) -> None:
    if as_json:
        for each in found:
            say(json_text(asdict(each)))
    else:
        say(_status_text(found, has_tables=has_tables))


_STATUS_COLUMNS = (
    *(Column("pipeline"), Column("state"), Column("checkpoint", number=True)),
    *(Column(name, number=True) for name in ("age s", "lag s", "behind")),
    *(Column(name, number=True) for name in ("rows", "rows/s", "tables", "aside")),
)


def _status_text(found: Sequence[PipelineStatus], *, has_tables: bool) -> str:
    """The pipelines as a table, then what is wrong with each; with `has_tables`, their tables."""
    if not found:
        return "no pipelines"
    rows = [
        (
            *(each.name, each.state, each.checkpoint),
            *(each.age_seconds, each.lag_seconds),
            None if each.lag_bytes is None else show_bytes(each.lag_bytes),
            *(each.rows_total, each.rows_per_second, len(each.targets), len(each.quarantine)),
        )
        for each in found
    ]
    lines = grid_lines(_STATUS_COLUMNS, rows, null="-")
    for status in found:
        if not status.reachable:
            lines.append(
                f"{status.name}: the source is not reachable since {status.unreachable_since} "
                f"({status.unreachable_seconds:.0f} s, {status.retries} retries): "
                f"{status.unreachable_reason}"
            )
        if status.failed_reason is not None:
            lines.append(
                f"{status.name}: the last run ended with an error at {status.failed_at}: "
                f"{status.failed_reason}"
            )
        lines += [
            *(f"{status.name}: left out: {name}: {why}" for name, why in status.left_out.items()),
            *(
                f"{status.name}: in quarantine: {SetAside.from_json(each).table}: {each['reason']}"
                for each in status.quarantine
            ),
            *(
                f"{status.name}: not read again: {name}: {why}"
                for name, why in status.not_read_again.items()
            ),
            *(f"{status.name}: to be read again: {name}" for name in status.requested),
        ]
        if has_tables:
            lines.append(f"{status.name}: at {status.position}")
            heads = [Column("table"), *(Column(kind, number=True) for kind in KIND_TEXTS)]
            counts = (
                (name, *(kinds.get(kind, 0) for kind in KIND_TEXTS))
                for name, kinds in sorted(status.tables.items())
            )
            lines += grid_lines(heads, counts)
    return "\n".join(lines)


def _resync(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0].startswith("-"):
        raise InvalidRequest("name the pipeline: lakecore cdc resync NAME --tables a,b")
    known = Flags(action="resync", known=_OF_RESYNC, repeated=_CONFS, example="--tables a,b")
    flags = read_flags(known, arguments[1:])
    one = {name: flags.get(name, [""])[-1] for name in ("warehouse", "state", "tables")}
    options = catalog_options_of(None, one["warehouse"] or None, flags.get("catalog_conf"))
    catalog = open_catalog(options, create=False)
    tables = [each.strip() for each in one["tables"].split(",") if each.strip()]
    found = request_resync(catalog, arguments[0], tables, one["state"] or None, SYSTEM)
    say(
        f"{arguments[0]} reads these tables again, at its next checkpoint or when it starts: "
        + ", ".join(found)
    )


# --- log lines ------------------------------------------------------------------------------------
# Lines of a log on standard error for commands that run for long: as text or as JSON.

_FACT = re.compile(r"(\w+)=%")


class LogLines(logging.Formatter):
    """One line an event: time in UTC, level, pipeline, message.

    As JSON, the facts of a message (`table=...`) are members of their own. `has_tracebacks`:
    whether the traceback of an event follows its line, or is a member.
    """

    def __init__(self, pipeline: str, *, as_json: bool, has_tracebacks: bool = False) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._as_json = as_json
        self._has_tracebacks = has_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """The line of an event."""
        at = _at(record.created)
        trace = ""
        if self._has_tracebacks and record.exc_info:
            trace = self.formatException(record.exc_info)
        if not self._as_json:
            text = " ".join(record.getMessage().split("\n"))
            line = f"{at} {record.levelname} {self._pipeline}: {text}"
            return f"{line}\n{trace}" if trace else line
        names = _FACT.findall(str(record.msg))
        values = record.args if isinstance(record.args, tuple) else ()
        facts = {k: _fact(v) for k, v in zip(names, values, strict=False)}
        message = str(record.msg).partition(". ")[0] if facts else record.getMessage()
        head = _head(at, record.levelname, self._pipeline, message)
        more = {"traceback": trace} if trace else {}
        return json.dumps({**facts, **head, **more}, ensure_ascii=False)


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _head(at: str, level: str, pipeline: str, message: str) -> dict[str, str]:
    return {"time": at, "level": level, "pipeline": pipeline, "message": message}


def _fact(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int | None) else str(value)


def _errors_as_json(pipeline: str) -> None:
    """Let the error that ends this program be a JSON object, as the lines of the log."""

    def line(message: str, facts: Mapping[str, object]) -> str:
        head = _head(_at(SYSTEM.now_ms() / 1000), "ERROR", pipeline, message)
        for first in [*facts][:1]:
            head["message"] = message.partition(f". {first.removesuffix('_ms')}=")[0]
        told = {name: _fact(value) for name, value in facts.items()}
        return json.dumps({**told, **head}, ensure_ascii=False) + "\n"

    ERROR_LINE.set(line)


@contextmanager
def log_lines(pipeline: str, *, as_json: bool, level: int) -> Iterator[None]:
    """A context manager: events of CDC from this level on are lines on standard error.

    Warnings of Python and of libraries are such lines too. Errors that no code can catch, such as
    those of objects that are freed, are events of the level DEBUG.
    """
    root, logger = logging.getLogger(), logging.getLogger("lakecore.cdc")
    handler = logging.StreamHandler(sys.stderr)
    has_tracebacks = level <= logging.DEBUG
    handler.setFormatter(LogLines(pipeline, as_json=as_json, has_tracebacks=has_tracebacks))
    before = logger.level, sys.unraisablehook, threading.excepthook

    def freed(found: sys.UnraisableHookArgs) -> None:
        logger.debug("an object could not be freed. cause=%r", found.exc_value, exc_info=_of(found))

    def ended(found: threading.ExceptHookArgs) -> None:
        logger.error("a thread has ended. cause=%r", found.exc_value, exc_info=_of(found))

    logger.setLevel(level)
    root.addHandler(handler)
    logging.captureWarnings(True)
    sys.unraisablehook, threading.excepthook = freed, ended
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        level, sys.unraisablehook, threading.excepthook = before
        logger.setLevel(level)


def _of(found: sys.UnraisableHookArgs | threading.ExceptHookArgs) -> BaseException | None:
    error = found.exc_value
    return None if error is None else error.with_traceback(found.exc_traceback)
