"""Where chance comes from in fault tests: `FACETLINE_FAULT_SEED`, 1 unless a soak gives another one.

With a seed given, tests also dally: they wait for a random while at the points where it may matter.
"""

import asyncio
import os
import random

VARIABLE = "FACETLINE_FAULT_SEED"
DALLY_MAX_S = 1.0


def given() -> int | None:
    """The seed from outside."""
    said = os.environ.get(VARIABLE)
    return int(said) if said else None


def chance(*what: object) -> random.Random:
    """A source of chance that is the same for the same seed and the same words."""
    return random.Random(f"{given() or 1}/{what}")  # noqa: S311 (delays and choices of a test)


async def dally(source: random.Random) -> None:
    """Wait for a random while in a soak, not at all otherwise."""
    if given() is not None:
        await asyncio.sleep(source.uniform(0, DALLY_MAX_S))
