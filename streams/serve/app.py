"""Parts of `facetline serve` without its sockets: the pipeline, the node, and the application over it.

With the local runtime this process runs the side chain, and the project file's definitions become the active ones. With
Kafka it only produces writes; workers apply and classify them, and the views follow the store.
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
"""Interval of checking the broker, for `/readyz`."""
WORKERS_EVERY_S = 5.0
"""Interval of checking the workers' rows, which workers renew as often: a stopped one is noticed within 20 s."""
QUIET = ("/livez", "/readyz", "/health", "/metrics")
"""Routes that are polled; their requests are logged at debug level."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Serving:
    """A node and the ASGI application over it."""

    node: PipelineNode
    application: Any
    limits: Limits

    def stop(self) -> None:
        """Report from now on that this process is stopping."""
        self.node.state.stopping = True
        self.node.pipeline.store.hurry()

    def halt(self) -> None:
        """Cancel running calls to evaluators without a grace period; their documents are classified later."""
        if self.node.pipeline.work is not None:
            self.node.pipeline.work.side_chain.halt()


@contextlib.asynccontextmanager
async def serving(settings: "Settings", host: str, *, secret: str = "") -> AsyncIterator[Serving]:
    """Open the serving parts for `host`; `secret` is the token of commands on this machine.

    Raises:
        InvalidSettings: the host is not loopback and the store has no token; or the project file is invalid.
        InvalidDefinition, StoreUnavailable, StoreMismatch: see `wiring.open_pipeline`.
    """
    if not settings.config.exists():
        raise errors.InvalidSettings(
            f"{settings.config} does not exist; create it with 'facetline init', or set --config"
        )
    loopback = is_loopback(host)
    async with wiring.open_pipeline(settings, classify=settings.runtime == "local", serves=True) as pipeline:
        _, ever = await pipeline.store.read(credentials.in_force)
        if not loopback and not ever:
            raise errors.InvalidSettings(
                f"host {host} is reachable from other machines, but there is no token; create one with 'facetline token"
                " create --rights read', or serve on 127.0.0.1"
            )
        async with open_node(pipeline, loopback=loopback, secret=secret) as node, _watching(settings, node):
            limits = Limits()
            yield Serving(node, _application(settings, node, loopback=loopback, limits=limits), limits)


def _application(settings: "Settings", node: PipelineNode, *, loopback: bool, limits: Limits) -> Any:
    from facetline.facets.agents import lazy_mcp as agents  # imports FastAPI, which only this command needs
    from facetline.facets.api.application import application
    from facetline.facets.explorer import routes as explorer

    def observe(method: str, route: str, status: int, seconds: float) -> None:
        node.measures.request(method, route, status, seconds)
        write = log.debug if route in QUIET else log.info
        write("request", method=method, route=route, status=status, seconds=round(seconds, 4))

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
    """Check the broker and the workers' rows in the background while the body runs, so that `/readyz` need not wait."""
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
            node.state.broker = await connection_check.why_unreachable(settings.kafka)
        except Exception as error:  # noqa: BLE001 (reported by readiness until the next check succeeds)
            node.state.broker = f"check failed ({type(error).__name__})"
        await asyncio.sleep(BROKER_EVERY_S)


async def _watch_workers(node: PipelineNode) -> None:
    while True:
        try:
            node.state.workers = await node.pipeline.store.read(processes.answering)
        except Exception:  # noqa: BLE001 (the check of the store reports it; checked again)
            node.state.workers = None
        await asyncio.sleep(WORKERS_EVERY_S)
