"""The HTTP layer of the page: who may ask, which page answers, and for how long.

- A server without a token listens on this machine only, and answers requests to names of this
  machine only: a foreign site whose name resolves to 127.0.0.1 gets nothing (DNS rebinding).
- With a token, a browser gets a cookie for it by the form of `/login`; programs send the header
  `Authorization: Bearer TOKEN`. A site with a foreign name has no cookie, so requests to any name
  of the server are answered.
- POST, and a query in an address, are answered only if the request comes from a page of this
  server, or from no page (CSRF). The same holds for a page that reads rows if there is no token:
  otherwise an image on another site would read a table. With a token, `SameSite` keeps the cookie
  from such requests.
- No page asks another host or runs an inline script: `Content-Security-Policy: default-src 'self'`.
- A page that reads rows has `SECONDS_MAX`; at most `READS_MAX` of them run at the same time.
- The page of an error that is not lakecore's shows no details; the log does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast
from urllib.parse import parse_qsl

import numpy as np

from lakecore.deferred import deferred
from lakecore.display import json_text, show_bytes, value_text
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.io.ambient import SYSTEM
from lakecore.memory import Share, process_budget
from lakecore.metrics import METRICS_TYPE, open_data_table, prometheus
from lakecore.model.arrow_arrays import row_bytes
from lakecore.rest_server.app import split_address
from lakecore.rest_server.replies import FAILED, Problem, problem_of
from lakecore.rest_server.serving import check_host, check_token, listen
from lakecore.table.reads.told import told_snapshot
from lakecore.ui.drawing import static
from lakecore.ui.html import Html, address, joined, link, page, table, tag, verbatim
from lakecore.ui.pages import (
    Asked,
    Page,
    Site,
    files_page,
    of_table,
    schema_page,
    snapshot_page,
    table_page,
    tables_page,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence

    from lakecore.catalog.catalog import Catalog

    Message: TypeAlias = MutableMapping[str, object]
    import pyarrow as pa

    from lakecore.session import open_table
    from lakecore.sql.engine import SqlEngine
    from lakecore.sql.printable import python_rows
    from lakecore.table.context import TableContext
else:
    SqlEngine = deferred("lakecore.sql.engine", "SqlEngine")
    open_table = deferred("lakecore.session", "open_table")
    python_rows = deferred("lakecore.sql.printable", "python_rows")


# --- row pages ------------------------------------------------------------------------------------
# The pages that read rows: a sample of a table, its change feed, and the query box.
#
# A page shows at most `ROWS_MAX` rows, and `_BYTES_MAX` bytes of values. A read stops between two
# batches if its time is over, and a query is interrupted.

ROWS_MAX = 200
_TEXT_MAX = 100_000
_FEED_SNAPSHOTS = 10
_BYTES_MAX = 16 << 20
_OBJECT_BYTES = 100
"""What a Python object takes beside its content."""
_INTERRUPT_SECONDS = 0.1


def rows_page(site: Site, name: str, asked: Asked, stopped: Callable[[], bool]) -> Page:
    """Some rows of a table: those that match `where`, at `snapshot` or now."""
    found = open_data_table(site.catalog, name)
    where, number = asked.text("where").strip(), asked.number("snapshot", 0)
    reader = found.to_batches(None, where or None, ROWS_MAX + 1, snapshot_id=number or None)
    names = list(reader.schema.names)
    rows, more = _taken(reader, ROWS_MAX, stopped)
    form = tag(
        "form",
        tag("label", "WHERE", for_="where"),
        tag(
            "input", name="where", id="where", value=where, placeholder="id > 10", maxlength=10_000
        ),
        tag("input", type="hidden", name="snapshot", value=number) if number else None,
        tag("button", "Show", class_="main"),
        class_="line",
        action=address("t", name, "rows"),
    )
    data = {"table": found.context.identifier, "columns": names, "rows": rows, "more": more}
    return of_table(name, "rows", data, joined(form, _result(names, rows, more=more)))


def changes_page(site: Site, name: str, asked: Asked, stopped: Callable[[], bool]) -> Page:
    """The changes of the snapshots after `after`; the script of the page asks for the next ones."""
    found = open_data_table(site.catalog, name)
    history = found.context.history
    latest = history.latest_snapshot_id() or 0
    after = asked.number("after", -1)
    if after < 0:
        after = _before_newest(found.context, latest)
    names: list[str] = ["snapshot", "_row_kind", *found.schema.names]
    rows: list[list[object]] = []
    until, left_out = min(after, latest), 0
    if latest > after:
        stream = found.stream(from_snapshot=after + 1, until=latest).to_batches()
        for snapshot_id, reader in stream:
            columns = list(reader.schema.names)
            taken, more = _taken(reader, ROWS_MAX, stopped)
            if rows and (more or len(rows) + len(taken) > ROWS_MAX):
                break  # the next page begins with this snapshot
            kinds = columns.index("_row_kind")
            rows += [[snapshot_id, row.pop(kinds), *row] for row in taken]
            until = snapshot_id
            if more:
                left_out = snapshot_id
                break
        else:
            until = latest
    following = address("t", name, "changes", after=until)
    feed = table(names, [[_cell(value) for value in row] for row in rows[::-1]], id="feed")
    body = joined(
        tag(
            "p",
            f"Changes of snapshots {after + 1} to {until}, newest first; new ones appear by "
            "themselves. "
            if until > after
            else "Waiting for the next snapshot. ",
            link("Show only what comes next", "t", name, "changes", after=until),
            class_="note",
            role="status",
        ),
        tag("p", f"Snapshot {left_out} has more rows than this page shows.", class_="warn")
        if left_out
        else None,
        tag("div", feed, data_poll=following),
    )
    data = {"table": found.context.identifier, "after": after, "until": until, "columns": names}
    return of_table(name, "changes", {**data, "rows": rows, "cut_in": left_out or None}, body)


def _before_newest(context: TableContext, latest: int) -> int:
    """The snapshot after which the feed begins, so that the changes of later ones fit a page."""
    after, rows = latest, 0
    while after > 0 and latest - after < _FEED_SNAPSHOTS:
        found = context.history.snapshot_if_there(after)
        if found is None:
            break
        snapshot = told_snapshot(found, context)
        rows += abs(snapshot.changelog_record_count or snapshot.delta_record_count or 0)
        if rows > ROWS_MAX and after < latest:
            break
        after -= 1
    return after


def query_form(text: str, query_id: str, result: Html | None = None) -> Html:
    """The query box; `query_id` names the query for its cancellation."""
    says = (
        "One SELECT over tables of this warehouse, named database.table. It reads no files and "
        f"changes nothing; the first {ROWS_MAX} rows are shown. Ctrl+Enter runs it."
    )
    form = tag(
        "form",
        tag("label", says, for_="q", class_="note"),
        tag("textarea", verbatim(text), name="q", id="q", spellcheck="false", maxlength=_TEXT_MAX),
        tag("input", type="hidden", name="id", value=query_id),
        tag(
            "p",
            tag("button", "Run", class_="main"),
            " ",
            tag("button", "Cancel", formaction="/sql/cancel", id="cancel"),
        ),
        method="post",
        action="/sql",
        id="sql",
    )
    return joined(form, tag("div", result, id="result", aria_live="polite"))


class Query:
    """A query of the query box, in a DuckDB of its own. `cancel` may be called from any thread."""

    def __init__(self, site: Site, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise InvalidRequest("the query is too long", most=_TEXT_MAX)
        self._site, self._text = site, text
        self._engine: SqlEngine | None = None
        self._cancelled = False
        self._ended = Event()

    def cancel(self) -> None:
        """Interrupt the query, which then raises InvalidRequest."""
        self._cancelled = True
        Thread(target=self._interrupt, daemon=True).start()

    def _interrupt(self) -> None:
        """Interrupt until the query ends: DuckDB forgets an interrupt between two statements."""
        while not self._ended.wait(_INTERRUPT_SECONDS):
            if self._engine is not None:
                self._engine.interrupt()

    def run(self) -> Page:
        """The first rows of the query, as a page without the form."""
        try:
            return self._run()
        finally:
            self._ended.set()

    def _run(self) -> Page:
        memory_bytes = Share.PAGE_QUERY.of(process_budget().size_bytes)
        self._engine = SqlEngine(self._site.catalog, open_table)
        names: Sequence[str] = ()
        rows: list[list[object]] = []
        more = False
        if not self._cancelled:
            try:
                schema, found = self._engine.sealed(
                    self._text, limit=ROWS_MAX + 1, memory_bytes=memory_bytes
                )
                names = list(schema.names)
                rows, more = _taken(found, ROWS_MAX, bool)
            except KeyboardInterrupt:
                self._cancelled = True
        if self._cancelled:
            raise InvalidRequest("the query was cancelled")
        data = {"columns": list(names), "rows": rows, "more": more}
        return Page(title="SQL", data=data, body=_result(names, rows, more=more))


def _taken(
    batches: Iterable[pa.RecordBatch], most: int, stopped: Callable[[], bool]
) -> tuple[list[list[object]], bool]:
    """The first rows of a stream, and whether there are more.

    Raises InvalidRequest if the time of the read is over, or if the first row does not fit
    `_BYTES_MAX`.
    """
    parts: list[pa.RecordBatch] = []
    count, room, more = 0, _BYTES_MAX, False
    for batch in batches:
        if stopped():
            raise InvalidRequest("the read took too long; name fewer partitions in WHERE")
        part = batch.slice(0, most - count)
        # Nested values may take less than a bit each in Arrow, and 100 times as much in Python.
        sizes = sum(row_bytes(column, _OBJECT_BYTES) for column in part.columns)
        ends = np.cumsum(np.broadcast_to(sizes, part.num_rows))
        fitting = int(np.searchsorted(ends, room, "right"))
        if part.num_rows and not fitting and not count:
            raise InvalidRequest(
                f"one row has more than {show_bytes(_BYTES_MAX)}, the most that a page shows: "
                "query fewer columns, or a part of its values, such as left(TEXT, 1000)"
            )
        part = part.slice(0, fitting)
        room -= int(ends[fitting - 1]) if fitting else 0
        parts.append(part)
        count += part.num_rows
        if part.num_rows < batch.num_rows:
            more = True
            break
    return python_rows(parts), more


def _result(names: Sequence[str], rows: Sequence[Sequence[object]], *, more: bool) -> Html:
    most = f"a page shows at most {ROWS_MAX} rows and {show_bytes(_BYTES_MAX)}"
    count = f"The first {len(rows)} rows; {most}." if more else f"{len(rows)} rows."
    shown = ([_cell(value) for value in row] for row in rows)
    return joined(tag("p", count, class_="note"), table(names, shown, class_="data"))


def _cell(value: object) -> Html:
    if value is None:
        return tag("span", "NULL", class_="note")
    return tag("span", value_text(value))


T = TypeVar("T")
log = logging.getLogger("lakecore.ui")
SECONDS_MAX = 30.0
READS_MAX = 4
_BODY_BYTES_MAX = 512 << 10
_COOKIE = "lakecore_ui"
_OWN_ADDRESS = re.compile(r"/(?!login)(?:[!-.0-\[\]-~][!-\[\]-~]*)?")
"""A path of this server: it does not begin with two slashes, or a slash and a backslash."""
_OF_METADATA = {"": table_page, "files": files_page, "schema": schema_page}
_OF_ROWS = {"rows": rows_page, "changes": changes_page}
_HTML = "text/html; charset=utf-8"
_STATIC = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def serve_ui(
    catalog: Catalog,
    *,
    host: str,
    port: int,
    token: str | None,
    on_start: Callable[[str], None],
) -> None:
    """Serve the page until SIGINT or SIGTERM. `on_start` gets the address of the page.

    Raises InvalidRequest if other machines can connect without a token, or if the port is taken.
    """
    check_token(host, token)
    app = UiApp(catalog, token=token, host=host)
    app.prepare()
    listen(app, host=host, port=port, on_start=on_start)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is sent: a page, or something else."""

    status: int
    content: bytes
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)


class UiApp:
    """An ASGI application: the page over one catalog."""

    def __init__(self, catalog: Catalog, *, token: str | None, host: str) -> None:
        self._site = Site(catalog)
        self._token = token
        self._host = host
        self._reads = ThreadPoolExecutor(READS_MAX, "lakecore-ui-rows")
        self._pages = ThreadPoolExecutor(READS_MAX, "lakecore-ui")
        self._queries: dict[str, Query] = {}
        self._counting = asyncio.Lock()

    def prepare(self) -> None:
        """Make the first page before anybody waits for one: the imports take long."""
        self._pages.submit(tables_page, self._site, Asked({}))

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        request = _Request(scope, receive)
        try:
            answer = self._answer(request, await self._found(request))
        except BaseException as error:
            facts = (request.method, request.path, error)
            log.error("unexpected error. method=%s path=%r reason=%r", *facts)  # noqa: TRY400  uvicorn logs where
            failed = self._answer(request, _problem_page(Problem(500, FAILED)))
            # uvicorn closes the connection of an application that raises.
            await _send(send, request, replace(failed, headers={"connection": "close"}))
            raise
        await _send(send, request, answer)

    async def _found(self, request: _Request) -> Page | Answer:
        try:
            try:
                request.split()
                return await self._routed(request)
            except LakecoreError as error:
                raise Problem(problem_of(error).code, str(error)) from error
        except Problem as problem:
            found = _problem_page(problem)
            if request.path[0] == "t" and len(request.path) > 1 and problem.code != 404:
                shown = of_table(request.path[1], "error", found.data, found.body)
                found = replace(shown, status=problem.code)
            if request.path == ("sql",) and request.form:
                found = self._boxed(request, found)
            return self._login(request) if problem.code == 401 else found

    def _answer(self, request: _Request, found: Page | Answer) -> Answer:
        if isinstance(found, Answer):
            return found
        if request.as_json:
            return Answer(found.status, json_text(found.data).encode(), "application/json")
        where = self._site.where if request.may_read else ""
        crumbs = (link("lakecore"), *found.crumbs)
        text = page(found.title, where, crumbs, found.body, request.json_address)
        return Answer(found.status, text.encode(), _HTML)

    async def _routed(self, request: _Request) -> Page | Answer:
        if request.method not in {"GET", "HEAD", "POST"}:
            raise Problem(405, "the page is read-only")
        self._check_host(request)
        if request.path[0] == "static":
            return _static(request.path)
        if request.method == "POST":
            return await self._posted(request)
        self._check_token(request)
        asked, site = Asked(request.query), self._site
        match request.path:
            case ("" | "index",):
                return await self._read(partial(tables_page, site, asked))
            case ("metrics",):
                async with self._counting:
                    work = partial(prometheus, site.catalog, site.numbers)
                    text = await self._read(work)
                return Answer(200, text.encode(), METRICS_TYPE)
            case ("sql",) if request.as_json:
                _check_origin(request, "the query was sent by another site: open it here")
                return await self._queried(asked.text("q"), "")
            case ("sql",):
                box = query_form(asked.text("q"), SYSTEM.new_uuid())
                return Page(title="SQL", data={"query": asked.text("q")}, body=box)
            case ("t", name, "snapshots", number):
                return await self._read(partial(snapshot_page, site, name, number))
            case ("t", name, *tab) if "/".join(tab) in _OF_METADATA:
                makes = _OF_METADATA["/".join(tab)]
                return await self._read(partial(makes, site, name, asked))
            case ("t", name, tab) if tab in _OF_ROWS:
                if self._token is None:
                    _check_origin(request, "the page was asked for by another site: open it here")
                stop = Event()
                reads = partial(_OF_ROWS[tab], site, name, asked, stop.is_set)
                return await self._in_time(reads, stop.set)
        raise Problem(404, "there is no such page")

    async def _posted(self, request: _Request) -> Page | Answer:
        """The answer to a form. A form of another site is refused before its body is read."""
        _check_origin(request, "the form is not of this page")
        await request.read_form()
        if request.path == ("login",):
            return self._logged_in(request)
        self._check_token(request)
        number = request.form.get("id", "")
        if request.path == ("sql", "cancel"):
            running = self._queries.get(number)
            if running is not None:
                running.cancel()
            said = "The query is cancelled." if running else "The query is not running."
            return Page(title="SQL", data={"cancelled": running is not None}, body=tag("p", said))
        if request.path != ("sql",):
            raise Problem(404, "there is no such form")
        return self._boxed(request, await self._queried(request.form.get("q", ""), number))

    async def _queried(self, text: str, number: str) -> Page:
        """The result of a query. `number` names it for its cancellation; may be empty."""
        if not text.strip():
            raise Problem(400, "there is no query: give one as the parameter or the field q")
        query = Query(self._site, text)
        number = number or SYSTEM.new_uuid()
        if number in self._queries:
            raise Problem(409, "a query of this id is running")
        self._queries[number] = query
        try:
            return await self._in_time(query.run, query.cancel)
        finally:
            del self._queries[number]

    def _boxed(self, request: _Request, found: Page) -> Page:
        """The page of a result, or of an error, below the query."""
        box = query_form(request.form.get("q", ""), SYSTEM.new_uuid(), found.body)
        return Page(title="SQL", data=found.data, body=box, status=found.status)

    # --- who may ask ------------------------------------------------------------------------------

    def _check_host(self, request: _Request) -> None:
        if self._token is None:
            check_host(request.headers.get("host", ""), self._host)

    def _check_token(self, request: _Request) -> None:
        if self._token is not None:
            stated = request.headers.get("authorization", "").encode("utf-8", "replace")
            known = hmac.compare_digest(stated, f"Bearer {self._token}".encode())
            kept = request.cookies.get(_COOKIE, "").encode("utf-8", "replace")
            if not (known or hmac.compare_digest(kept, self._cookie().encode())):
                raise Problem(401, "the token is missing or wrong")
        request.may_read = True

    def _cookie(self) -> str:
        """The value of a browser's cookie: it proves the token without containing it."""
        return hmac.new((self._token or "").encode(), b"lakecore ui", hashlib.sha256).hexdigest()

    def _login(self, request: _Request) -> Page:
        form = tag(
            "form",
            tag("label", "Token", for_="token"),
            tag("input", type="password", name="token", id="token", required=True, autofocus=True),
            tag("input", type="hidden", name="next", value=request.address),
            tag("button", "Show", class_="main"),
            method="post",
            action="/login",
            class_="line",
        )
        said = tag("p", "This page needs the token of the server.")
        data = {"error": "the token is missing or wrong"}
        return Page(title="Token", data=data, body=joined(said, form), status=401)

    def _logged_in(self, request: _Request) -> Answer:
        given = request.form.get("token", "").encode("utf-8", "replace")
        if self._token is None or not hmac.compare_digest(given, self._token.encode()):
            raise Problem(401, "the token is missing or wrong")
        to = request.form.get("next", "/")
        if _OWN_ADDRESS.fullmatch(to) is None:
            to = "/"
        cookie = f"{_COOKIE}={self._cookie()}; HttpOnly; Path=/; SameSite=Lax"
        return Answer(303, b"", _HTML, {"location": to, "set-cookie": cookie})

    # --- work in threads --------------------------------------------------------------------------

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pages, work)

    async def _in_time(self, work: Callable[[], Page], stop: Callable[[], None]) -> Page:
        """The page of `work`. After `SECONDS_MAX`, calls `stop` and raises Problem (504)."""
        done = asyncio.get_running_loop().run_in_executor(self._reads, work)
        done.add_done_callback(lambda each: each.cancelled() or each.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(done), SECONDS_MAX)
        except TimeoutError:
            stop()
            raise Problem(504, f"this took longer than {SECONDS_MAX:.0f} s") from None


class _Request:
    """A request: its decoded path and query, and its form once that is read."""

    def __init__(self, scope: Message, receive: Callable[[], Awaitable[Message]]) -> None:
        pairs = cast("Iterable[tuple[bytes, bytes]]", scope["headers"])
        self._scope, self._receive = scope, receive
        self.method = str(scope["method"])
        self.headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in pairs}
        self.path: tuple[str, ...] = ("",)
        self.query: dict[str, str] = {}
        self.form: dict[str, str] = {}
        self.may_read = False
        self.as_json = self._raw.endswith(b".json")

    def split(self) -> None:
        """Decode path and query. Raises Problem if they are not valid."""
        parts, self.query = split_address(self._scope)
        if len(parts) > 1 and not parts[-1]:
            parts = parts[:-1]
        last = parts[-1].removesuffix(".json") if self.as_json else parts[-1]
        self.path = (*parts[:-1], last)

    async def read_form(self) -> None:
        """Read the fields of the form. Raises Problem if it is too long, or comes too slowly."""
        body, more = b"", True
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while more:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise Problem(400, "the form is not complete")
                    body += cast("bytes", message.get("body", b""))
                    more = bool(message.get("more_body"))
                    if len(body) > _BODY_BYTES_MAX:
                        raise Problem(413, f"a form has at most {_BODY_BYTES_MAX} bytes")
            self.form = dict(parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=20))
        except TimeoutError:
            raise Problem(408, "the form did not arrive in time") from None
        except ValueError:
            raise Problem(400, "the form is not valid") from None

    @property
    def _raw(self) -> bytes:
        return cast("bytes", self._scope.get("raw_path") or b"/")

    @property
    def address(self) -> str:
        """The requested path and query, as they were sent."""
        if self.method == "POST":
            return self.form.get("next", "/")
        query = cast("bytes", self._scope.get("query_string") or b"")
        return (self._raw + (b"?" + query if query else b"")).decode("latin-1")

    @property
    def json_address(self) -> str | None:
        """The address of the same page as JSON; None for the answer to a form."""
        if self.method == "POST":
            return None
        path, mark, query = self.address.partition("?")
        return f"{'/index' if path == '/' else path.rstrip('/')}.json{mark}{query}"

    @property
    def cookies(self) -> dict[str, str]:
        parts = (each.partition("=") for each in self.headers.get("cookie", "").split(";"))
        return {name.strip(): value.strip() for name, _, value in parts}


async def _send(
    send: Callable[[Message], Awaitable[None]], request: _Request, answer: Answer
) -> None:
    own = {"content-type": answer.kind, "content-length": str(len(answer.content))}
    headers = {**_HEADERS, **answer.headers, **own}
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
        }
    )
    body = b"" if request.method == "HEAD" else answer.content
    await send({"type": "http.response.body", "body": body})


def _problem_page(problem: Problem) -> Page:
    return Page(
        title="Not found" if problem.code == 404 else "This did not work",
        data={"error": problem.message},
        body=tag("p", problem.message, class_="bad", role="alert"),
        status=problem.code,
    )


def _check_origin(request: _Request, fault: str) -> None:
    """Raise Problem for a request that a page of another site made."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
    if (origin is not None and origin not in own) or site not in {None, "same-origin", "none"}:
        raise Problem(403, fault)


def _static(path: Sequence[str]) -> Answer:
    if len(path) != 2 or path[1] not in _STATIC:
        raise Problem(404, "there is no such file")
    return Answer(200, static(path[1]), _STATIC[path[1]])
