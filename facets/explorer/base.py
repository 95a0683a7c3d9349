"""Common parts of all pages: the visitor, rendering, problems, forms and security headers.

A request by htmx is answered with the part of the page that changes, any other with the whole page. Both are rendered
by the same handler from the same template.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from facetline.facets import display, errors
from facetline.facets.api import auth
from facetline.facets.api.problems import Problem, instance_of, of_error
from facetline.facets.api.routing import Service
from facetline.facets.backend import Caller, Right
from facetline.facets.explorer import formatting
from facetline.facets.explorer.sessions import COOKIE, Forms, Sessions

HERE = Path(__file__).parent
STATIC = HERE / "static"
SIGN_IN = "/-/sign-in"
FORM_BYTES_MAX = 16 * 1024
FOUND = 303
_VERSION = re.compile(r"/v[0-9]+(/|$)")
"""The start of an address of another version of the API."""
# Routes for programs: a problem there is never an HTML page.
_NOT_PAGES = ("/v1/", "/mcp/", "/livez/", "/readyz/", "/health/", "/metrics/", "/openapi.json/", "/static/")

# Nothing inline, nothing from other hosts, no framing. `same-origin` instead of `no-referrer`: with the latter a
# browser sends the origin of a form as "null".
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "HX-Request, HX-History-Restore-Request, Cookie",
}

Page = Callable[[Request, "Visitor"], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Visitor:
    """The visitor of a page; `session` is the session cookie, `mark` the CSRF token of its forms."""

    caller: Caller
    session: str | None
    mark: str
    signed_in: bool

    @property
    def may_reindex(self) -> bool:
        """Whether this visitor may start reindex jobs and see dead letters."""
        return "admin" in self.caller.rights and self.caller.scope is None

    @property
    def may_sql(self) -> bool:
        """Whether this visitor may run SQL."""
        return "sql" in self.caller.rights and self.caller.scope is None


class Site:
    """Backend, sessions and templates of the pages."""

    def __init__(self, service: Service, clock: Callable[[], float]) -> None:
        self.service = service
        self.node = service.node
        self.sessions = Sessions(clock)
        self.forms = Forms()
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=lambda value: value if hasattr(value, "__html__") else display.block(value),
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": formatting.count,
            "percent": formatting.percent,
            "seconds": formatting.seconds,
            "usd": formatting.usd,
            "moment": formatting.moment,
            "exact": escape,  # for values that a form sends back; everything else is escaped by `display`
            "pathpart": lambda text: quote(text, safe=""),
        }

    @cached_property
    def stamp(self) -> str:
        """Version of the static files in their URLs, so that browsers cache them until they change."""
        digest = hashlib.sha256()
        for path in sorted(STATIC.iterdir()):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def page(self, handler: Page, *, form: bool = False, right: Right | None = "read") -> Handler:
        """Return a handler with the visitor; problems become pages, and without a valid token the sign-in page opens.

        A visitor without `right` is refused; None: any visitor with a valid token.
        """

        async def handle(request: Request) -> Response:
            visitor = None
            try:
                visitor = await self.visitor(request)
                if right is not None:
                    auth.require(visitor.caller, right)
                if form:
                    await self._check_form(request, visitor)
                return await handler(request, visitor)
            except errors.PipelineError as error:
                problem = of_error(error)
                return _for_program(request, problem) or self.problem(request, problem, visitor)
            except Problem as problem:
                if reply := _for_program(request, problem):
                    return reply
                if problem.kind.name == "unauthorized":
                    return self.to_sign_in(request)
                return self.problem(request, problem, visitor)

        return handle

    async def visitor(self, request: Request) -> Visitor:
        """Return the visitor.

        Raises:
            Problem: `unauthorized`, or `foreign-host`.
        """
        session = request.cookies.get(COOKIE)
        token = self.sessions.token(session)
        headers = request.headers
        if token is not None:
            given = [(name, value) for name, value in headers.raw if name != b"authorization"]
            headers = Headers(raw=[*given, (b"authorization", f"Bearer {token}".encode())])
        try:
            caller = await self.service.access.caller(headers)
        except Problem:
            self.sessions.close(session)
            raise
        return Visitor(caller, session, self.forms.mark(session if token else None), token is not None)

    def render(
        self, request: HTTPConnection, template: str, visitor: Visitor | None, *, status: int = 200, **values: Any
    ) -> Response:
        """Return a page, or the part of it that htmx requests."""
        part = is_part(request)
        text = self._templates.get_template(template).render(
            layout="part.html" if part else "page.html", stamp=self.stamp, visitor=visitor, sign_in=SIGN_IN, **values
        )
        return HTMLResponse(text, status, HEADERS)

    def problem(self, request: HTTPConnection, problem: Problem, visitor: Visitor | None) -> Response:
        """Return the page of a problem."""
        reply = self.render(
            request,
            "problem.html",
            visitor,
            status=problem.status,
            title=problem.kind.title,
            detail=problem.detail,
            code=problem.status,
            allowed=problem.more.get("allowed") or (),
        )
        reply.headers.update(problem.headers)
        return reply

    def problem_page(self, connection: HTTPConnection, problem: Problem) -> Response | None:
        """Return the page of a problem raised outside the pages, if the request accepts HTML and is not for the API."""
        path = connection.scope["path"]
        if f"{path}/".startswith(_NOT_PAGES) or "text/html" not in connection.headers.get("accept", ""):
            return None
        return self.problem(connection, problem, None)

    def to_sign_in(self, request: Request) -> Response:
        """Redirect to the sign-in page, and from there back to the requested page."""
        if is_part(request):
            return Response(status_code=204, headers={**HEADERS, "HX-Refresh": "true"})
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return self.go(f"{SIGN_IN}?next={quote(path, safe='')}" if request.method == "GET" else SIGN_IN)

    def go(self, address: str) -> Response:
        """Redirect to another page of this site."""
        return RedirectResponse(address, FOUND, HEADERS)

    async def _check_form(self, request: Request, visitor: Visitor) -> None:
        await self.check_mark(request, visitor.session if visitor.signed_in else None)

    async def check_mark(self, request: Request, session: str | None) -> None:
        """Refuse a form that this process did not render (CSRF), in addition to the check of its origin.

        Raises:
            Problem: `forbidden`.
        """
        origin = request.headers.get("origin")
        fetched = request.headers.get("sec-fetch-site")
        form = await self.form(request)
        if origin is None and fetched is None:
            raise Problem("foreign-origin", "the form has no Origin header; send it from this page")
        if not self.forms.genuine(session, form.get("mark", "")):
            raise Problem("forbidden", "this form has expired; reload the page and send it again")

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, parsed once per request.

        Raises:
            Problem: `too-large`, or `unsupported-media-type`.
        """
        known: dict[str, str] | None = getattr(request.state, "form", None)
        if known is not None:
            return known
        if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            raise Problem("unsupported-media-type", "send a form: content-type: application/x-www-form-urlencoded")
        sent = bytearray()
        async for piece in request.stream():
            sent += piece
            if len(sent) > FORM_BYTES_MAX:
                raise Problem("too-large", f"the form has more than {FORM_BYTES_MAX} bytes")
        fields = dict(parse_qsl(sent.decode("utf-8", "replace"), keep_blank_values=True))
        request.state.form = fields
        return fields


def is_part(request: HTTPConnection) -> bool:
    """Return whether htmx requests a part; for going back in history it requests the whole page."""
    headers = request.headers
    return headers.get("hx-request") == "true" and headers.get("hx-history-restore-request") != "true"


def _for_program(request: Request, problem: Problem) -> Response | None:
    """Return a problem as JSON where the client takes no HTML and asks for an address that no page has."""
    if is_part(request) or "text/html" in request.headers.get("accept", ""):
        return None
    unknown = problem.status == HTTPStatus.NOT_FOUND or _VERSION.match(request.url.path)
    return problem.response(instance_of(request)) if unknown else None
