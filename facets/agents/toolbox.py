"""The toolbox: the tools of one caller, listed and run. Every refusal is a reply that a model can mend itself by.

Nothing outside the `llm_readable` collections exists here: a uri is located among their definitions before it is asked
for, a job is shown when its collection is one of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from facetline.facets import display, errors
from facetline.facets.agents import arguments, reading, replies, tools, writing
from facetline.facets.agents.backends import NEEDS, Source
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.tools import EXTRAS, Does, Extra, Tool

Run = Callable[[Source, Tool, Mapping[str, Any]], Awaitable[ToolReply]]
RUNS: Mapping[Does, Run] = {
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
    """Tools over a source; `allowed` are those beside reading, as far as the caller has the right to each."""

    source: Source
    allowed: tuple[Extra, ...] = ()

    async def tools(self) -> list[Tool]:
        """Return the tools, always in the same order while the definitions stay."""
        definitions = await self.source.definitions()
        return tools.tools_of(
            definitions.by_name.values(), allowed=self._granted(), scoped_caller=self.source.scope is not None
        )

    async def run(self, name: str, given: object) -> ToolReply:
        """Run a tool; what is wrong with the call, or cannot be done now, is said in the reply."""
        try:
            tool = _named(name, await self.tools())
            reply = await RUNS[tool.does](self.source, tool, arguments.read(tool, {} if given is None else given))
        except errors.PipelineError as error:
            reply = replies.refused(error)
        # The tools show what they say as `display` does, within their bounds; this is for what one of them forgets.
        return replace(reply, text=display.block(reply.text), content=display.deep(reply.content))

    def _granted(self) -> list[Extra]:
        rights = self.source.rights
        return [extra for extra in self.allowed if rights is None or NEEDS[extra] in rights]


def allowed_of(text: str) -> tuple[Extra, ...]:
    """Return the tools beside reading that a text such as `sql,write` names.

    Raises:
        InvalidSettings: it names something else.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if part not in EXTRAS:
            hint = errors.nearest(part, EXTRAS)
            raise errors.InvalidSettings(f"{part!r:.80} is no tool that can be allowed{hint}; {', '.join(EXTRAS)} are")
    return tuple(extra for extra in EXTRAS if extra in found)


def _named(name: str, known: Iterable[Tool]) -> Tool:
    by_name = {tool.name: tool for tool in known}
    if name not in by_name:
        hint = errors.nearest(name[:80], by_name)
        message = f"there is no tool {name[:80]!r}{hint}; there are {arguments.listed(by_name)}"
        raise errors.InvalidQuery(message, allowed=by_name)
    return by_name[name]
