"""A process that runs the side chain of a store against a model server: `python asking_child.py MODEL_URL`.

It says `ready` when litellm is loaded and the store (its URL is the first line of its input) is open, begins at the
next line, and ends when its input does.
"""

import asyncio
import logging
import os
import sys

import sample
import structlog

from facetline.evaluators.decisions.evaluator import Decisions
from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.storage.db import opening
from facetline.streams.background import classifying
from facetline.streams.classify.call import Assignment, CallLimits

VARIABLE = "BENCH_MODEL_KEY"


async def main(model_url: str) -> None:
    """Work until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    os.environ[VARIABLE] = "sk-bench-0123456789"
    evaluator = Decisions(Connection("typesafe/jev-1.14.0", model_url, VARIABLE))
    await client.load()
    store = await opening.open_store((await _line()).strip())
    try:
        print("ready", flush=True)  # noqa: T201 (whoever started it waits for it)
        await _line()
        assignments = {"tickets": Assignment(sample.definition(), evaluator, CallLimits(concurrency=sample.SLOTS))}
        async with classifying(store, assignments, grace_s=1.0, memo_rows_max=1_000_000):
            await _line()
    finally:
        await store.close()
        await client.close()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
