"""Faults at random, one after another, while documents are written, rewritten, deleted and asked about again."""

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from rig import LEASES_S, Rig
from trials import Trial

from facetline.facets import errors
from facetline.storage.jobs.model import JobRequest
from facetline.streams import failpoints
from facetline.streams.reindex import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cutting_proxy import Silence

KEYS = [f"k{number:02d}" for number in range(16)]
NAMES = ("one", "two")
PAUSE_MAX_S = 0.8
SILENCES: "tuple[Silence, ...]" = ("both", "requests", "answers", "commit", "committed")
WORDS = ("", "", "", " hold=gate", " fail=bad", " away=gone")


class Storm:
    """Draws its faults from `source`; `log` has what it did, for a failing test's reader."""

    def __init__(self, rig: Rig, trial: Trial, source: random.Random, **workers: str) -> None:
        self.rig, self.trial, self.random = rig, trial, source
        self.log: list[str] = []
        self._workers = workers
        """Settings of every worker that it starts."""
        menu: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill_at_a_failpoint,
            self.freeze,
            self.restart,
            self.shift,
            self.reindex,
            self.turn_a_file,
        ]
        if rig.proxy is not None:
            menu += [self.cut, self.fall_silent, self.crash_database, self.pause_broker, self.kill_broker]
        self._menu = menu

    async def run(self, steps: int) -> None:
        """Do so many faults, and bring everything back."""
        stop = asyncio.Event()
        writing = asyncio.create_task(self._write(stop))
        try:
            for _ in range(steps):
                await self._pause()
                fault = self.random.choice(self._menu)
                self.log.append(fault.__name__)
                print(f"storm: {fault.__name__}", flush=True)  # noqa: T201 (for a failing test's reader)
                await fault()
        finally:
            stop.set()
            self._calm()
            await writing

    def start(self) -> None:
        """Have both workers running with the storm's own settings."""
        for name in NAMES:
            worker = self.rig.workers.get(name)
            if worker is None or worker.poll() is not None or self._workers:
                self.rig.start(name, **self._workers)

    async def kill(self) -> None:
        """SIGKILL a worker and start another in its place."""
        name = self._any()
        self.rig.kill(name)
        await self._pause()
        self.rig.start(name, **self._workers)

    async def kill_at_a_failpoint(self) -> None:
        """Have a worker kill itself at a step, if it comes there, and start another in its place."""
        name, point = self._any(), self.random.choice(failpoints.NAMES)
        self.log.append(point)
        worker = self.rig.start(name, f"{point}=kill", **self._workers)
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(8):
                while worker.poll() is None:  # noqa: ASYNC110 (a process has no event)
                    await asyncio.sleep(0.05)
        self.rig.start(name, **self._workers)

    async def freeze(self) -> None:
        """SIGSTOP a worker for a while, in which its leases may end."""
        name = self._any()
        self.rig.freeze(name)
        await self._pause()
        if self.random.random() < 0.5:
            self.rig.site.clock.shift(LEASES_S)
        await self._pause()
        self.rig.thaw(name)

    async def restart(self) -> None:
        """SIGTERM a worker, and start it again."""
        name = self._any()
        await asyncio.to_thread(self.rig.stop, name)
        self.rig.start(name, **self._workers)

    async def shift(self) -> None:
        """Let the store's clock jump."""
        self.rig.site.clock.shift(self.random.choice((1.0, 30.0, LEASES_S, -1.0, 3600.0, -3600.0)))

    async def reindex(self) -> None:
        """Ask again, about all or about what is missing."""
        mode = self.random.choice(("force", "missing"))
        with contextlib.suppress(errors.Conflict, errors.TransientError):
            await requests.start(self.trial.pipeline, JobRequest("tickets", self.trial.scope, mode))

    async def turn_a_file(self) -> None:
        """Let the evaluator hold, refuse or be away for some bodies, for a while."""
        name = self.random.choice(("gate", "bad", "gone"))
        self.trial.on(name)
        await self._pause()
        await self._pause()
        self.trial.off(name)

    async def cut(self) -> None:
        """Cut connections at commits for a while."""
        assert self.rig.proxy is not None
        self.rig.proxy.cut(self.random.randint(2, 6))
        await self._pause()
        await self._pause()
        self.rig.proxy.cut(0)

    async def fall_silent(self) -> None:
        """Let some connections to the database fall silent, in either direction or at a commit; they stay silent."""
        assert self.rig.proxy is not None
        self.rig.proxy.fall_silent(self.random.choice(SILENCES), self.random.randint(1, 3))
        await self._pause()
        await self._pause()
        self.rig.proxy.speak()

    async def crash_database(self) -> None:
        """Crash the database, and start it again."""
        assert self.rig.server is not None
        await asyncio.to_thread(self.rig.server.crash)
        await self._pause()
        await asyncio.to_thread(self.rig.server.run)

    async def pause_broker(self) -> None:
        """Let the broker hang for a while."""
        assert self.rig.broker is not None
        self.rig.broker.pause()
        await self._pause()
        await self._pause()
        self.rig.broker.resume()

    async def kill_broker(self) -> None:
        """Kill the broker, and start it again."""
        assert self.rig.broker is not None
        await asyncio.to_thread(self.rig.broker.kill)
        await self._pause()
        await asyncio.to_thread(self.rig.broker.start)

    async def _write(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            key = self.random.choice(KEYS)
            if self.random.random() < 0.1:
                await self.trial.remove(key, wait="none")
            else:
                words = self.random.choice(WORDS)
                await self.trial.put(key, self.random.choice(("m01", "m02", "m03", "m04")) + words, wait="none")
            await asyncio.sleep(self.random.uniform(0, 0.08))

    def _calm(self) -> None:
        for name in ("gate", "bad", "gone"):
            self.trial.off(name)
        self.rig.site.clock.shift(LEASES_S)

    def _any(self) -> str:
        return self.random.choice(NAMES)

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0, PAUSE_MAX_S))
