"""`record` and `replay`: a topic's events into a file, and a file's events into a pipeline."""

import io
import math
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import documents, options, output, running

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.replay.recorder import Recorder
    from facetline.streams.replay.replayer import Lines, Replay, Tally
    from facetline.streams.settings import Settings

REFUSED_SHOWN_MAX = 20
POLL_S = 0.3
ANSWERED_POLL_S = 0.1
NO_WORKER_S = 10.0
SPEED_MAX = 1_000_000.0
PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,200}")
AGAIN = "run the same command again to go on; what has arrived is left as it is"


def record(
    topic: Annotated[
        str | None, typer.Option("--topic", help="Which topic; by default the documents topic.", show_default=False)
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Only this one; may be repeated.")] = None,
    from_offsets: Annotated[
        str | None, typer.Option("--from-offsets", help="Where to begin in each partition: 0:1500,1:1480")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until interrupted.")] = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Print a topic's committed records, one JSON object a line: what 'kcat -J' prints, and what 'replay' reads."""
    starts = _offsets(from_offsets)

    async def work() -> int | None:
        from facetline.streams.kafka import topics
        from facetline.streams.replay import recorder as recording

        settings = options.settings(config, folder)
        if settings.runtime != "kafka":
            raise typer.BadParameter(
                "the local runtime keeps no log that could be recorded; set FACETLINE_KAFKA__BOOTSTRAP_SERVERS"
            )
        name = topic or topics.topic_names(settings.kafka.topic_prefix).documents
        wanted = await recording.spans(settings.kafka, name, partitions=partition or [], starts=starts)
        incarnations = await _incarnations(settings, name)
        recorder = recording.Recorder(settings.kafka, name, wanted, follow=follow, incarnations=incarnations)
        total = None if follow else sum(span.end - span.start for span in wanted.values())
        await _record(recorder, total)
        return None

    running.run(work)


async def _record(recorder: "Recorder", total: int | None) -> None:
    """Print all there is; whatever ends it, say where to go on."""
    from facetline.streams.files import kcat

    count = 0
    try:
        with output.Progress("recorded", total) as progress:
            async for chunk in recorder.chunks():
                output.lines("".join(kcat.encode(each) for each in chunk))
                count += len(chunk)
                progress.at(count)
    finally:
        at = ",".join(f"{partition}:{offset}" for partition, offset in sorted(recorder.at.items()))
        output.note(f"{count} records; what comes after them: --from-offsets {at}")


async def _incarnations(settings: "Settings", topic: str) -> dict[int, int]:
    """Return which life of the topic the store knows, by partition; nothing where there is no store."""
    from facetline.facets import errors
    from facetline.storage.log import positions
    from facetline.streams import wiring

    try:
        async with wiring.open_store(settings, create=False) as store:
            states = await store.read(positions.get, topic)
    except errors.NotFound:
        return {}
    except errors.StoreUnavailable as error:
        output.note(f"warning: recorded without the topic's incarnation, the store is away: {error.message}")
        return {}
    return {partition: state.incarnation for partition, state in states.items()}


def _offsets(text: str | None) -> dict[int, int]:
    """Return offsets by partition from a text such as 0:1500,1:1480."""
    found: dict[int, int] = {}
    for part in (text or "").split(",") if text else ():
        partition, colon, offset = part.strip().partition(":")
        if not (colon and partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise typer.BadParameter(f"--from-offsets: {part!r} is not PARTITION:OFFSET, such as 0:1500")
        found[int(partition)] = int(offset)
    return found


def replay(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What 'record' or 'kcat -J' printed; '-': stdin.")],
    speed: Annotated[str, typer.Option("--speed", help="1x as it was recorded, 10x faster, max at once.")] = "max",
    gap_max: Annotated[
        str, typer.Option("--gap-max", help="The longest wait between two events, such as 500ms, 60s or 5m.")
    ] = "60s",
    topic_prefix: Annotated[
        str | None, typer.Option("--topic-prefix", help="With Kafka: into the topics of this prefix.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be refused; nothing is sent.")
    ] = False,
    wait: documents.WaitOption = "answered",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Send recorded events again, as they were; a store that has seen them before takes none of them twice."""
    factor, gap_most_s = _speed(speed), documents.seconds(gap_max)

    async def work() -> int | None:
        from facetline.streams.cli import imports
        from facetline.streams.files import kcat
        from facetline.streams.replay.pacing import Pace

        settings = _with_prefix(options.settings(config, folder), topic_prefix)
        pace = None if factor is None else Pace(factor, gap_most_s=gap_most_s)
        with imports.opened(file) as opened:
            lines: Lines = kcat.read(opened)
            if isinstance(opened, io.BufferedReader) and not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                lines = kcat.follow(opened)
            tally = await (_judged(settings, lines) if dry_run else _replayed(settings, lines, pace, wait))
        _show(tally, json_=json_, dry_run=dry_run)
        return running.FAILED if tally.refused_count else None

    running.run(work, again=AGAIN)


async def _judged(settings: "Settings", lines: Any) -> "Tally":
    """Judge all lines by the file's definitions, without store or broker."""
    from facetline.facets.definitions import Definitions
    from facetline.streams import project
    from facetline.streams.replay import replayer

    loaded = project.load_project(settings)
    try:
        return await replayer.Replay(None, Definitions(loaded.definitions)).run(lines)
    finally:
        await loaded.close()


async def _replayed(settings: "Settings", lines: Any, pace: Any, wait: documents.Wait) -> "Tally":
    from facetline.streams import wiring
    from facetline.streams.replay import replayer

    async with wiring.open_pipeline(settings, classify=wait == "answered") as pipeline:
        with output.Progress("sent", None) as progress:
            job = replayer.Replay(pipeline, await pipeline.definitions(), pace=pace, on_progress=progress.at)
            try:
                await job.run(lines)
            except BaseException:
                _print_progress(job)
                raise
        if wait != "none" and job.tally.sent:
            await wait_applied(pipeline)
        if wait == "answered":
            await wait_answered(pipeline, job.tally.collections)
        return job.tally


def _print_progress(job: "Replay") -> None:
    output.note(f"stopped after line {job.tally.last}: {job.tally.sent} sent")


async def wait_applied(pipeline: "Pipeline") -> None:
    """Wait until the workers have applied what is in the documents topic now; at once in the local runtime.

    Raises:
        BrokerUnavailable: the broker does not answer.
    """
    from facetline.streams.replay import replayer

    ends = await replayer.log_ends(pipeline)
    total, reported, started_s = await replayer.behind(pipeline, ends), False, time.monotonic()
    with output.Progress("applied", total) as progress:
        while behind := await replayer.behind(pipeline, ends):
            progress.at(total - behind)
            if not reported and time.monotonic() - started_s > NO_WORKER_S:
                output.note(f"{behind} events have not been applied yet; is a 'facetline worker' running?")
                reported = True
            await running.rest(POLL_S, time.monotonic())


async def wait_answered(pipeline: "Pipeline", collections: set[str]) -> None:
    """Show answers coming in until no document of these collections waits for one.

    Raises:
        EvaluatorUnavailable, Conflict: the answers will not come; documents stay pending.
    """
    from facetline.streams.cli.imports import give_up_when_stopped
    from facetline.streams.replay import replayer

    waiting = most = await replayer.pending(pipeline, collections)
    with output.Progress("answered", most) as progress:
        while waiting:
            for collection in sorted(collections):
                await give_up_when_stopped(pipeline, collection, waiting)
            looked_s = time.monotonic()
            waiting = await replayer.pending(pipeline, collections)
            most = max(most, waiting)
            progress.at(most - waiting, most)
            await running.rest(ANSWERED_POLL_S, looked_s)


def _speed(text: str) -> float | None:
    """Return how many times faster than recorded; None for at once."""
    if text == "max":
        return None
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not 0 < factor <= SPEED_MAX:  # false for NaN
        raise typer.BadParameter(f"--speed {text!r} is neither max nor a number such as 1x, 10x or 0.5x")
    return factor


def _with_prefix(settings: "Settings", prefix: str | None) -> "Settings":
    if prefix is None:
        return settings
    if settings.runtime != "kafka":
        raise typer.BadParameter("--topic-prefix belongs to the Kafka runtime; the local one has no topics")
    if not PREFIX.fullmatch(prefix):
        raise typer.BadParameter(f"--topic-prefix {prefix[:80]!r}: topics are named by letters, digits, '.', '_', '-'")
    kafka = settings.kafka.model_copy(update={"topic_prefix": prefix})
    return settings.model_copy(update={"kafka": kafka})


def _show(tally: "Tally", *, json_: bool, dry_run: bool) -> None:
    known = tally.applied + tally.unchanged + tally.known + sum(tally.rejected.values()) == tally.sent and not dry_run
    if json_:
        output.result(
            {
                "dry_run": dry_run,
                "sent": tally.sent,
                "applied": tally.applied if known else None,
                "unchanged": tally.unchanged if known else None,
                "known": tally.known if known else None,
                "rejected": dict(sorted(tally.rejected.items())) if known else None,
                "refused": [{"line": number, "reason": reason} for number, reason in tally.refused],
            }
        )
        return
    for number, reason in tally.refused[:REFUSED_SHOWN_MAX]:
        output.note(f"line {number} refused, {reason}")
    if tally.refused_count > REFUSED_SHOWN_MAX:
        output.note(f"… and {tally.refused_count - REFUSED_SHOWN_MAX} more refused; --json lists them")
    lines = [f"{tally.sent} {'would be sent' if dry_run else 'sent'}"]
    if known:
        rejected = [f"{count} rejected ({reason})" for reason, count in sorted(tally.rejected.items())]
        lines += [f"{tally.applied} applied", f"{tally.unchanged} unchanged", f"{tally.known} known before", *rejected]
    output.text(", ".join([*lines, f"{tally.refused_count} refused"]))
