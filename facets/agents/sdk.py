"""Tools for Python agents: schemas for a model's API, `run_tool` for an agent loop, functions for frameworks.

```python
with Client("http://127.0.0.1:8080", token=token) as client:
    tools = Tools(client)
    tools.schemas("openai")                                     # pass these to the model
    tools.run_tool("search_tickets", '{"topic": "billing"}')    # run its tool call; returns text
    tools.functions()                                           # or pass these to a framework
```
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from facetline.facets import errors
from facetline.facets.agents import functions, schemas
from facetline.facets.agents.backends import ToolBackend
from facetline.facets.agents.http_backend import HttpToolBackend
from facetline.facets.agents.replies import ToolReply, refused
from facetline.facets.agents.schemas import Format
from facetline.facets.agents.toolbox import Toolbox
from facetline.facets.agents.tools import Extra, Tool
from facetline.facets.client.client import AsyncClient, Client

T = TypeVar("T")


class Tools:
    """Tools over a blocking client. `allowed`: optional tools, out of `sql`, `write`, `delete`, `reindex`."""

    def __init__(self, client: Client, *, allowed: Iterable[Extra] = ()) -> None:
        self._toolbox = Toolbox(HttpToolBackend(client), tuple(allowed))

    def tools(self) -> list[Tool]:
        """Return the tools, always in the same order.

        Raises:
            PipelineError: the server does not answer, or refuses the request.
        """
        return _finish(self._toolbox.tools())

    def schemas(self, how: Format = "openai") -> list[dict[str, Any]]:
        """Return the tools' schemas for a model's API; raises as `tools`."""
        return [schemas.schema_of(tool, how) for tool in self.tools()]

    def run_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Return a tool's result, or its error, as text for the model. Arguments may be JSON text."""
        return self.call(name, arguments).text

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolReply:
        """Return a tool's reply: `text`, `content` (the same as data), `is_error`."""
        given = _given(arguments)
        return given if isinstance(given, ToolReply) else _finish(self._toolbox.run(name, given))

    def functions(self) -> list[Callable[..., str]]:
        """Return the tools as plain functions with signature and docstring, for example for LangChain's `tool`."""
        return [functions.function_of(tool, self.run_tool) for tool in self.tools()]


class AsyncTools:
    """Asynchronous `Tools` over an `AsyncClient` or another `ToolBackend`."""

    def __init__(self, source: AsyncClient | ToolBackend, *, allowed: Iterable[Extra] = ()) -> None:
        found = HttpToolBackend(source) if isinstance(source, AsyncClient) else source
        self._toolbox = Toolbox(found, tuple(allowed))

    async def tools(self) -> list[Tool]:
        """Return the tools; as `Tools.tools`."""
        return await self._toolbox.tools()

    async def schemas(self, how: Format = "openai") -> list[dict[str, Any]]:
        """Return the tools' schemas for a model's API."""
        return [schemas.schema_of(tool, how) for tool in await self.tools()]

    async def run_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Return a tool's result as text."""
        return (await self.call(name, arguments)).text

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolReply:
        """Return a tool's reply."""
        given = _given(arguments)
        return given if isinstance(given, ToolReply) else await self._toolbox.run(name, given)

    async def functions(self) -> list[Callable[..., Coroutine[Any, Any, str]]]:
        """Return the tools as coroutine functions with signature and docstring."""
        return [functions.coroutine_of(tool, self.run_tool) for tool in await self.tools()]


def _given(arguments: Mapping[str, Any] | str | None) -> Any:
    """Return the arguments as a mapping, or an error reply if they are not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        return refused(errors.InvalidQuery(f"the arguments are not JSON: {error}"))


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends: over a `Client` each call blocks instead."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    work.close()
    raise RuntimeError("a tool over a Client waited for an event loop")
