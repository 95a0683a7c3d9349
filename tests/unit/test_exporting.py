"""When a snapshot for statements is of something new."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import searched

from facetline.streams.views.exports import Lent, Source


async def test_a_view_built_anew_is_something_new_at_the_same_place():
    """After a store went back its feed may come to where it was, with other documents: no snapshot passes for it."""
    views = [searched.view(), searched.view()]
    for view in views:
        view.apply([searched.record(1)])
    lent = [views[:1]]

    @asynccontextmanager
    async def lend() -> AsyncIterator[Lent]:
        yield Lent(lent[0], 1)

    source = Source(lend)
    first, again = await source.position(), await source.position()
    lent[0] = views[1:]
    other = await source.position()
    for view in views:
        view.close()

    assert first == again
    assert other != first
