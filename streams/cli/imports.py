"""`import`: a file of documents, however large; it may be interrupted and run again, and pays for nothing twice."""

import asyncio
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from streams.cli import documents, options, output, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from facets.definitions import Definition
    from streams.imports import Refusal, Row
    from streams.pipeline import Pipeline

CHUNK = 500
"""Documents of one transaction, or of one round to Kafka; 500 of the largest are still 256 MB."""
CHUNK_BYTES_MAX = 16 * 1024 * 1024
REFUSED_SHOWN_MAX = 20
MESSAGE_SHOWN_MAX = 300
REFUSED_KEPT_MAX = 100_000
"""Refusals listed in the result; beyond that the file as a whole is not what was meant, and only counted."""
NO_WORKER_S = 10.0
APPLIED_POLL_S = 0.3
ANSWERED_POLL_S = 0.1
AGAIN = "run the same command again to go on; what is written is not asked about twice"


def import_(  # a command's parameters are its options
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="NDJSON or CSV; '-' reads standard input.")],
    collection: Annotated[str, typer.Option("--collection", help="Where the documents go.")],
    format_: Annotated[Literal["ndjson", "csv"] | None, typer.Option("--format", help="Default: by the name.")] = None,
    key_column: Annotated[str | None, typer.Option("--key-column", help="CSV column that holds the key.")] = None,
    key_row: Annotated[bool, typer.Option("--key-row", help="The number of the CSV row is the key.")] = False,
    body_column: Annotated[str, typer.Option("--body-column", help="CSV column that holds the text.")] = "body",
    facets: Annotated[
        bool, typer.Option("--facets", help='Lines may have answers of an earlier system: "facets", "evaluation".')
    ] = False,
    facet_column: Annotated[
        list[str] | None, typer.Option("--facet-column", help="QUESTION=COLUMN with answers of an earlier system.")
    ] = None,
    state_column: Annotated[
        list[str] | None, typer.Option("--state-column", help="FIELD=COLUMN, for a column that is called otherwise.")
    ] = None,
    ignore_columns: Annotated[str | None, typer.Option("--ignore-columns", help="CSV columns to leave out.")] = None,
    scope: Annotated[str | None, typer.Option("--scope", help="Write the keys under this scope.")] = None,
    wait: documents.WaitOption = "answered",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Write every line of a file as a document: {"key" or "uri", "body", "state"}, or a CSV row.

    Answers of an earlier system are kept and found as they are, without a call, until 'reindex --outdated' asks anew.
    """
    from streams import imports

    kind = format_ or imports.guess_format(file)
    if kind == "csv" and (key_column is None) == (not key_row):
        raise typer.BadParameter("a CSV file needs either --key-column NAME or --key-row")
    answers = _facet_columns(facet_column or [], kind)
    named = options.named_columns(state_column or [], "--state-column", "FIELD")
    ignored = frozenset(name.strip() for name in (ignore_columns or "").split(",") if name.strip())

    async def work() -> int | None:
        from facets import errors, states
        from streams import wiring

        settings = options.settings(config, folder)
        async with wiring.open_pipeline(settings, classify=wait == "answered") as pipeline:
            definition = await pipeline.definition(collection)
            _check_scope(definition, scope, kind)
            types = states.column_types(definition.state_schema)
            columns = imports.Columns(body_column, key_column, ignored, types, answers, named)
            _check_questions(definition, answers)
            _check_fields(types, named)
            asked = definition.questions if facets or answers else None
            job = _Import(pipeline, definition, scope)
            with opened(file) as lines:
                rows = imports.read_csv(lines, columns, asked) if kind == "csv" else imports.read_ndjson(lines, asked)
                await job.write(rows)
            try:
                await job.wait(wait)
            except (errors.EvaluatorMisconfigured, errors.EvaluatorUnavailable):
                job.show(json_=json_)  # all is written; only the answers are missing
                raise
        job.show(json_=json_)
        return running.FAILED if job.refused_count else None

    running.run(work, again=AGAIN)


def _check_scope(definition: "Definition", scope: str | None, kind: str) -> None:
    """Refuse at once what would have every line refused.

    Raises:
        InvalidQuery: a scope where there are none, or none where keys need one.
    """
    from facets import errors

    if scope is not None and not definition.scoped:
        raise errors.InvalidQuery(f"collection '{definition.name}' has no scopes; leave --scope out")
    if not scope and definition.scoped and kind == "csv":
        raise errors.InvalidQuery(f"collection '{definition.name}' is scoped: say whose the keys are with --scope NAME")


def _facet_columns(pairs: list[str], kind: str) -> dict[str, str]:
    found = options.named_columns(pairs, "--facet-column")
    if found and kind != "csv":
        raise typer.BadParameter('--facet-column is for CSV files; in NDJSON answers are in "facets", with --facets')
    return found


def _check_questions(definition: "Definition", answers: "Mapping[str, str]") -> None:
    """Refuse answers to questions that the collection does not have.

    Raises:
        UnknownFacet: naming the question and the nearest one.
    """
    from facets import errors

    for name in answers:
        if name not in definition.questions:
            guess = errors.nearest(name, definition.questions)
            known = ", ".join(definition.questions)
            raise errors.UnknownFacet(f"collection '{definition.name}' has no question '{name}'{guess}; it has {known}")


def _check_fields(known: "Mapping[str, str]", named: "Mapping[str, str]") -> None:
    """Refuse columns for fields that the collection's state does not have.

    Raises:
        InvalidQuery: naming the field and the nearest one.
    """
    from facets import errors

    for name in named:
        if name not in known:
            has = ", ".join(known) or "no fields"
            raise errors.InvalidQuery(f"the state has no field '{name}'{errors.nearest(name, known)}; it has {has}")


class _Import:
    """One run: what was sent, and what became of it."""

    def __init__(self, pipeline: "Pipeline", definition: "Definition", scope: str | None) -> None:
        self._pipeline = pipeline
        self._definition = definition
        self._scope = scope
        self._source = f"facetline/import/{uuid.uuid4()}"
        self.sent = 0
        self.written = 0
        self.unchanged = 0
        self.remembered = 0
        self.failed: list[tuple[str, int, str]] = []
        self.refused: list[dict[str, Any]] = []
        self.refused_count = 0

    async def write(self, rows: "Iterator[Row | Refusal]") -> None:
        """Write all rows, in order."""
        from streams.imports import Refusal

        active = await self._pipeline.definitions()
        with output.Progress("written", None) as progress:
            async for chunk in _chunks(rows):
                refusals = [row for row in chunk if isinstance(row, Refusal)]
                good = [row for row in chunk if not isinstance(row, Refusal)]
                for refusal in refusals:
                    self._refuse(refusal.line, refusal.reason)
                wanted = [self._document(row) for row in good]
                results = await self._pipeline.write_many(
                    active, wanted, source=self._source, collection=self._definition.name
                )
                for row, result in zip(good, results, strict=True):
                    self._count(row.line, result)
                progress.at(self.sent + self.refused_count)

    def _document(self, row: "Row") -> Any:
        from streams.pipeline import NewDocument

        uri = row.uri
        if uri is None:
            scope = f"@{self._scope}/" if self._scope else ""
            uri = f"{scope}{self._definition.pattern.rstrip('*')}{row.key}"
        return NewDocument(uri, row.body, row.state, str(row.line), row.facets, row.evaluation)

    def _count(self, line: int, result: Any) -> None:
        from facets.errors import InvalidEvent

        if isinstance(result, InvalidEvent):
            self._refuse(line, f"{result.reason}: {result.message}")
            return
        self.sent += 1
        if result is not None:
            self.written += result.outcome == "applied"
            self.unchanged += result.outcome == "unchanged"

    def _refuse(self, line: int, reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < REFUSED_KEPT_MAX:
            self.refused.append({"line": line, "reason": reason})

    async def wait(self, wait: documents.Wait) -> None:
        """Wait until workers have applied what was sent, and until it is answered."""
        from storage import queue

        applied = self.written + self.unchanged
        if applied < self.sent and wait != "none":
            await self._wait_applied()
        if wait == "answered":
            await wait_answered(self._pipeline, self._definition.name, self._source)
            self.remembered = await self._pipeline.store.read(queue.remembered, self._source)
            self.failed = await self._pipeline.store.read(queue.failed, self._source)

    async def _wait_applied(self) -> None:
        from storage import outcomes

        told = False
        started = time.monotonic()
        with output.Progress("applied", self.sent) as progress:
            while True:
                looked_s = time.monotonic()
                tally = await self._pipeline.store.read(outcomes.tally, self._source)
                progress.at(sum(tally.values()))
                if sum(tally.values()) >= self.sent:
                    break
                if not tally and not told and time.monotonic() - started > NO_WORKER_S:
                    output.note("nothing has been applied yet; is a 'facetline worker' running?")
                    told = True
                await running.rest(APPLIED_POLL_S, looked_s)
        self.written, self.unchanged = tally.get("applied", 0), tally.get("unchanged", 0)
        after = ""
        while page := await self._pipeline.store.read(outcomes.rejected, self._source, after=after):
            for each in page:
                self._refuse(int(each.id), f"{each.reason}: {each.message}")
            after = page[-1].id

    def show(self, *, json_: bool) -> None:
        """Say what became of the file."""
        self.refused.sort(key=lambda refusal: int(refusal["line"]))
        if json_:
            counts = {
                "written": self.written,
                "unchanged": self.unchanged,
                "failed": sum(many for _, many, _ in self.failed),
            }
            output.result({**counts, "refused": self.refused})
            return
        for refusal in self.refused[:REFUSED_SHOWN_MAX]:
            output.note(f"line {refusal['line']} refused, {refusal['reason']}")
        if self.refused_count > REFUSED_SHOWN_MAX:
            output.note(f"… and {self.refused_count - REFUSED_SHOWN_MAX} more refused; --json lists them")
        output.text(f"{self.written} written, {self.unchanged} unchanged, {self.refused_count} refused")
        if self.remembered:
            output.note(f"{self.remembered} were answered from memory, without a call")
        self._show_failed()

    def _show_failed(self) -> None:
        for reason, many, message in self.failed:
            output.note(f"{many} have no answers, {reason}: {message[:MESSAGE_SHOWN_MAX]}")
        if self.failed:
            name = self._definition.name
            look = f"facetline search {name} --filter \"doc_status = 'failed'\""
            output.note(f"all of them: {look}; to ask again: facetline reindex {name}")


async def wait_answered(pipeline: "Pipeline", collection: str, source: str) -> None:
    """Show answers coming in until nothing that this source wrote waits for one; what others write meanwhile may wait.

    Raises:
        EvaluatorMisconfigured, EvaluatorUnavailable: the evaluator does not answer; documents stay pending.
    """
    from storage import queue
    from streams import standstill

    waiting = most = await pipeline.store.read(queue.unanswered, source)
    with output.Progress("answered", most) as progress:
        while waiting:
            looked_s = time.monotonic()
            if await standstill.of(pipeline, collection) is not None:  # then this count is the last one
                waiting = await pipeline.store.read(queue.unanswered, source)
            if waiting:
                await give_up_when_stopped(pipeline, collection, waiting)
            waiting = await pipeline.store.read(queue.unanswered, source)
            progress.at(most - waiting, most)
            await running.rest(ANSWERED_POLL_S, looked_s)


async def give_up_when_stopped(pipeline: "Pipeline", collection: str, waiting: int) -> None:
    """Stop waiting for the answers of `waiting` documents, when they are known not to come.

    Raises:
        EvaluatorMisconfigured, EvaluatorUnavailable: the evaluator is not called; the message says why, and what
            becomes of the documents.
        Conflict: the collection has got other questions meanwhile, which this process does not ask.
    """
    from facets import errors
    from streams import standstill

    if pipeline.work is not None and collection in pipeline.work.side_chain.stats.not_active:
        raise errors.Conflict(
            f"collection '{collection}' was given another definition meanwhile; {waiting} documents stay pending, for"
            " a command that has it, or after 'facetline collections apply'"
        )
    stands = await standstill.of(pipeline, collection)
    if stands is not None:
        raise stands.error(waiting, workers=pipeline.settings.runtime == "kafka")


async def _chunks(rows: "Iterator[Row | Refusal]") -> "AsyncIterator[list[Row | Refusal]]":
    """Read ahead one bounded chunk at a time, away from the event loop."""

    def take() -> "list[Row | Refusal]":
        chunk: list[Row | Refusal] = []
        size = 0
        for row in rows:
            chunk.append(row)
            size += len(getattr(row, "body", None) or "")
            if len(chunk) >= CHUNK or size >= CHUNK_BYTES_MAX:
                break
        return chunk

    while chunk := await asyncio.to_thread(take):
        yield chunk


def opened(file: str) -> BinaryIO:
    """Open a file to read, or standard input for '-'."""
    from facets import private_files

    if file == "-":
        return sys.stdin.buffer
    try:
        return private_files.open_regular(Path(file), pipes=True)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
