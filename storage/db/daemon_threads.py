"""Threads for blocking calls that never hold the interpreter's exit, whatever a socket, a file or a resolver does.

`ThreadPoolExecutor` joins its threads at exit, so one blocked call keeps a process from stopping.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Work = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """At most `most` threads, each made when there is work that no idle one takes."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished: set[Future[Any]] = set()
        self.closed = False

    @property
    def unfinished(self) -> "set[Future[Any]]":
        """What was submitted and has not ended."""
        with self._lock:
            return set(self._unfinished)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a function in one of the threads."""
        future: Future[T] = Future()
        with self._lock:
            if self.closed:
                raise RuntimeError("the store is closed")
            self._unfinished.add(future)
            grows = len(self._unfinished) > self._threads < self._most
            self._threads += grows
        self._waiting.put((future, lambda: fn(*args, **kwargs)))
        if grows:
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 (Executor's shape)
        """Let the threads end after what has been submitted; waits for none of them."""
        with self._lock:
            already, self.closed = self.closed, True
        for _ in range(0 if already else self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        while (found := self._waiting.get()) is not None:
            future, work = found
            self._run(future, work)
            del found, future, work  # an idle thread keeps nothing alive

    def _run(self, future: "Future[Any]", work: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            self._forget(future)
            return
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (it is raised where the result is awaited)
            self._forget(future)
            future.set_exception(error)
        else:
            self._forget(future)
            future.set_result(result)

    def _forget(self, future: "Future[Any]") -> None:
        with self._lock:
            self._unfinished.discard(future)
