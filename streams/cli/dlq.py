"""`dlq`: the dead letters of both runtimes, listed, shown, sent again or discarded."""

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.facets.plurals import counted
from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.storage.db.engine import Store
    from facetline.storage.log.events import DeadLetter

app = typer.Typer(help="Events that could not be applied: show, send again or discard them.", no_args_is_help=True)
LETTERS_MAX = 100


@app.command("list", short_help="List dead letters, and why they were rejected.")
def list_(
    reason: Annotated[str | None, typer.Option("--reason", help="Only letters with this reason.")] = None,
    after: Annotated[int, typer.Option("--after", help="Go on after this id.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Letters on a page.")] = LETTERS_MAX,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """List dead letters: when, which event, where it stood, why it was rejected."""

    async def work() -> int | None:
        from facetline.storage.log import dead_letters
        from facetline.streams import wiring
        from facetline.streams.replay import dead_letters as letters_

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            letters = await store.read(dead_letters.listed, reason=reason, after=after, limit=limit)
        if json_:
            for letter in letters:
                output.result(letters_.summary(letter))
        else:
            output.table(
                (str(each.id), _time(each.created_ms), each.reason, _place(each), each.uri or "", each.message)
                for each in letters
            )
            if len(letters) == limit:
                output.note(f"more: --after {letters[-1].id}")
        return None

    running.run(work)


@app.command("show")
def show(
    letter_id: Annotated[int, typer.Argument(metavar="ID")],
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Show one dead letter with its bytes."""

    async def work() -> int | None:
        from facetline.facets import display
        from facetline.streams import wiring
        from facetline.streams.replay import dead_letters as letters
        from facetline.streams.replay import redrive as redriving

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            letter = await redriving.find(store, letter_id)
        if json_:
            output.result({**letters.summary(letter), **_content(letter)})
            return None
        times = {"created_at": letter.created_ms, "handled_at": letter.handled_ms}
        fields = {**letters.summary(letter), **{name: at and _time(at) for name, at in times.items()}}
        output.table((f"{name}:", str(value)) for name, value in fields.items() if value is not None)
        for name, value in letter.raw.headers:
            output.text(display.line(f"header {name}: {value.decode(errors='replace')}"))
        output.text()
        output.text("(a tombstone)" if letter.raw.value is None else letter.raw.value.decode(errors="replace"))
        return None

    running.run(work)


@app.command("redrive", short_help="Send dead letters again.")
def redrive(
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="All letters with this reason.")] = None,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Send dead letters again, with their ids and original positions; one that is out of date is closed."""
    if bool(ids) == (reason is not None):
        raise typer.BadParameter("give either ids or --reason")

    async def work() -> int | None:
        from facetline.streams import wiring
        from facetline.streams.replay import redrive as redriving

        settings = options.settings(config, folder)
        async with wiring.open_pipeline(settings, writes=True) as pipeline:
            results = await redriving.redrive(pipeline, ids=ids or [], reason=reason)
        for result in results:
            if json_:
                output.result(result)
            else:
                message = f" ({result['reason']})" if result.get("reason") else ""
                output.text(f"{result['id']}  {result['outcome']}{message}")
        if not results and not json_:
            output.note("nothing to send")
        return None

    running.run(work, again="run the same command again to go on")


@app.command("discard", short_help="Close dead letters permanently, without sending them.")
def discard(
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="All letters with this reason.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --reason: do not ask before.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Close dead letters permanently, without sending them; their bytes and who closed them when are kept."""
    if bool(ids) == (reason is not None):
        raise typer.BadParameter("give either ids or --reason")

    async def work() -> int | None:
        from facetline.streams import wiring
        from facetline.streams.replay import redrive as redriving

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            if reason is not None and not await _agreed(store, reason, asks=not yes and sys.stdin.isatty()):
                output.note("nothing was discarded")
                return 1
            states = await redriving.discard(store, ids=ids or [], reason=reason)
        for letter_id, state in states.items() if json_ else ():
            output.result({"id": letter_id, "state": state})
        for letter_id, state in states.items():
            if state != "discarded":
                output.note(f"dead letter {letter_id} is {state} already and stays so")
        count = sum(state == "discarded" for state in states.values())
        if not json_:
            output.text(f"{count} dead letter{'' if count == 1 else 's'} discarded")
        return None

    running.run(work, again="run the same command again to go on")


async def _agreed(store: "Store", reason: str, *, asks: bool) -> bool:
    """Ask before all letters with a reason are closed; where there is none, name the reasons that there are."""
    from facetline.facets import display, errors
    from facetline.storage.log import dead_letters

    counts = await store.read(dead_letters.counts)
    if reason not in counts:
        hint = errors.nearest(reason, counts) or (f"; there are: {', '.join(counts)}" if counts else "")
        output.note(f"no open dead letter has the reason {reason[:80]!r}{hint}")
        return True
    letters = counted(counts[reason], "dead letter")
    return not asks or typer.confirm(f"Discard {letters} ({display.line(reason)}) permanently?", err=True)


def _place(letter: "DeadLetter") -> str:
    at = letter.position
    return f"{at.topic}[{at.partition}]@{at.offset}"


def _time(at_ms: int) -> str:
    """Return a moment for people: UTC, to the second."""
    from facetline.storage.db import json_rows

    return f"{json_rows.moment(at_ms):%Y-%m-%d %H:%M:%SZ}"


def _content(letter: "DeadLetter") -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    headers = [{"name": name, "base64": text(value)} for name, value in letter.raw.headers]
    return {"key_base64": text(letter.raw.key), "value_base64": text(letter.raw.value), "headers": headers}
