"""Pages of dead letters: the list, one dead letter with its record, and the forms to send again or discard."""

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets import errors
from facetline.facets.explorer.base import Site, Visitor

if TYPE_CHECKING:
    from facetline.facets.backend import DocumentBackend

SHOWN = 50
ADDRESS = "/-/dead-letters"
COUNT_S = 2.0
"""How long the front page waits for the number of dead letters."""
STATES = {
    "open": "Open: it can be sent again or discarded.",
    "redriving": "Sent again; not applied yet.",
    "redriven": "Closed: its event was applied.",
    "superseded": "Closed: a later event of its document was applied.",
    "discarded": "Discarded.",
}


class DeadLetterPages:
    """Handlers of dead letters; all require the right `admin` and no scope."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._node = site.node

    async def listed(self, request: Request, visitor: Visitor) -> Response:
        """Show open dead letters, newest first."""
        _check(visitor)
        given = request.query_params
        reason, cursor = given.get("reason") or None, given.get("cursor") or None
        found = await self._node.dead_letters(visitor.caller, reason=reason, cursor=cursor, limit=SHOWN)
        return self._site.render(
            request,
            "dead_letters.html",
            visitor,
            letters=found["dead_letters"],
            counts=found["counts"],
            total=sum(found["counts"].values()),
            reason=reason,
            cursor=found["next_cursor"],
        )

    async def shown(self, request: Request, visitor: Visitor) -> Response:
        """Show one dead letter with its record."""
        _check(visitor)
        letter = await self._node.dead_letter(visitor.caller, request.path_params["id"])
        waits = letter["state"] in {"open", "redriving"}
        state_text = STATES.get(letter["state"], letter["state"])
        return self._site.render(
            request, "dead_letter.html", visitor, letter=letter, waits=waits, state_text=state_text
        )

    async def redrive(self, request: Request, visitor: Visitor) -> Response:
        """Send a dead letter again and show its outcome."""
        _check(visitor)
        letter = await self._node.redrive(visitor.caller, request.path_params["id"])
        return self._site.go(f"{ADDRESS}/{letter['id']}")

    async def discard(self, request: Request, visitor: Visitor) -> Response:
        """Close a dead letter permanently and show it."""
        _check(visitor)
        letter = await self._node.discard(visitor.caller, request.path_params["id"])
        return self._site.go(f"{ADDRESS}/{letter['id']}")


async def waiting(node: "DocumentBackend", visitor: Visitor) -> int | None:
    """Return the number of open dead letters; None without the right to see them, or if the store does not answer."""
    if not visitor.may_reindex:
        return None
    try:
        async with asyncio.timeout(COUNT_S):
            found = await node.dead_letters(visitor.caller, reason=None, cursor=None, limit=1)
    except (errors.PipelineError, TimeoutError):
        return None
    return int(sum(found["counts"].values()))


def _check(visitor: Visitor) -> None:
    if not visitor.may_reindex:
        raise errors.Forbidden("dead letters require a token with the right 'admin' and without a scope")
