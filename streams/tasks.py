"""Await a coroutine to completion even if the caller is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any

END_S = 5.0
"""How long work may go on after the cancellation: a stop stays quick even when the store is away."""


async def run_uncancelled(work: Coroutine[Any, Any, None], name: str) -> None:
    """Run `work` in a task of its own and await it; a cancellation is passed on when it has ended, or after `END_S`."""
    task = asyncio.create_task(work, name=name)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=END_S)
        raise
