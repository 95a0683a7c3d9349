"""The runtime without a broker: one process, SQLite in a folder, an event applied in the moment it is logged.

A write that returned is committed and synced to disk, so it survives whatever kills the process afterwards. Any number
of processes may work on one folder at once.
"""

import functools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from facetline.streams import logs, wiring
from facetline.streams.pipeline import Pipeline
from facetline.streams.settings import load_settings

if TYPE_CHECKING:
    from facetline.streams.blocking_pipeline import BlockingPipeline


class open_local:  # noqa: N801 (read as a function: `with open_local() as pipeline`)
    """Open the local runtime on a data folder, with the collections of a configuration file.

    `async with` gives a `Pipeline`, whose verbs are awaited; `with` gives a `BlockingPipeline`, whose verbs return when
    they are done, also in a notebook. With `classify` the file's definitions become the active ones, and the side chain
    runs until the end.

    Raises (both, when entered):
        InvalidSettings, InvalidDefinition: the file is refused, with all its problems.
        StoreUnavailable, StoreMismatch: the data folder cannot be used.
    """

    def __init__(
        self, *, config: str | Path | None = None, folder: str | Path | None = None, classify: bool = True
    ) -> None:
        self._make = functools.partial(_opened, config=config, folder=folder, classify=classify)
        self._entered: AbstractAsyncContextManager[Pipeline] | None = None
        self._blocking: BlockingPipeline | None = None

    def open(self) -> "BlockingPipeline":
        """Open it without a `with`, as a notebook needs that uses it in many cells; the caller calls `close`."""
        from facetline.streams.blocking_pipeline import BlockingPipeline

        return BlockingPipeline(self._make)

    def __enter__(self) -> "BlockingPipeline":
        self._blocking = self.open()
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking.close()

    async def __aenter__(self) -> Pipeline:
        self._entered = self._make()
        return await self._entered.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return None if self._entered is None else await self._entered.__aexit__(kind, error, trace)


@asynccontextmanager
async def _opened(*, config: str | Path | None, folder: str | Path | None, classify: bool) -> AsyncIterator[Pipeline]:
    logs.configure_default()
    settings = load_settings(config=config, data_folder=folder)
    local = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"bootstrap_servers": None})})
    async with wiring.open_pipeline(local, classify=classify) as pipeline:
        yield pipeline
