"""The bound on replies in litellm's own HTTP clients, for the requests that no adapter of ours sends.

litellm makes its httpx clients in three functions and has no setting for what they read. `install` wraps those
functions, so that each client they make has two of httpx's event hooks: one asks for a reply without compression, the
other counts what is read of it. Outside of `bounded` the hooks do nothing: other users of litellm in this process
reads as before.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from facetline.evaluators.litellm_adapter.reply_bound import Reading
from facetline.facets.errors import InvalidAnswer

if TYPE_CHECKING:
    import httpx

PLACES = (
    ("litellm.llms.custom_httpx.http_handler", "AsyncHTTPHandler", "create_client"),
    ("litellm.llms.custom_httpx.http_handler", "HTTPHandler", "create_client"),
    ("litellm.llms.openai.common_utils", "BaseOpenAILLM", "_get_async_http_client"),
)
"""Where litellm makes clients: for its own senders, for those that run in a thread, and for OpenAI's library."""


@dataclass(slots=True)
class Bound:
    """Of one call: how much is read of a reply, and what was wrong with one."""

    bytes_max: int
    problem: InvalidAnswer | None = None

    def start(self, response: "httpx.Response") -> Reading:
        """Begin to read; what comes out of it is decompressed."""
        declared = response.headers.get("content-length", "")
        coding = response.headers.pop("content-encoding", "")
        with self._noting():
            return Reading(coding, int(declared) if declared.isdecimal() else None, self.bytes_max)

    def take(self, reading: Reading, piece: bytes) -> bytes:
        """Return a piece decompressed."""
        with self._noting():
            return reading.take(piece)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep the problem: litellm makes an error of its own of whatever is raised below it."""
        try:
            yield
        except InvalidAnswer as error:
            self.problem = error
            raise


_bound: ContextVar[Bound | None] = ContextVar("reply_bound", default=None)


@contextlib.contextmanager
def bounded(bytes_max: int) -> Iterator[None]:
    """Read at most so many bytes of each reply to a request that is sent in here.

    Raises:
        InvalidAnswer: one was longer, or compressed in a way that cannot be read, whatever litellm made of that.
    """
    bound = Bound(bytes_max)
    token = _bound.set(bound)
    try:
        yield
    except Exception as error:
        if bound.problem is not None and error is not bound.problem:
            raise bound.problem from error
        raise
    finally:
        _bound.reset(token)
    if bound.problem is not None:
        raise bound.problem


def install() -> None:
    """Wrap the functions in which litellm makes its clients; once a process, after litellm was loaded."""
    import importlib

    for module, owner_name, name in PLACES:
        owner = getattr(importlib.import_module(module), owner_name)
        made = vars(owner)[name]
        if isinstance(made, staticmethod):
            setattr(owner, name, staticmethod(_watching(made.__func__)))
        else:
            setattr(owner, name, _watching(made))


def _watching(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `make`, whose clients read no more than they may."""

    @functools.wraps(make)
    def made(*args: Any, **more: Any) -> Any:
        import httpx

        client = make(*args, **more)
        is_async = isinstance(client, httpx.AsyncClient)
        ours = (_ask_plain_async, _count_async) if is_async else (_ask_plain, _count)
        hooks = client.event_hooks
        if ours[0] not in hooks["request"]:  # some functions return a client that they made before
            client.event_hooks = {
                "request": [*hooks["request"], ours[0]],
                "response": [ours[1], *hooks["response"]],  # the first, so that no other reads past the bound
            }
        return client

    return made


def _ask_plain(request: "httpx.Request") -> None:
    if _bound.get() is not None:
        request.headers["accept-encoding"] = "identity"


async def _ask_plain_async(request: "httpx.Request") -> None:
    _ask_plain(request)


def _count(response: "httpx.Response") -> None:
    bound = _bound.get()
    if bound is not None:
        response.stream = _stream_types()[0](response.stream, bound, bound.start(response))


async def _count_async(response: "httpx.Response") -> None:
    bound = _bound.get()
    if bound is not None:
        response.stream = _stream_types()[1](response.stream, bound, bound.start(response))


@functools.cache
def _stream_types() -> tuple[Any, Any]:
    """Return the bounded streams of a body, for a thread and for a loop; httpx is loaded with litellm, not before."""
    import httpx

    class Stream(httpx.SyncByteStream):
        def __init__(self, inner: Any, bound: Bound, reading: Reading) -> None:
            self._inner, self._bound, self._reading = inner, bound, reading

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._inner:
                yield self._bound.take(self._reading, piece)

        def close(self) -> None:
            self._inner.close()

    class AsyncStream(httpx.AsyncByteStream):
        def __init__(self, inner: Any, bound: Bound, reading: Reading) -> None:
            self._inner, self._bound, self._reading = inner, bound, reading

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._inner:
                yield self._bound.take(self._reading, piece)

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Stream, AsyncStream
