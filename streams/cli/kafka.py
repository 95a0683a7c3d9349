"""`worker` and `topics`: what only the Kafka runtime has."""

from typing import TYPE_CHECKING

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.streams.settings import Settings

topics_app = typer.Typer(help="Make the Kafka topics, or check them.", no_args_is_help=True)


def worker(config: options.Config = None, folder: options.Folder = None) -> None:
    """Apply the documents topic, answer what is due, publish facets: run as many of these as you like."""

    async def work() -> int | None:
        settings = _kafka(options.settings(config, folder), "worker")
        from facetline.streams import worker as worker_  # seconds of imports, which a wrong setting need not wait for

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
        from facetline.streams.kafka import topics

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
        from facetline.streams import wiring
        from facetline.streams.kafka import topics

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


def _kafka(settings: "Settings", command: str) -> "Settings":
    from facetline.facets import errors

    if settings.runtime != "kafka":
        raise errors.InvalidSettings(
            f"'{command}' belongs to the Kafka runtime: set FACETLINE_KAFKA__BOOTSTRAP_SERVERS. The local runtime needs"
            " no topics and no worker: write, import and reindex do the work themselves"
        )
    return settings
