"""What a worker shows over HTTP: `/livez`, `/readyz` and `/metrics`. It reads, and changes nothing.

Served by the worker's own event loop: one that is stuck does not answer, and that is the answer. On a loopback address
only requests for a loopback host are answered, so that no web page can read it by a name of its own.
"""

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import exposition

from facetline.facets import errors
from facetline.facets.loopback import is_loopback
from facetline.streams.monitor import health, metrics
from facetline.streams.monitor.health import Check
from facetline.streams.monitor.observer import Observer
from facetline.streams.settings import Settings, listen_address

PORTS_TRIED = 10
"""Without a configured address, this many workers may run on a machine, each on the next port."""
STOP_S = 1.0

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(settings: Settings, observer: Observer) -> AsyncIterator[tuple[str, int] | None]:
    """Serve while the body runs; yield the address, None when it is turned off.

    Raises:
        InvalidSettings: the address that was set cannot be had.
    """
    address = listen_address(settings.worker_http)
    if address is None:
        yield None
        return
    host, port = address
    chosen = "worker_http" in settings.model_fields_set
    runner = web.AppRunner(
        _application(observer, loopback=is_loopback(host)),
        handle_signals=False,
        access_log=None,
        shutdown_timeout=STOP_S,
    )
    await runner.setup()
    try:
        if await _listen(runner, host, [port] if chosen else range(port, port + PORTS_TRIED), needed=chosen):
            found = runner.addresses[0][:2]
            log.info("worker_http_started", host=found[0], port=found[1])
            yield found
        else:
            log.warning("worker_http_off", host=host, port=port, fix="set worker_http to another address, or off")
            yield None
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, ports: Iterable[int], *, needed: bool) -> bool:
    """Listen on the first port that is free."""
    for port in ports:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            if not needed and error.errno == errno.EADDRINUSE:
                continue
            taken = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror or error}"
            raise errors.InvalidSettings(
                f"worker_http: {host}:{port} {taken}; set FACETLINE_WORKER_HTTP to another address, with port 0 for any"
                " free one, or to off"
            ) from error
        return True
    return False


def _application(observer: Observer, *, loopback: bool) -> web.Application:
    async def livez(_request: web.Request) -> web.Response:
        return _health("alive", health.alive(observer.members), verbose=True)

    async def readyz(request: web.Request) -> web.Response:
        checks = health.ready(observer.members, await observer.look())
        return _health("ready", checks, verbose="verbose" in request.query)

    async def metrics_(request: web.Request) -> web.Response:
        made = metrics.page(observer.members, await observer.look_closely())
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(made), headers={"Content-Type": content_type})

    application = web.Application(middlewares=[_only_loopback] if loopback else [])
    application.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics_)])
    return application


@web.middleware
async def _only_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    named = request.headers.get("Host")
    if named is not None and not is_loopback(named.rsplit(":", 1)[0] if not named.endswith("]") else named):
        return _problem(403, "foreign host", f"this address answers for loopback hosts only, not for {named!r}", {})
    return await handler(request)


def _health(word: str, checks: Sequence[Check], *, verbose: bool) -> web.Response:
    level = health.level(checks)
    wrong = [check for check in checks if check.level != "ok"]
    shown = {"checks": [_shown(check) for check in (checks if verbose else wrong)]}
    if level == "failed":
        message = "; ".join(f"{check.name}: {check.detail}" for check in wrong if check.level == "failed")
        return _problem(503, f"not {word}", message, shown)
    return web.json_response({"status": word if level == "ok" else level, **shown})


def _shown(check: Check) -> dict[str, str]:
    return {"name": check.name, "level": check.level, "detail": check.detail}


def _problem(status: int, title: str, detail: str, more: dict[str, Any]) -> web.Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return web.json_response(body, status=status, content_type="application/problem+json")
