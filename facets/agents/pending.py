"""Delays the end of standard input until all requests of the client are answered.

A client may write all requests and close its output at once, as a shell pipe does; the SDK then drops requests that it
has not answered. Here the SDK sees the end only after each request is answered, cancelled, or has timed out.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from types import TracebackType
from typing import Self

import structlog
from mcp import types
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

END_MAX_S = 90.0
"""After the end of input; longer than the first call waits for the views to be built."""
STAYS_OPEN = "subscriptions/listen"
"""A request whose reply comes only when the client cancels it: not waited for."""
CANCELLED = "notifications/cancelled"

log = structlog.get_logger(__name__)


class Pending:
    """Requests without a reply, counted by `lines` and `Replies`."""

    def __init__(self, *, end_max_s: float = END_MAX_S) -> None:
        self._open: Counter[types.RequestId] = Counter()
        self._none = asyncio.Event()
        self._none.set()
        self._end_max_s = end_max_s

    async def lines(self, source: AsyncIterable[str]) -> AsyncIterator[str]:
        """Yield the client's lines; end when all requests among them are answered."""
        async for line in source:
            self._read(line)
            yield line
        try:
            await asyncio.wait_for(self._none.wait(), self._end_max_s)
        except TimeoutError:
            log.warning("agent_requests_not_answered", requests=self._open.total(), waited_s=self._end_max_s)

    def answered(self, request_id: "types.RequestId | None") -> None:
        """Record that a request is answered or cancelled."""
        if request_id is None or self._open[request_id] <= 1:
            self._open.pop(request_id, None)  # type: ignore[arg-type]
        else:
            self._open[request_id] -= 1
        if not self._open:
            self._none.set()

    def _read(self, line: str) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            return  # not a request: the SDK reports it
        if isinstance(message, types.JSONRPCRequest) and message.method != STAYS_OPEN:
            self._open[message.id] += 1
            self._none.clear()
        elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            self.answered((message.params or {}).get("requestId"))


class Replies:
    """A stream to the client that records which requests it answers."""

    def __init__(self, inner: WriteStream[SessionMessage], pending: Pending) -> None:
        self._inner = inner
        self._pending = pending

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._pending.answered(item.message.id)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        """Return the stream."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.aclose()
