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

from evaluators import models
from evaluators.decisions import Decisions
from evaluators.models import Connection
from storage import opening
from streams.calls import Assignment, CallLimits
from streams.classifying import classifying

VARIABLE = "BENCH_MODEL_KEY"


async def main(model_url: str) -> None:
    """Work until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    os.environ[VARIABLE] = "sk-bench-0123456789"
    evaluator = Decisions(Connection("typesafe/jev-1.14.0", model_url, VARIABLE))
    await models.load()
    store = await opening.open_store((await _line()).strip())
    try:
        print("ready", flush=True)  # noqa: T201 (whoever started it waits for it)
        await _line()
        assignments = {"tickets": Assignment(sample.definition(), evaluator, CallLimits(concurrency=sample.SLOTS))}
        async with classifying(store, assignments, grace_s=1.0, memo_rows_max=1_000_000):
            await _line()
    finally:
        await store.close()
        await models.close()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
