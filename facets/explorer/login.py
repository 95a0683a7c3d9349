"""Sign-in with a token, and sign-out.

The browser gets a session cookie (HttpOnly, SameSite=Strict); the token stays on the server.
"""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets.api.auth import TOKEN_CHARS_MAX
from facetline.facets.api.problems import Problem
from facetline.facets.explorer.base import Site, Visitor
from facetline.facets.explorer.sessions import COOKIE, LIFE_S

REFUSED = 401


class Login:
    """Handlers of the sign-in page."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response:
        """Show the form."""
        return self._form(request, request.query_params.get("next", ""))

    async def sign_in(self, request: Request) -> Response:
        """Open a session for a valid token."""
        try:
            await self._site.check_mark(request, None)
        except Problem as problem:
            return self._site.problem(request, problem, None)
        form = await self._site.form(request)
        token, onward = form.get("token", "").strip(), form.get("next", "")
        if not 0 < len(token) <= TOKEN_CHARS_MAX or await self._site.node.authenticate(token) is None:
            return self._form(request, onward, refused=True)
        self._site.sessions.close(request.cookies.get(COOKIE))
        reply = self._site.go(_own(onward))
        reply.set_cookie(
            COOKIE,
            self._site.sessions.open(token),
            max_age=LIFE_S,
            path="/",
            # By the browser's Origin, which is right also behind a proxy that terminates TLS.
            secure=request.headers.get("origin", "").startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return reply

    async def sign_out(self, _request: Request, visitor: Visitor) -> Response:
        """Close the session."""
        self._site.sessions.close(visitor.session)
        reply = self._site.go("/-/sign-in")
        reply.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return reply

    def _form(self, request: Request, onward: str, *, refused: bool = False) -> Response:
        return self._site.render(
            request,
            "sign_in.html",
            None,
            status=REFUSED if refused else 200,
            mark=self._site.forms.mark(None),
            next=_own(onward),
            refused=refused,
        )


def _own(address: str) -> str:
    """Return a path of this site; the front page for any other URL."""
    parts = urlsplit(address)
    own = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return address if own and address.isprintable() and "\\" not in address else "/"
