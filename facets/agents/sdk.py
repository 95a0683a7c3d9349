"""Tools for your own agent, in Python: schemas for a model's API, `run_tool` for its loop, functions for frameworks.

```python
with Client("http://127.0.0.1:8080", token=token) as client:
    tools = Tools(client)
    tools.schemas("openai")                                     # give these to the model
    tools.run_tool("search_tickets", '{"topic": "billing"}')    # what it asks for; the text is what it is told
    tools.functions()                                           # or give these to a framework
```
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from facetline.facets import errors
from facetline.facets.agents import functions, schemas
from facetline.facets.agents.backends import Source
from facetline.facets.agents.http_backend import ClientSource
from facetline.facets.agents.replies import ToolReply, refused
from facetline.facets.agents.schemas import Format
from facetline.facets.agents.toolbox import Toolbox
from facetline.facets.agents.tools import Extra, Tool
from facetline.facets.client.client import AsyncClient, Client

T = TypeVar("T")


class Tools:
    """The tools of one client. `allowed`: those beside reading, out of `sql`, `write`, `delete`, `reindex`."""

    def __init__(self, client: Client, *, allowed: Iterable[Extra] = ()) -> None:
        self._toolbox = Toolbox(ClientSource(client), tuple(allowed))

    def tools(self) -> list[Tool]:
        """Return the tools, always in the same order.

        Raises:
            PipelineError: the server does not answer, or refuses.
        """
        return _finish(self._toolbox.tools())

    def schemas(self, how: Format = "openai") -> list[dict[str, Any]]:
        """Return the tools as a model's API wants them; raises as `tools`."""
        return [schemas.written(tool, how) for tool in self.tools()]

    def run_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Return what a tool says; an error is said, too, for the model to mend. Arguments may be JSON text."""
        return self.call(name, arguments).text

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolReply:
        """Return a tool's whole reply: `text`, `content` (the same as data), `is_error`."""
        given = _given(arguments)
        return given if isinstance(given, ToolReply) else _finish(self._toolbox.run(name, given))

    def functions(self) -> list[Callable[..., str]]:
        """Return the tools as plain functions with signature and docstring, such as LangChain's `tool` takes."""
        return [functions.function_of(tool, self.run_tool) for tool in self.tools()]


class AsyncTools:
    """`Tools`, to be awaited, over an `AsyncClient` or any other source, such as a node in this process."""

    def __init__(self, source: AsyncClient | Source, *, allowed: Iterable[Extra] = ()) -> None:
        found = ClientSource(source) if isinstance(source, AsyncClient) else source
        self._toolbox = Toolbox(found, tuple(allowed))

    async def tools(self) -> list[Tool]:
        """Return the tools; as `Tools.tools`."""
        return await self._toolbox.tools()

    async def schemas(self, how: Format = "openai") -> list[dict[str, Any]]:
        """Return the tools as a model's API wants them."""
        return [schemas.written(tool, how) for tool in await self.tools()]

    async def run_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Return what a tool says."""
        return (await self.call(name, arguments)).text

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolReply:
        """Return a tool's whole reply."""
        given = _given(arguments)
        return given if isinstance(given, ToolReply) else await self._toolbox.run(name, given)

    async def functions(self) -> list[Callable[..., Coroutine[Any, Any, str]]]:
        """Return the tools as coroutine functions with signature and docstring."""
        return [functions.coroutine_of(tool, self.run_tool) for tool in await self.tools()]


def _given(arguments: Mapping[str, Any] | str | None) -> Any:
    """Return arguments as a mapping, or what a model that sent no JSON is told."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        return refused(errors.InvalidQuery(f"the arguments are not JSON: {error}"))


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine that never waits comes to: over a `Client` every call blocks instead."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    work.close()
    raise RuntimeError("a tool over a Client waited for an event loop")
