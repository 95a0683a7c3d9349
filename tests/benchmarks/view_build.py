"""How many seconds a view takes to be built from the feed when a process starts, for two sizes of a collection.

Baseline: the same rows by hand, as in `feed_to_view`.
"""

from collections.abc import AsyncIterator

import feed_to_view
from figures import Figure, interleaved

SIZES = {100_000: 3, 1_000_000: 1}
"""Documents, and how often each size is measured."""


async def measure() -> AsyncIterator[Figure]:
    """Measure both sizes."""
    for documents, rounds in SIZES.items():
        async with feed_to_view.filled(documents, numbered=True) as (store, path):

            async def built() -> float:
                return await feed_to_view.follow(store)

            async def copied() -> float:
                return feed_to_view.copy(path)

            found = await interleaved(rounds, baseline=copied, value=built)
        yield Figure(f"view_build_{documents}", found["value"], "s", found["baseline"])
