"""Lists and runs the tools of one caller. Refusals are replies, so that a model can correct its call.

Only `llm_readable` collections are visible: a uri is located among their definitions before it is read, and a job is
shown only if its collection is one of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from facetline.facets import display, errors
from facetline.facets.agents import arguments, reading, replies, tools, writing
from facetline.facets.agents.backends import NEEDS, ToolBackend
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.tools import EXTRAS, Action, Extra, Tool

Run = Callable[[ToolBackend, Tool, Mapping[str, Any]], Awaitable[ToolReply]]
RUNS: Mapping[Action, Run] = {
    "list_collections": reading.list_collections,
    "list_facets": reading.list_facets,
    "get_document": reading.get_document,
    "search": reading.search,
    "query_sql": reading.query_sql,
    "write_document": writing.write_document,
    "delete_document": writing.delete_document,
    "reindex": writing.reindex,
}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools over a backend; `allowed` are the optional ones, as far as the caller has the right to each."""

    backend: ToolBackend
    allowed: tuple[Extra, ...] = ()

    async def tools(self) -> list[Tool]:
        """Return the tools, in a stable order for the same definitions."""
        definitions = await self.backend.definitions()
        return tools.tools_of(
            definitions.by_name.values(), allowed=self._granted(), scoped_caller=self.backend.scope is not None
        )

    async def run(self, name: str, given: object) -> ToolReply:
        """Run a tool; errors are returned as a reply with `is_error`."""
        try:
            tool = _named(name, await self.tools())
            reply = await RUNS[tool.action](self.backend, tool, arguments.read(tool, {} if given is None else given))
        except errors.PipelineError as error:
            reply = replies.refused(error)
        # The tools escape their output within their limits; this is a second line of defence.
        return replace(reply, text=display.block(reply.text), content=display.deep(reply.content))

    def _granted(self) -> list[Extra]:
        rights = self.backend.rights
        return [extra for extra in self.allowed if rights is None or NEEDS[extra] in rights]


def allowed_of(text: str) -> tuple[Extra, ...]:
    """Return the optional tools named by a text such as `sql,write`.

    Raises:
        InvalidSettings: it names another one.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if part not in EXTRAS:
            hint = errors.nearest(part, EXTRAS)
            raise errors.InvalidSettings(f"unknown optional tool {part!r:.80}{hint}; use any of {', '.join(EXTRAS)}")
    return tuple(extra for extra in EXTRAS if extra in found)


def _named(name: str, known: Iterable[Tool]) -> Tool:
    by_name = {tool.name: tool for tool in known}
    if name not in by_name:
        hint = errors.nearest(name[:80], by_name)
        message = f"unknown tool {name[:80]!r}{hint}; tools: {arguments.listed(by_name)}"
        raise errors.InvalidQuery(message, allowed=by_name)
    return by_name[name]
