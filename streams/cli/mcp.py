"""`mcp` and `tools`: what agents are given, over standard input and output, or written down."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from facetline.facets.agents.backends import ToolBackend
    from facetline.facets.agents.tools import Extra
    from facetline.facets.definitions import Definition
    from facetline.streams.settings import Settings

BUILD_S = 60.0
"""How long an agent's first call may wait for the views, which are built when the command starts."""
Format = Literal["mcp", "openai", "openai-responses", "anthropic"]
Url = Annotated[
    str | None, typer.Option("--url", help="A running serve to ask; by default what serves the data folder, or none.")
]
Allow = Annotated[
    str | None, typer.Option("--allow", help="Tools beside reading, with commas: sql, write, delete, reindex.")
]


def mcp(url: Url = None, allow: Allow = None, config: options.Config = None, folder: options.Folder = None) -> None:
    """Serve one agent over standard input and output (MCP), until it closes them."""

    async def work() -> int | None:
        from facetline.facets.agents import stdio
        from facetline.facets.agents.toolbox import Toolbox

        settings = options.settings(config, folder)
        allowed = _allowed(settings, allow)
        async with _source(settings, url, allowed) as source:
            await _check(source)
            await stdio.serve(Toolbox(source, allowed))
        return None

    running.run(work)


def tools(
    collection: Annotated[str | None, typer.Argument(metavar="COLLECTION", help="Only this one's search.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Whose form the schemas have.")] = "mcp",
    url: Url = None,
    allow: Allow = None,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Print the schemas of the tools that agents have, as a JSON list."""

    async def work() -> int | None:
        from facetline.facets.agents import schemas, tools

        settings = options.settings(config, folder)
        found = await _definitions(settings, url)
        if collection is not None and collection not in found:
            raise _not_shown(collection, list(found))
        _note_none(found)
        shown = [found[collection]] if collection is not None else found.values()
        listed = tools.tools_of(shown, allowed=_allowed(settings, allow))
        output.result([schemas.schema_of(tool, format_) for tool in listed])
        return None

    running.run(work)


async def _check(source: "ToolBackend") -> None:
    """Say before any client's word what will not pass, such as a token that is not valid; what may pass is a note."""
    from facetline.facets import errors

    try:
        _note_none((await source.definitions()).by_name)
    except errors.TransientError as error:
        output.note(f"warning: {error.message}")


def _note_none(found: "Mapping[str, Definition]") -> None:
    if not found:
        output.note("warning: agents see no collection: put llm_readable = true into those that they may search")


async def _definitions(settings: "Settings", url: str | None) -> "Mapping[str, Definition]":
    """Return the active definitions that agents may see; where there is no data yet, the file's."""
    from facetline.facets import errors

    try:
        async with _source(settings, url, ()) as source:
            return (await source.definitions()).by_name
    except errors.NotFound:
        if not settings.config.exists():
            raise
    from facetline.streams import project

    loaded = project.load_project(settings)
    await loaded.close()
    return {name: each for name, each in loaded.by_name.items() if each.llm_readable}


def _allowed(settings: "Settings", text: str | None) -> "tuple[Extra, ...]":
    from facetline.facets.agents import toolbox

    return settings.agent_tools if text is None else toolbox.allowed_of(text)


def _not_shown(collection: str, known: list[str]) -> Exception:
    from facetline.facets import errors

    hint = errors.nearest(collection, known)
    return errors.UnknownCollection(
        f"there is no collection '{collection:.80}' that agents may see{hint}; they see {', '.join(known) or 'none'}:"
        " those with llm_readable = true",
        allowed=known,
    )


@contextlib.asynccontextmanager
async def _source(settings: "Settings", url: str | None, allowed: "tuple[Extra, ...]") -> "AsyncIterator[ToolBackend]":
    """Open what the tools ask: a server where one is named or serves the data folder, else a node of our own."""
    from facetline.facets.agents.backends import LocalToolBackend
    from facetline.facets.backend import LOCAL

    server = _server(settings, url)
    if server is not None:
        from facetline.facets.agents.http_backend import HttpToolBackend
        from facetline.facets.client.client import AsyncClient

        async with AsyncClient(server[0], token=server[1]) as client:
            yield HttpToolBackend(client)
        return
    from facetline.streams import wiring
    from facetline.streams.serve.node import open_node

    changes = any(extra != "sql" for extra in allowed)
    async with (
        wiring.open_pipeline(settings, classify=changes, writes=changes) as pipeline,
        open_node(pipeline) as node,
    ):
        yield LocalToolBackend(node, LOCAL, patience_s=BUILD_S)


def _server(settings: "Settings", url: str | None) -> tuple[str, str | None] | None:
    """Return the address and token of the server to ask; None: there is none."""
    from facetline.streams import local_server

    named = url or settings.url
    if named is not None:
        return named, None if settings.token is None else settings.token.get_secret_value()
    holder = local_server.holder(settings.data_folder) if settings.runtime == "local" else None
    return None if holder is None else (holder.url, holder.secret)
