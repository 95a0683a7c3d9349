"""Runs an async context manager in a thread with an event loop of its own, and calls into it from other threads.

What a notebook and a plain script need: there `asyncio.run` is refused, or the loop ends with each call.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from facetline.facets import errors

T = TypeVar("T")
R = TypeVar("R")
POLL_S = 0.2
"""How often a blocked call looks whether the thread has ended."""


class LoopThread(Generic[T]):
    """`start` enters the context manager that `make` returns, `run` calls into it, `stop` leaves it.

    Methods block, and may be called from any thread but the loop's own. A process that was forked has no such thread:
    there every call is refused, and `stop` does nothing.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]], *, name: str = "facetline") -> None:
        self._make = make
        self._opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None], asyncio.Event, T]] = Future()
        # A daemon: a program that ends without closing is not held up. What was written is in the store by then.
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)
        self._process = os.getpid()
        self._failure: BaseException | None = None
        self._closed = False

    def start(self, limit_s: float | None = None) -> T:
        """Enter the context manager and return what it gives; its errors are raised here.

        Raises:
            TimeoutError: it was not entered within `limit_s` seconds; it is left as soon as it is.
        """
        self._thread.start()
        try:
            _, _, _, entered = self._opened.result(limit_s)
        except BaseException:
            self.stop()  # also after Ctrl-C
            raise
        return entered

    def run(self, make: Callable[[T], Awaitable[R]]) -> R:
        """Run what `make` returns in the loop and return its result; Ctrl-C cancels it.

        Raises:
            RuntimeError: closed, forked, or called from the loop's own thread.
            StoreUnavailable: the context manager has ended by itself.
        """
        self._check()
        loop, _, _, entered = self._opened.result()

        async def work() -> R:
            return await make(entered)

        coroutine = work()
        try:
            waiting = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop was closed just now
            coroutine.close()
            self._check()
            raise
        try:
            return self._result(waiting)
        except CancelledError as error:
            self._thread.join()
            self._check()
            raise RuntimeError(_CLOSED) from error
        except BaseException:
            waiting.cancel()
            raise

    def stop(self, limit_s: float | None = None) -> None:
        """Leave the context manager and wait for the thread's end; harmless when it has been left already.

        Ctrl-C meanwhile, and `limit_s` seconds that are over, cut the leaving short.

        Raises:
            BaseException: what ended the context manager by itself, or what its leaving raised; the first time alone.
        """
        if self._process != os.getpid() or self._thread.ident is None:
            return
        self._closed = True
        self._opened.add_done_callback(self._ask_to_leave)
        try:
            self._thread.join(limit_s)
        except BaseException:
            self._cancel()
            raise
        if self._thread.is_alive():
            self._cancel()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _result(self, waiting: "Future[R]") -> R:
        """Wait for a result, and no longer than the thread lives."""
        while True:
            try:
                return waiting.result(POLL_S)
            except TimeoutError:
                if waiting.done():
                    raise  # the work's own
                if not self._thread.is_alive():
                    waiting.cancel()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("this pipeline was opened before the process was forked; open one in the new process")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call from the pipeline's own event loop would wait for itself: use 'await'")
        if self._closed or self._thread.ident is None:
            raise RuntimeError(_CLOSED)
        if not self._thread.is_alive():
            raise errors.StoreUnavailable(f"the pipeline has ended by itself: {self._failure}") from self._failure

    def _ask_to_leave(
        self, opened: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None], asyncio.Event, T]]"
    ) -> None:
        if opened.cancelled() or opened.exception() is not None:
            return
        loop, _, leave, _ = opened.result()
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(leave.set)

    def _cancel(self) -> None:
        if self._opened.done() and self._opened.exception() is None:
            loop, task, _, _ = self._opened.result()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 (the outermost step of a thread: raised where someone waits)
            if self._opened.done():
                self._failure = error
            else:
                self._opened.set_exception(error)

    async def _main(self) -> None:
        leave = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (asyncio.run makes one)
        async with self._make() as entered:
            self._opened.set_result((asyncio.get_running_loop(), task, leave, entered))
            await leave.wait()


_CLOSED = "this pipeline is closed; open another one"
