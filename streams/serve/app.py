"""What `facetline serve` is made of, without its sockets: the pipeline, the node, and the application over it.

Locally this process runs the side chain, and the file's definitions become the active ones. With Kafka it applies
nothing: writes are produced, workers do the rest, and the views follow the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from facetline.facets import errors
from facetline.facets.api.limits import Limits
from facetline.facets.loopback import is_loopback
from facetline.storage import credentials, processes
from facetline.streams import wiring
from facetline.streams.serve.node import PipelineNode, open_node

if TYPE_CHECKING:
    from facetline.streams.settings import Settings

BROKER_EVERY_S = 10.0
"""Between two looks at the broker, which are for `/readyz` alone."""
WORKERS_EVERY_S = 5.0
"""The same for the rows of workers, which renew them as often: so 20 s after its end one is missed."""
QUIET = ("/livez", "/readyz", "/health", "/metrics")
"""Routes that are asked again and again; their requests are logged at debug level."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Serving:
    """A node and the ASGI application over it."""

    node: PipelineNode
    application: Any
    limits: Limits

    def stop(self) -> None:
        """Say from now on that this process is about to end."""
        self.node.standing.stopping = True
        self.node.pipeline.store.hurry()

    def halt(self) -> None:
        """Give calls to evaluators no grace period: what they were about is asked again later."""
        if self.node.pipeline.work is not None:
            self.node.pipeline.work.side_chain.halt()


@contextlib.asynccontextmanager
async def serving(settings: "Settings", host: str, *, secret: str = "") -> AsyncIterator[Serving]:
    """Open everything that is served at `host`; `secret` is the token of commands on this machine.

    Raises:
        InvalidSettings: the host is open to others and the store holds no token; or the file is refused.
        InvalidDefinition, StoreUnavailable, StoreMismatch: what is needed is not there.
    """
    if not settings.config.exists():
        raise errors.InvalidSettings(
            f"there is no {settings.config}; write one with 'facetline init', or give --config"
        )
    loopback = is_loopback(host)
    async with wiring.open_pipeline(settings, classify=settings.runtime == "local", serves=True) as pipeline:
        _, ever = await pipeline.store.read(credentials.in_force)
        if not loopback and not ever:
            raise errors.InvalidSettings(
                f"host {host} can be reached by others, and there is no token yet: make one with 'facetline token"
                " create --rights read', or serve on 127.0.0.1"
            )
        async with open_node(pipeline, loopback=loopback, secret=secret) as node, _watching(settings, node):
            limits = Limits()
            yield Serving(node, _application(settings, node, loopback=loopback, limits=limits), limits)


def _application(settings: "Settings", node: PipelineNode, *, loopback: bool, limits: Limits) -> Any:
    from facetline.facets.agents import lazy_mcp as agents  # FastAPI: only what serves has use for it
    from facetline.facets.api.application import application
    from facetline.facets.explorer import routes as explorer

    def observe(method: str, route: str, status: int, seconds: float) -> None:
        node.measures.request(method, route, status, seconds)
        say = log.debug if route in QUIET else log.info
        say("request", method=method, route=route, status=status, seconds=round(seconds, 4))

    return application(
        node,
        loopback=loopback,
        hosts=settings.hosts,
        origins=settings.origins,
        limits=limits,
        observe=observe,
        parts=(agents.part(allowed=settings.agent_tools), explorer.part),
    )


@contextlib.asynccontextmanager
async def _watching(settings: "Settings", node: PipelineNode) -> AsyncIterator[None]:
    """Keep what the broker and the workers' rows say for `/readyz`, while the body runs: no request waits for them."""
    if settings.runtime == "local":
        yield
        return
    watching = [
        asyncio.create_task(_watch_broker(settings, node), name="broker: watch"),
        asyncio.create_task(_watch_workers(node), name="workers: watch"),
    ]
    try:
        yield
    finally:
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)


async def _watch_broker(settings: "Settings", node: PipelineNode) -> None:
    from facetline.streams.kafka import connection_check

    while True:
        try:
            node.standing.broker = await connection_check.why_unreachable(settings.kafka)
        except Exception as error:  # noqa: BLE001 (the next look may do better; until then readiness says it)
            node.standing.broker = f"cannot be looked at ({type(error).__name__})"
        await asyncio.sleep(BROKER_EVERY_S)


async def _watch_workers(node: PipelineNode) -> None:
    while True:
        try:
            node.standing.workers = await node.pipeline.store.read(processes.answering)
        except Exception:  # noqa: BLE001 (the check of the store says what is wrong; the next look may do better)
            node.standing.workers = None
        await asyncio.sleep(WORKERS_EVERY_S)
