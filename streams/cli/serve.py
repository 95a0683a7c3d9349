"""`serve`: the HTTP API, the page and the agents' tools over one store, until it is stopped."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Iterator, Sequence

    from facetline.streams.local_server import DataLock
    from facetline.streams.serve.app import Serving
    from facetline.streams.settings import Settings

HOST, PORT = "127.0.0.1", 8080


def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on; open to others only with tokens.")] = HOST,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0: a free one.")] = PORT,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Serve the API, the page and the agents' tools until stopped."""

    async def work() -> int | None:
        from facetline.streams import local_server

        settings = options.settings(config, folder)
        with contextlib.ExitStack() as stack:
            lock = (
                stack.enter_context(local_server.locked(settings.data_folder)) if settings.runtime == "local" else None
            )
            listener = stack.enter_context(_bound(host, port))
            await _serve(settings, host, listener, lock)
        return None

    running.run(work)


async def _serve(settings: "Settings", host: str, listener: "socket.socket", lock: "DataLock | None") -> None:
    """Serve on a bound socket until a signal comes.

    The first one: `/readyz` fails, nothing new is taken, and running requests and calls get their grace period. The
    second one ends them as well.
    """
    import asyncio

    from facetline.streams.serve.app import serving
    from facetline.streams.tasks import stop_on_signals

    stop, working = asyncio.Event(), asyncio.current_task()
    opened: list[Serving] = []

    def first() -> None:
        for each in opened:
            each.stop()
        if not opened and working is not None:  # it may wait for a store that is away
            working.cancel()

    def at_once() -> None:
        for each in opened:
            each.halt()

    with stop_on_signals(stop, at_once=at_once, first=first), _stopped_while_opening(stop, opened):
        async with serving(settings, host, secret="" if lock is None else lock.secret) as made:
            opened.append(made)
            server = _server(made, settings)
            task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
            try:
                listening = asyncio.create_task(server.listening.wait(), name="serve: wait for the socket")
                await asyncio.wait({listening, task}, return_when=asyncio.FIRST_COMPLETED)
                listening.cancel()
                if task.done():
                    await task
                url = _url(host, listener.getsockname()[1])
                if lock is not None:
                    lock.publish(_url(_reachable(host), listener.getsockname()[1]), made.node.pipeline.store.store_id)
                output.text(f"serving on {url}")
                stopped = asyncio.create_task(stop.wait(), name="serve: wait for stop")
                await asyncio.wait({stopped, task}, return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
            finally:
                made.stop()
                if lock is not None:
                    lock.withdraw()
                server.should_exit = True
                await asyncio.wait({task})  # a second signal ends this wait; a cancelled server might swallow it
                await task


@contextlib.contextmanager
def _stopped_while_opening(stop: "asyncio.Event", opened: "Sequence[Serving]") -> "Iterator[None]":
    """End without an error when the body was cancelled by the first signal, before anything was open."""
    import asyncio

    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if opened or not stop.is_set() or task is None or task.uncancel():
            raise


def _server(made: "Serving", settings: "Settings") -> Any:
    import asyncio

    import uvicorn

    from facetline.facets.api.protocol import server_options

    class Server(uvicorn.Server):
        listening = asyncio.Event()

        async def startup(self, sockets: "list[socket.socket] | None" = None) -> None:
            await super().startup(sockets)
            self.listening.set()

        @contextlib.contextmanager
        def capture_signals(self) -> "Iterator[None]":
            yield  # signals are ours

    return Server(
        uvicorn.Config(
            made.application,
            log_config=None,
            timeout_graceful_shutdown=max(1, round(settings.grace_s)),
            **server_options(made.limits),
        )
    )


def _bound(host: str, port: int) -> "socket.socket":
    """Return a socket bound to an address.

    Raises:
        InvalidSettings: it cannot be had.
    """
    import errno
    import socket

    from facetline.facets import errors

    bare = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # The protocol is named: asyncio sends at once (TCP_NODELAY) only where it is. Otherwise a reply's head waits
        # for the client's acknowledgement before its body goes, 40 ms.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        way_out = "something listens there already; give another --port" if taken else f"{error.strerror or error}"
        raise errors.InvalidSettings(f"{_url(host, port)} cannot be served: {way_out}") from error
    return made


def _reachable(host: str) -> str:
    """Return where a command on this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host)  # noqa: S104 (not listened on here)


def _url(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"
