"""What a command leaves to the server of its data folder: the side chain, and the views that a search goes through.

Everything else of a command works on the store itself, which any number of processes may do at once: so its results
are the same with a server and without one, and do not depend on its answering.
"""

import contextlib
from typing import TYPE_CHECKING, Any

from facetline.facets import errors, tokens
from facetline.facets.search.selection import Selection
from facetline.storage import feed
from facetline.storage.db.engine import Store
from facetline.streams.local_server import Holder

if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_MS = 30_000
"""How long the server may take to come as far as the store is now; it is a fraction of a second behind."""
MADE_BY_THE_API = ("links", "next_url")
"""Members of a reply that only have a meaning over HTTP."""


async def search(server: Holder, store: Store, selection: Selection) -> dict[str, Any] | None:
    """Search through a server's views, over everything committed before the call; None when it does not answer.

    Raises:
        InvalidQuery: the selection names what does not exist.
    """
    from facetline.facets.client.async_client import (
        AsyncClient,  # httpx is slow to import, and only this has use for it
    )

    while await store.write(feed.number) >= feed.NUMBERED_MAX:
        pass
    now = tokens.encode(tokens.FeedToken(store.store_id, await store.read(feed.end)))
    given: Mapping[str, Any] = selection.model_dump(exclude={"collection", "facets"}, exclude_defaults=True)
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    with contextlib.suppress(errors.ServerUnavailable, errors.NotCaughtUp, errors.StoreUnavailable):
        async with AsyncClient(server.url, token=server.secret, remembers=False) as client:
            reply = await client.search(
                selection.collection, selection.facets, **options, at_least=[now], wait_ms=WAIT_MS
            )
        return {name: value for name, value in reply.items() if name not in MADE_BY_THE_API}
    return None
