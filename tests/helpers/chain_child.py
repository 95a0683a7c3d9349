"""A process of its own that runs a side chain and a reindexer: `python chain_child.py STORE_URL OWNER hang|answer`.

It prints `called KEY` when a call has begun, and is there to be killed.
"""

import asyncio
import sys
from typing import Any

import chains
import stored
from fake_evaluator import FakeEvaluator, Held

from facetline.evaluators.contract import Evaluated


class Announcing(FakeEvaluator):
    """Says on standard output when it is called."""

    async def evaluate(self, body: str, questions: Any, *, key: str, deadline_s: float) -> Evaluated:
        """Say so, then do as usual."""
        print(f"called {key}", flush=True)  # noqa: T201 (the parent reads it)
        return await super().evaluate(body, questions, key=key, deadline_s=deadline_s)


async def main(url: str, owner: str, manner: str) -> None:
    """Run until killed."""
    evaluator = Announcing(Held() if manner == "hang" else "billing")
    async with stored.opened(url) as store, chains.reindexing(store, evaluator, owner=owner):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
