"""The agents' endpoint of a server: made when the first agent comes, for all that wait; it ends with the server."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import scripted_node
from polling import eventually
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from facetline.facets.agents import lazy_mcp
from facetline.facets.api.application import Part, application

LISTED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream"}
STARTED = """
import sys
from facetline.facets.api.limits import Limits
from facetline.streams.serve import app as serving
from facetline.streams.settings import Settings
serving._application(Settings(), None, loopback=True, limits=Limits())
print("mcp" in sys.modules)
"""


def test_a_start_does_not_import_the_sdk():
    """The whole application of a server is made without the MCP SDK, which is imported for the first agent."""
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "False\n"


async def test_all_who_come_first_are_answered_and_nothing_is_left():
    """Requests that come while the endpoint is made are answered by it, one that goes away hinders none."""
    gate = application(scripted_node.ScriptedNode(), loopback=True, parts=[lazy_mcp.part()])
    async with (
        gate.application.router.lifespan_context(gate.application),
        httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://127.0.0.1", headers=HEADERS) as client,
    ):
        gone = asyncio.create_task(client.post("/mcp", json=LISTED))
        await eventually(lambda: _making() != [], deadline_s=10)
        waiting = [asyncio.create_task(client.post("/mcp", json=LISTED)) for _ in range(4)]
        gone.cancel()
        replies = await asyncio.gather(*waiting)
        refused = await client.get("/mcp")

    assert [reply.status_code for reply in replies] == [200] * 4
    assert {tuple(reply.json()) for reply in replies} == {("jsonrpc", "id", "result")}
    assert refused.status_code == 405
    assert _making() == []


class Breaking(lazy_mcp.LazyEndpoint):
    """An endpoint whose surroundings break when told to, the first time; `made` counts how often it was made."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.breaks = asyncio.Event()
        self.made = 0

    def _make(self) -> Part:
        self.made += 1
        answer = Route(lazy_mcp.PATH, lambda _request: Response("answered"), methods=["POST"])
        return Part([answer], self._breaking if self.made == 1 else contextlib.nullcontext)

    @contextlib.asynccontextmanager
    async def _breaking(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._break())
            yield

    async def _break(self) -> None:
        await self.breaks.wait()
        raise RuntimeError


async def test_an_endpoint_that_broke_is_made_anew():
    """After a fault that ends it, the next agent is answered by a new one."""
    endpoint = Breaking()
    app = Starlette(routes=[Route(lazy_mcp.PATH, endpoint)])
    async with (
        endpoint.running(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        before = await client.post("/mcp")
        endpoint.breaks.set()
        await eventually(lambda: _making() == [], what="it has ended")

        after = await client.post("/mcp")

    assert (before.text, after.text, endpoint.made) == ("answered", "answered", 2)


def _making() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "agents"]
