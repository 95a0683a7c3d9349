"""`grep` and `glob`: lines with a pattern, and uris that fit one."""

from typing import Annotated, Any

import typer

from facetline.streams.cli import options, output, running
from facetline.streams.cli.documents import chosen_facets


def grep(  # a command's parameters are its options
    collection: Annotated[str, typer.Argument(metavar="COLLECTION")],
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="A regular expression (RE2); what is none is taken literally.")
    ],
    chosen: Annotated[
        list[str] | None, typer.Argument(metavar="QUESTION=VALUE", help="Only documents with this answer.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Upper and lower case alike.")] = False,
    context: Annotated[int, typer.Option("--context", "-C", help="Lines before and after, 0 to 5.")] = 0,
    limit: Annotated[int, typer.Option("--limit", help="Lines at most, 1 to 1000.")] = 50,
    glob_: options.Glob = None,
    filter_: options.Filter = None,
    scope: options.Scope = None,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Find lines that match a pattern, in the order of uris. No model runs."""
    facets = chosen_facets(chosen or [])

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            reply = await pipeline.grep(
                collection,
                pattern,
                facets,
                ignore_case=ignore_case,
                context=context,
                limit=limit,
                glob=glob_,
                filter=filter_,
                scope=scope,
            )
        if json_:
            output.result(reply)
        else:
            _show_lines(reply)
        return None

    running.run(work)


def glob(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="[PATTERN]", help="Such as 'tickets/2026-*' or 'docs/**/*.md'; none: every uri."),
    ] = None,
    collection: Annotated[str | None, typer.Option("--collection", help="Only this collection.")] = None,
    scope: options.Scope = None,
    limit: Annotated[int, typer.Option("--limit", help="Uris at most, 1 to 1000.")] = 100,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """List uris whose path matches a pattern: * in a segment, ** across segments, ?, [a-z], {a,b}."""

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            reply = await pipeline.glob(pattern, collection=collection, scope=scope, limit=limit)
        if json_:
            output.result(reply)
            return None
        for uri in reply["uris"]:
            output.text(uri)
        if reply["truncated"]:
            output.note(f"there are more; --limit {min(10 * limit, 1_000)}, or a narrower pattern")
        return None

    running.run(work)


def _show_lines(reply: dict[str, Any]) -> None:
    for line in reply["lines"]:
        first = line["line"] - len(line.get("before", ()))
        for place, text in enumerate(line.get("before", ()), first):
            output.text(f"{line['uri']}-{place}-{text}")
        output.text(f"{line['uri']}:{line['line']}:{line['snippet']}")
        for place, text in enumerate(line.get("after", ()), line["line"] + 1):
            output.text(f"{line['uri']}-{place}-{text}")
    if "taken_as" in reply:
        output.note(f"the pattern is taken literally: {reply['because']}")
    more = ", more lines than shown: --limit" if reply["truncated"] else ""
    documents = reply["documents"]
    output.note(f"{documents} document{'' if documents == 1 else 's'} with such lines{more}")
