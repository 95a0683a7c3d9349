"""`sql`: one SELECT over the answers, in a separate process."""

import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from facetline.facets.export import spreadsheet
from facetline.streams.cli import documents, export, options, output, running

if TYPE_CHECKING:
    from facetline.facets.sql_sandbox.sandbox import SqlBox
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.settings import Settings

Format = Literal["table", "csv", "ndjson", "json"]
TEXT_BYTES_MAX = 1 << 20
"""Read of standard input at most; the limit of a statement is lower, and checked later."""
SERVED_MAX = 10_000
"""Rows that the API returns at once."""
CELL_SHOWN = 60
"""Characters of a cell in a table."""
DECIMALS_SHOWN = 6
"""Of a number in a table."""


def sql(
    text: Annotated[
        str, typer.Argument(metavar="SELECT", help="One SELECT; '-' reads it from standard input.", show_default=False)
    ],
    params: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="The value of $NAME; may be given again.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Rows at most: 1000, in csv and ndjson all.", show_default=False)
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long it may run, 60s at most.")] = "30s",
    fields: options.Fields = None,
    format_: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = "table",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Run one SELECT over the collections, each a table, and over `answers`; nothing can be changed by it."""
    statement = _statement(text)
    given = dict(_parameter(pair) for pair in params or ())
    timeout_ms = round(documents.seconds(timeout) * 1000)

    asked = Asked(statement, given, limit, timeout_ms, "json" if json_ else format_, fields)

    async def work() -> int | None:
        settings = options.settings(config, folder)
        if asked.shape in {"table", "json"} and await _by_server(settings, asked):
            return None
        from facetline.streams import wiring

        async with wiring.open_pipeline(settings, writes=False) as pipeline:
            with tempfile.TemporaryDirectory(prefix="facetline-sql-") as private:
                await _run(pipeline, Path(private), asked)
        return None

    running.run(work)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement, and how its rows are printed; `limit` None: as many as is usual for that."""

    text: str
    params: dict[str, Any]
    limit: int | None
    timeout_ms: int
    shape: Format
    fields: Literal["body"] | None


async def _by_server(settings: "Settings", asked: Asked) -> bool:
    """Have the server of this data folder run it, where there is one: its views are built already."""
    from facetline.facets.sql_sandbox import limits
    from facetline.streams import local_server

    limit = limits.LIMIT_DEFAULT if asked.limit is None else asked.limit
    holder = local_server.holder(settings.data_folder) if settings.runtime == "local" else None
    if holder is None or limit > SERVED_MAX:
        return False
    from facetline.facets.client.client import AsyncClient

    async with AsyncClient(holder.url, token=holder.secret) as client:
        reply = await client.sql(
            asked.text, asked.params, limit=limit, timeout_ms=asked.timeout_ms, fields=asked.fields
        )
    _show(reply, asked.shape)
    return True


async def _run(pipeline: "Pipeline", private: Path, asked: Asked) -> None:
    from facetline.facets.sql_sandbox.sandbox import SqlBox
    from facetline.streams.views import exports

    names = _named(asked.text, list((await pipeline.definitions()).by_name))
    followers = await export.followers_of(pipeline, names, private)
    texts_of = pipeline.store if asked.fields else None
    box = SqlBox(exports.Source(exports.followed(pipeline.store, followers), texts_of), private, processes=1)
    try:
        await box.prepare()
        await _print(box, asked)
    finally:
        await box.aclose()
        for follower in followers:
            await follower.close()


async def _print(box: "SqlBox", asked: Asked) -> None:
    from facetline.facets.sql_sandbox import limits

    if asked.shape in {"csv", "ndjson"}:
        frames = box.frames(asked.text, asked.params, limit=asked.limit, timeout_ms=asked.timeout_ms)
        await (_csv if asked.shape == "csv" else _ndjson)(frames)
        return
    limit = limits.LIMIT_DEFAULT if asked.limit is None else asked.limit
    _show(await box.run(asked.text, asked.params, limit=limit, timeout_ms=asked.timeout_ms), asked.shape)


def _show(reply: dict[str, Any], shape: Format) -> None:
    if shape == "json":
        output.result(reply)
        return
    head = tuple(column["name"] for column in reply["columns"])
    output.table([head, *(tuple(map(_short, row)) for row in reply["rows"])])
    more = "; there are more, see --limit" if reply["truncated"] else ""
    count = len(reply["rows"])
    output.note(f"{count} {'row' if count == 1 else 'rows'}{more}")


async def _csv(frames: AsyncIterator[dict[str, Any]]) -> None:
    async for frame in frames:
        if "columns" in frame:
            _print_csv([[column["name"] for column in frame["columns"]]])
        _print_csv(frame.get("rows", ()))
        _note_end(frame)


async def _ndjson(frames: AsyncIterator[dict[str, Any]]) -> None:
    names: list[str] = []
    async for frame in frames:
        names = [column["name"] for column in frame["columns"]] if "columns" in frame else names
        for row in frame.get("rows", ()):
            output.result(dict(zip(names, row, strict=True)))
        _note_end(frame)


def _note_end(frame: dict[str, Any]) -> None:
    if frame.get("truncated"):
        output.note("there are more rows than these")


def _print_csv(rows: Iterable[list[Any]]) -> None:
    text = spreadsheet.csv_text(rows, line_end="\n")
    if text:
        output.lines(text)


def _plain(cell: Any) -> Any:
    """Return a cell as it stands in a table: text as it is, null as nothing, the rest as JSON."""
    return "" if cell is None else cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)


def _short(cell: Any) -> str:
    """Return a cell as a table shows it: numbers with a few decimals, long texts cut. Other formats have it whole."""
    plain = " ".join(str(_plain(round(cell, DECIMALS_SHOWN) if isinstance(cell, float) else cell)).split())
    return plain if len(plain) <= CELL_SHOWN else plain[: CELL_SHOWN - 1] + "…"


def _statement(text: str) -> str:
    if text != "-":
        return text
    raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the statement is not UTF-8: {error}") from error


def _parameter(pair: str) -> tuple[str, Any]:
    """Return a parameter: a number, true, false, null or quoted text as JSON has them, other text as it is."""
    name, equals, value = pair.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise typer.BadParameter(f"--param: {pair!r} is not NAME=VALUE, such as topic=billing")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _named(text: str, collections: list[str]) -> list[str] | None:
    """Return the collections that must be there: those whose names stand in the text; all (None), if it is not plain.

    Only these are loaded. `answers`, or none of the names: then it may be about any of them.
    """
    words = {word.lower() for word in re.findall(r"\w+", text)}
    found = [name for name in collections if name in words]
    return None if not found or "answers" in words else found
