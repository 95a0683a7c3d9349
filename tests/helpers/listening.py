"""An application behind a real uvicorn on a free port of this machine, in the test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import uvicorn

from facetline.facets.api.limits import Limits
from facetline.facets.api.protocol import server_options


@dataclass(frozen=True)
class Server:
    """Where an application listens."""

    port: int
    inner: uvicorn.Server

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.inner.server_state.connections)


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def listening(app: object, limits: Limits | None = None) -> AsyncIterator[Server]:
    """Serve while the body runs."""
    options = server_options(limits or Limits())
    server = _Quiet(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1, **options))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.005)
    yield Server(server.servers[0].sockets[0].getsockname()[1], server)
    server.should_exit = True
    await serving
