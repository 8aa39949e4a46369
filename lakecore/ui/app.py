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
from threading import Event
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qsl

from lakecore.display import json_text
from lakecore.errors import LakecoreError
from lakecore.io.ambient import SYSTEM
from lakecore.metrics import METRICS_TYPE, prometheus
from lakecore.rest_server.app import split_address
from lakecore.rest_server.replies import FAILED, Problem, problem_of
from lakecore.rest_server.serving import check_host, check_token, listen
from lakecore.ui.drawing import static
from lakecore.ui.html import joined, link, page, tag
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
from lakecore.ui.row_pages import Query, changes_page, query_form, rows_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
    from typing import TypeAlias

    from lakecore.catalog.catalog import Catalog

    Message: TypeAlias = MutableMapping[str, object]

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
