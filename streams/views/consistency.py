"""How new a reply must be: tokens of earlier replies, held against a view, and waited for within a bound.

What a caller with a scope may learn here is about that scope alone: tokens that name anything else are refused alike,
whether what they name exists or not.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from facetline.facets import documents, errors, tokens
from facetline.facets.backend import Caller, Freshness
from facetline.facets.view import overview
from facetline.storage.db.engine import Store
from facetline.storage.log import outcomes
from facetline.streams.views.live_view import Live
from facetline.streams.views.live_views import LiveViews

TOKENS_MAX = 32
"""Tokens of one request."""
WAIT_MS_MAX = 30_000


def check(freshness: Freshness, caller: Caller, source: str, store_id: str) -> list[tokens.Token]:
    """Return what the tokens say.

    Raises:
        InvalidCursor: one is damaged, of another store, or names what the caller may not see.
        InvalidQuery: there are too many, or the wait is too long.
    """
    if len(freshness.at_least) > TOKENS_MAX:
        raise errors.InvalidQuery(f"at_least has {len(freshness.at_least)} tokens; at most {TOKENS_MAX} are taken")
    if not 0 <= freshness.wait_ms <= WAIT_MS_MAX:
        raise errors.InvalidQuery(f"wait_ms is {freshness.wait_ms}; it goes from 0 to {WAIT_MS_MAX}")
    found = [tokens.decode(text) for text in freshness.at_least]
    for text, token in zip(freshness.at_least, found, strict=True):
        if token.store_id != store_id:
            raise errors.InvalidCursor(f"token {text[:40]!r} is of another store; pass one that this one gave you")
        if caller.scope is not None and not _of_scope(token, caller.scope, source):
            raise errors.InvalidCursor(f"token {text[:40]!r} is not one that you were given; pass one that you were")
    return found


async def applied(store: Store, wanted: Sequence[tokens.Token], wait_ms: int) -> None:
    """Wait until the events among the tokens are applied: what the store of record itself needs to be that new.

    Raises:
        NotCaughtUp: they are not within `wait_ms`.
    """
    waiting = [token for token in wanted if isinstance(token, tokens.EventToken)]
    try:
        async with asyncio.timeout(wait_ms / 1000):
            while waiting:
                waiting = [token for token in waiting if await _version(store, token) is None]
                if waiting:
                    await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise errors.NotCaughtUp(
            f"{len(waiting)} of the events asked for are not applied within {wait_ms} ms; try again in a moment"
        ) from None


async def reached(
    views: LiveViews, store: Store, collection: str, wanted: Sequence[tokens.Token], wait_ms: int, scope: str | None
) -> None:
    """Wait until the view of a collection is there and as new as all tokens ask.

    Raises:
        NotCaughtUp: it is not within `wait_ms`; to a caller without a scope it says how far it is.
    """
    left: list[tokens.Token] = list(wanted)
    deadline = asyncio.get_running_loop().time() + max(wait_ms, _MIN_MS) / 1000
    try:
        async with asyncio.timeout_at(deadline):
            await views.built(collection)
        # Not cut off: a token that the view holds is honoured however long a busy machine takes to see that.
        while left := await _not_reached(views, store, collection, left):
            async with asyncio.timeout_at(deadline):
                await views.next_look()
    except TimeoutError:
        raise errors.NotCaughtUp(_why(views, collection, wait_ms, scope)) from None


async def _not_reached(
    views: LiveViews, store: Store, collection: str, wanted: Sequence[tokens.Token]
) -> list[tokens.Token]:
    left: list[tokens.Token] = []
    if not wanted:
        return left
    async with views.using(collection) as live:
        for token in wanted:
            known = await _version(store, token) if isinstance(token, tokens.EventToken) else token
            if known is None or not await _holds(views, live, known):
                left.append(token if known is None else known)
    return left


async def _holds(views: LiveViews, live: Live, token: tokens.Token) -> bool:
    """Say whether a view is as new as a token asks; one about another collection asks nothing of it."""
    collection = live.definition.name
    match token:
        case tokens.FeedToken(position=position):
            return live.reached >= position
        case tokens.ScopeToken(collection=name, scope=scope, changes=changes) if name == collection:
            if not live.complete or any(uri.startswith(f"@{scope}/") for uri in live.between):
                return False
            [[(found,)]] = await views.read(live.view.look, collection, lambda table: overview.changes(table, scope))
            return bool(found >= changes)
        case tokens.WriteToken(uri=uri, version=version) if _is_of(views, uri, collection):
            [rows] = await views.read(live.view.look, collection, lambda table: overview.version(table, uri))
            return bool(rows) and rows[0][0] >= version
    return True


def _is_of(views: LiveViews, uri: str, collection: str) -> bool:
    with contextlib.suppress(errors.InvalidEvent):
        definition, _ = views.known.definitions.locate(documents.parse_uri(uri))
        return definition.name == collection
    return False


async def _version(store: Store, token: tokens.EventToken) -> tokens.WriteToken | None:
    """Return what an event did to its document; version 0 if it did nothing, None while it is not applied."""
    outcome = await store.read(outcomes.find, token.source, token.event_id)
    if outcome is None:
        return None
    return tokens.WriteToken(token.store_id, outcome.uri or "", outcome.version or 0)


def _of_scope(token: tokens.Token, scope: str, source: str) -> bool:
    match token:
        case tokens.WriteToken(uri=uri):
            return uri.startswith(f"@{scope}/")
        case tokens.ScopeToken(scope=named):
            return named == scope
        case tokens.EventToken(source=named):
            return named == source
    return False


def _why(views: LiveViews, collection: str, wait_ms: int, scope: str | None) -> str:
    behind, age_s = views.behind(collection), views.age_s()
    how_far = "is being built" if behind is None else f"is not as new as asked for within {wait_ms} ms"
    if scope is not None or behind is None or age_s is None:
        return f"the view of '{collection}' {how_far}; try again in a moment"
    problem = f": {views.problem}" if views.problem else ""
    return (
        f"the view of '{collection}' {how_far}: {behind} changes of {views.end} are to come, and the store was seen"
        f" {age_s:.1f} s ago{problem}; try again in a moment"
    )


_PAUSE_S = 0.05
_MIN_MS = 50
"""A view that is there answers within this; without a token a read waits for nothing else."""
