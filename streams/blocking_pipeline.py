"""The pipeline as plain calls that block: for notebooks and scripts without asyncio."""

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from facetline.streams.loop_thread import LoopThread
from facetline.streams.pipeline import Pipeline

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[Pipeline, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[BlockingPipeline, P], R]":
    @functools.wraps(method)
    def call(self: "BlockingPipeline", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._running.run(lambda pipeline: method(pipeline, *args, **kwargs))

    return call


class BlockingPipeline:
    """Every verb of `Pipeline`, of the same name and arguments, which returns when it is done.

    May be used from several threads. `close` may be called again; every other call after it raises `RuntimeError`, and
    so does one in a forked process. Closed at the end of its `with`; unclosed at the end of the program, it is cut off
    as a kill would: what was written stays, and the next process goes on with unanswered documents.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Pipeline]]) -> None:
        self._running = LoopThread(make)
        self._running.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the side chain, which drains, and close everything; harmless when that has been done."""
        self._running.stop()

    definitions = _blocking(Pipeline.definitions)
    definition = _blocking(Pipeline.definition)
    write = _blocking(Pipeline.write)
    write_many = _blocking(Pipeline.write_many)
    append = _blocking(Pipeline.append)
    delete = _blocking(Pipeline.delete)
    get = _blocking(Pipeline.get)
    search = _blocking(Pipeline.search)  # type: ignore[arg-type]  # of its free options none is called self
    grep = _blocking(Pipeline.grep)  # type: ignore[arg-type]  # as above
    glob = _blocking(Pipeline.glob)
    ask = _blocking(Pipeline.ask)
    warnings = _blocking(Pipeline.warnings)
    unavailability = _blocking(Pipeline.unavailability)
    last_unavailability = _blocking(Pipeline.last_unavailability)
