"""`export`: the answers as Parquet files, for notebooks, BI tools and whatever else reads them."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import documents, options, output, running

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.views.exports import Exported
    from facetline.streams.views.follower import Follower

EVERY_MIN_S = 1.0


def export(
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="DIR", help="Folder for the snapshots; made if absent.")
    ],
    collections: Annotated[
        list[str] | None, typer.Option("--collection", help="Only this one; may be given again.")
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Again and again, such as 60s, until interrupted.")
    ] = None,
    fields: options.Fields = None,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Write a snapshot of the answers as Parquet; readers of DIR/current see the old one or the new one, never half."""
    every_s = None if every is None else documents.seconds(every)
    if every_s is not None and every_s < EVERY_MIN_S:
        raise typer.BadParameter(f"--every {every!r} is less than {EVERY_MIN_S:g} s")

    place = parquet.absolute()

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            followers = await followers_of(pipeline, collections, place)
            try:
                await _export(pipeline, followers, place, every_s, with_texts=fields is not None, json_=json_)
            finally:
                for follower in followers:
                    await follower.close()
        return None

    running.run(work, again="the last whole snapshot stays")


async def followers_of(pipeline: "Pipeline", names: list[str] | None, exports: Path) -> "list[Follower]":
    """Return what keeps the views of these collections (all, where none is named), which may write into `exports`.

    Raises:
        UnknownCollection: one is not active.
    """
    from facetline.streams.views.follower import Follower

    active = await pipeline.definitions()
    for name in names or ():
        await pipeline.definition(name)
    chosen = dict.fromkeys(names) if names else active.by_name
    return [Follower(pipeline.store, name, exports=[exports]) for name in chosen]


async def _export(
    pipeline: "Pipeline",
    followers: "list[Follower]",
    parquet: Path,
    every_s: float | None,
    *,
    with_texts: bool,
    json_: bool,
) -> None:
    """Export once; with an interval repeatedly, and a failure is reported and retried."""
    from facetline.facets import errors
    from facetline.streams.views import exports as exporting

    first = True
    while True:
        started_s = time.monotonic()
        try:
            lend = exporting.followed(pipeline.store, followers)
            done = await exporting.export(lend, parquet, pipeline.store if with_texts else None)
            _show(done, started_s, json_=json_)
            first = False
        except (errors.ExportFailed, errors.StoreUnavailable) as error:
            if every_s is None or first:
                raise
            output.error(f"{error.message}; the next try is in {every_s:g} s")
        if every_s is None:
            return
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - started_s)))


def _show(done: "Exported", started_s: float, *, json_: bool) -> None:
    if json_:
        output.result({"folder": str(done.folder), **done.manifest})
        return
    found: list[tuple[str, dict[str, Any]]] = [
        *done.manifest["collections"].items(),
        ("answers", done.manifest["answers"]),
    ]
    output.table((name, f"{each['rows']:,} rows", f"{each['bytes']:,} bytes") for name, each in found)
    output.note(f"{done.folder}, {time.monotonic() - started_s:.1f} s")
