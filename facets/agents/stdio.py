"""MCP over standard input and output, for a client that starts `facetline mcp`.

Only the protocol is written to standard output: while it serves, the SDK redirects other output to standard error. When
the collections change, the client is notified: by the handshake's notification, or on its subscription.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from facetline.facets import errors
from facetline.facets.agents import schemas, server
from facetline.facets.agents.pending import Pending, Replies
from facetline.facets.agents.server import Context
from facetline.facets.agents.stdin_lines import StdinLines
from facetline.facets.agents.toolbox import Toolbox

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

LOOK_EVERY_S = 2.0
LISTENERS_MAX = 16

log = structlog.get_logger(__name__)


async def serve(toolbox: Toolbox, *, look_every_s: float = LOOK_EVERY_S) -> None:
    """Serve one client until it closes standard input and all its requests are answered."""
    bus = InMemorySubscriptionBus()
    sessions = _Sessions()

    async def toolbox_of(context: Context) -> Toolbox:
        sessions.seen(context)
        return toolbox

    made = server.server(toolbox_of, listen=ListenHandler(bus, max_subscriptions=LISTENERS_MAX))
    options = made.create_initialization_options(NotificationOptions(tools_changed=True))

    async def changed() -> None:
        await bus.publish(ToolsListChanged())
        await sessions.notify()

    watching = asyncio.create_task(watch(toolbox, changed, look_every_s), name="watch tools")
    pending = Pending()
    lines: Any = pending.lines(StdinLines(os.dup(sys.stdin.fileno())))
    try:
        async with stdio_server(stdin=lines) as (reading, writing):
            await made.run(reading, Replies(writing, pending), options)
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def watch(toolbox: Toolbox, changed: Callable[[], Any], look_every_s: float) -> None:
    """Call `changed` whenever the tools differ from before."""
    known: str | None = None
    while True:
        try:
            found = json.dumps([schemas.schema_of(tool, "mcp") for tool in await toolbox.tools()])
        except errors.PipelineError as error:
            log.warning("agent_tools_unknown", error=error.message)
        else:
            if known is not None and found != known:
                await changed()
            known = found
        await asyncio.sleep(look_every_s)


class _Sessions:
    """The session of the client if its protocol version has a handshake; later versions subscribe by a request."""

    def __init__(self) -> None:
        self._session: ServerSession | None = None

    def seen(self, context: Context) -> None:
        if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            self._session = context.session

    async def notify(self) -> None:
        if self._session is not None:
            await self._session.send_tool_list_changed()
