"""`worker`, `topics`, `dlq`: what only the Kafka runtime has, and the dead letters of both."""

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli import options, output, running

if TYPE_CHECKING:
    from storage.events import DeadLetter
    from streams.settings import Settings

topics_app = typer.Typer(help="Make the Kafka topics, or check them.", no_args_is_help=True)
letters_app = typer.Typer(help="Events that could not be applied: look at them, send them again.", no_args_is_help=True)

LETTERS_MAX = 100


def worker(config: options.Config = None, folder: options.Folder = None) -> None:
    """Apply the documents topic, answer what is due, publish facets: run as many of these as you like."""

    async def work() -> int | None:
        settings = _kafka(options.settings(config, folder), "worker")
        from streams import worker as worker_  # seconds of imports, which a wrong setting need not wait for

        logged = settings.log_level in {"debug", "info"}  # then it is in the log, and once is enough
        await worker_.run_worker(settings, on_ready=_unsaid if logged else output.note)
        return None

    running.run(work)


def _unsaid(_line: str) -> None:
    """Print nothing."""


@topics_app.command("create", short_help="Make the topics that are missing.")
def create(json_: options.Json = False, config: options.Config = None) -> None:
    """Make the topics that are missing; those that are there stay as they are."""

    async def work() -> int | None:
        from streams import topics

        reports = await topics.create_topics(_kafka(options.settings(config, None), "topics").kafka)
        for report in reports:
            if json_:
                output.result(
                    {
                        "topic": report.name,
                        "partitions": report.partitions,
                        "created": report.created,
                        "differs": list(report.differs),
                    }
                )
            else:
                what = "created" if report.created else "was there"
                output.text(f"{report.name}  {report.partitions} partitions  {what}")
            for difference in report.differs:
                output.note(f"warning: {report.name}: {difference}")
        return None

    running.run(work)


@topics_app.command("check")
def check(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """Check that the topics are there and are what the workers rely on."""

    async def work() -> int | None:
        from streams import topics, wiring

        settings = _kafka(options.settings(config, folder), "topics")
        async with wiring.open_store(settings) as store:
            found = await topics.check_topics(settings.kafka, store)
        stored = await topics.compressions(settings.kafka)
        for name, partitions in found.items():
            if json_:
                output.result({"topic": name, "partitions": partitions, "compression": stored[name]})
            else:
                output.text(f"{name}  {partitions} partitions  compression {stored[name]}  ok")
        return None

    running.run(work)


@letters_app.command("list", short_help="List dead letters, and why they were rejected.")
def list_(
    reason: Annotated[str | None, typer.Option("--reason", help="Only letters with this reason.")] = None,
    after: Annotated[int, typer.Option("--after", help="Go on after this id.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Letters on a page.")] = LETTERS_MAX,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """List dead letters: which event, where it stood, why it was rejected."""

    async def work() -> int | None:
        from storage import dead_letters
        from streams import wiring

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            letters = await store.read(dead_letters.find, reason=reason, after=after, limit=limit)
        if json_:
            for letter in letters:
                output.result(_letter(letter))
        else:
            output.table((str(each.id), each.reason, _place(each), each.uri or "", each.message) for each in letters)
            if len(letters) == limit:
                output.note(f"more: --after {letters[-1].id}")
        return None

    running.run(work)


@letters_app.command("show")
def show(
    letter_id: Annotated[int, typer.Argument(metavar="ID")],
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Show one dead letter with its bytes."""

    async def work() -> int | None:
        from facets import display, errors
        from storage import dead_letters
        from streams import wiring

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            letter = await store.read(dead_letters.get, letter_id)
        if letter is None:
            raise errors.NotFound(f"there is no dead letter {letter_id}; list them with 'facetline dlq list'")
        if json_:
            output.result({**_letter(letter), **_content(letter)})
            return None
        output.table((f"{name}:", str(value)) for name, value in _letter(letter).items() if value is not None)
        for name, value in letter.raw.headers:
            output.text(display.line(f"header {name}: {value.decode(errors='replace')}"))
        output.text()
        output.text("(a tombstone)" if letter.raw.value is None else letter.raw.value.decode(errors="replace"))
        return None

    running.run(work)


@letters_app.command("redrive", short_help="Send dead letters again.")
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
        from streams import redriving, wiring

        settings = options.settings(config, folder)
        async with wiring.open_pipeline(settings, writes=True) as pipeline:
            results = await redriving.redrive(pipeline, ids=ids or [], reason=reason)
        for result in results:
            if json_:
                output.result(result)
            else:
                said = f" ({result['reason']})" if result.get("reason") else ""
                output.text(f"{result['id']}  {result['outcome']}{said}")
        if not results and not json_:
            output.note("nothing to send")
        return None

    running.run(work, again="run the same command again to go on")


def _kafka(settings: "Settings", command: str) -> "Settings":
    from facets import errors

    if settings.runtime != "kafka":
        raise errors.InvalidSettings(
            f"'{command}' belongs to the Kafka runtime: set FACETLINE_KAFKA__BOOTSTRAP_SERVERS. The local runtime needs"
            " no topics and no worker: write, import and reindex do the work themselves"
        )
    return settings


def _place(letter: "DeadLetter") -> str:
    at = letter.position
    return f"{at.topic}[{at.partition}]@{at.offset}"


def _letter(letter: "DeadLetter") -> dict[str, Any]:
    at = letter.position
    return {
        "id": letter.id,
        "reason": letter.reason,
        "message": letter.message,
        "uri": letter.uri,
        "topic": at.topic,
        "incarnation": at.incarnation,
        "partition": at.partition,
        "offset": at.offset,
        "stage": letter.stage,
        "attempts": letter.attempts,
        "state": letter.state,
    }


def _content(letter: "DeadLetter") -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    headers = [{"name": name, "base64": text(value)} for name, value in letter.raw.headers]
    return {"key_base64": text(letter.raw.key), "value_base64": text(letter.raw.value), "headers": headers}
