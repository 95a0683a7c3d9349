"""`import`: a file of documents, however large; it may be interrupted and run again, and pays for nothing twice."""

import asyncio
import sys
import time
import uuid
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from facetline.facets.plurals import counted
from facetline.streams.cli import documents, options, output, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping

    from facetline.facets.definitions import Definition
    from facetline.facets.questions import Question
    from facetline.streams.files.documents import Columns, Form, Format, Refusal, Row
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.settings import Settings

CHUNK = 500
"""Documents of one transaction, or of one round to Kafka; 500 of the largest are still 256 MB."""
CHUNK_BYTES_MAX = 16 * 1024 * 1024
HEAD_REFUSED_MIN = 10
"""Refusals at the head of a file below which nothing is concluded from their share."""
REFUSED_SHOWN_MAX = 20
MESSAGE_SHOWN_MAX = 300
REFUSED_KEPT_MAX = 100_000
"""Refusals listed in the result; beyond that the file as a whole is not what was meant, and only counted."""
NO_WORKER_S = 10.0
APPLIED_POLL_S = 0.3
ANSWERED_POLL_S = 0.1
AGAIN = "run the same command again to go on; what is written is not asked about twice"

FormatOption = Annotated[
    Literal["ndjson", "csv", "json"] | None, typer.Option("--format", help="Default: by the name.")
]
FacetsOption = Annotated[
    bool, typer.Option("--facets", help='Lines may have answers of an earlier system: "facets", "evaluation".')
]
FacetColumnOption = Annotated[
    list[str] | None, typer.Option("--facet-column", help="QUESTION=COLUMN with answers of an earlier system.")
]
StateColumnOption = Annotated[
    list[str] | None, typer.Option("--state-column", help="FIELD=COLUMN: map a column to a field of another name.")
]
DateFormatOption = Annotated[
    list[str] | None,
    typer.Option("--date-format", help="FIELD=FORMAT, such as due=%d.%m.%Y, in UTC unless it has %z."),
]
OnlyColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--only-columns", help="Take just the CSV columns that options name, and this field's, if any."),
]
AllowRefusedOption = Annotated[
    bool, typer.Option("--allow-refused", help="Go on although most of the file's head is refused.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be written, refused and asked, and the cost.")
]


def import_(  # a command's parameters are its options
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="NDJSON, CSV, TSV or a JSON array; '-' reads standard input.")
    ],
    collection: Annotated[str, typer.Option("--collection", help="Where the documents go.")],
    format_: FormatOption = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    key_column: Annotated[str | None, typer.Option("--key-column", help="CSV column that holds the key.")] = None,
    key_row: Annotated[bool, typer.Option("--key-row", help="The number of the CSV row is the key.")] = False,
    body_column: Annotated[str, typer.Option("--body-column", help="CSV column that holds the text.")] = "body",
    facets: FacetsOption = False,
    facet_column: FacetColumnOption = None,
    state_column: StateColumnOption = None,
    date_format: DateFormatOption = None,
    only_columns: OnlyColumnsOption = None,
    ignore_columns: options.IgnoreColumns = None,
    allow_refused: AllowRefusedOption = False,
    dry_run: DryRunOption = False,
    scope: Annotated[str | None, typer.Option("--scope", help="Write the keys under this scope.")] = None,
    wait: documents.WaitOption = "answered",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Write every line of a file as a document: {"key" or "uri", "body", "state"}, or a CSV row.

    Answers of an earlier system are kept and found as they are, without a call, until 'reindex --outdated' asks again.
    """
    from facetline.streams.files import documents as imports
    from facetline.streams.files import typed_fields

    kind = format_ or imports.guess_format(file)
    if kind == "csv" and (key_column is None) == (not key_row):
        raise typer.BadParameter("a CSV file needs either --key-column NAME or --key-row")
    answers = _facet_columns(facet_column or [], kind)
    named = options.named_columns(state_column or [], "--state-column", "FIELD")
    formats = options.named_columns(date_format or [], "--date-format", "FIELD", "FORMAT")
    only = None if only_columns is None else frozenset(filter(None, only_columns))
    form = imports.form_of(file, delimiter, encoding)

    async def work() -> int | None:
        from facetline.facets.schema import states

        settings = options.settings(config, folder)
        async with _opened_pipeline(settings, classify=wait == "answered", dry_run=dry_run) as pipeline:
            definition = await pipeline.definition(collection)
            _check_scope(definition, scope, kind)
            types = states.column_types(definition.state_schema)
            _check_questions(definition, answers)
            _check_fields(types, [*named, *(only or ())])
            typed_fields.check_date_formats(formats, types)
            columns = imports.Columns(
                body_column, key_column, ignore_columns or (), types, answers, named, only, formats
            )
            asked = definition.questions if facets or answers else None
            job = _Import(pipeline, definition, scope, allow_refused=allow_refused, keys=kind != "csv" or not key_row)
            with opened(file) as lines:
                rows = _rows(lines, kind, columns, asked, form)
                if dry_run:
                    await job.try_out(rows, json_=json_)
                    return running.FAILED if job.refused_count else None
                await job.write(rows, pipeline.write_many)
            await job.end(wait, json_=json_)
        job.show(json_=json_)
        return running.FAILED if job.refused_count else None

    running.run(work, again=None if dry_run else AGAIN)


def _rows(
    file: BinaryIO, kind: "Format", columns: "Columns", asked: "Mapping[str, Question] | None", form: "Form"
) -> "Iterator[Row | Refusal]":
    from facetline.streams.files import documents as imports

    if kind == "csv":
        return imports.read_csv(file, columns, asked, form=form, note=output.note)
    moments = imports.Moments(columns.state, columns.dates)
    return imports.read_ndjson(file, asked, form=form, kind=kind, moments=moments)


@asynccontextmanager
async def _opened_pipeline(settings: "Settings", *, classify: bool, dry_run: bool) -> "AsyncIterator[Pipeline]":
    """Open the pipeline; a dry run makes no data folder where there is none yet."""
    from facetline.streams import wiring

    with ExitStack() as stack:
        if dry_run and settings.store_url is None and not (settings.data_folder / "facetline.db").exists():
            made = stack.enter_context(TemporaryDirectory(prefix="facetline-dry-run-"))
            settings = settings.model_copy(update={"data_folder": Path(made)})
        async with wiring.open_pipeline(settings, classify=classify and not dry_run) as pipeline:
            yield pipeline


def _check_scope(definition: "Definition", scope: str | None, kind: str) -> None:
    """Refuse at once what would have every line refused.

    Raises:
        InvalidQuery: a scope where there are none, or none where keys need one.
    """
    from facetline.facets import errors

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
    from facetline.facets import errors

    for name in answers:
        if name not in definition.questions:
            guess = errors.nearest(name, definition.questions)
            known = ", ".join(definition.questions)
            raise errors.UnknownFacet(f"collection '{definition.name}' has no question '{name}'{guess}; it has {known}")


def _check_fields(known: "Mapping[str, str]", named: "Collection[str]") -> None:
    """Refuse columns for fields that the collection's state does not have.

    Raises:
        InvalidQuery: naming the field and the nearest one.
    """
    from facetline.facets import errors

    for name in named:
        if name not in known:
            has = ", ".join(known) or "no fields"
            raise errors.InvalidQuery(f"the state has no field '{name}'{errors.nearest(name, known)}; it has {has}")


class ImportCommand(typer.core.TyperCommand):
    """The command with an option whose value may be left out, which typer does not have: `--only-columns [FIELD]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare `--only-columns` an empty value."""
        whole: list[str] = []
        for word, after in zip(args, [*args[1:], "-"], strict=True):
            whole.append(word)
            if word == "--only-columns" and after.startswith("-"):
                whole.append("")
        return super().parse_args(ctx, whole)


class _Import:
    """One run: what was sent, and what became of it."""

    def __init__(
        self, pipeline: "Pipeline", definition: "Definition", scope: str | None, *, allow_refused: bool, keys: bool
    ) -> None:
        from facetline.streams.files.repeated_keys import RepeatedKeys

        self._pipeline = pipeline
        self._definition = definition
        self._scope = scope
        self._source = f"facetline/import/{uuid.uuid4()}"
        self._allow_refused = allow_refused
        self._keys = RepeatedKeys() if keys else None
        self._head_refused: str | None = None
        self.sent = 0
        self.written = 0
        self.unchanged = 0
        self.remembered = 0
        self.failed: list[tuple[str, int, str]] = []
        self.refused: list[dict[str, Any]] = []
        self.refused_count = 0
        self.lost: list[dict[str, Any]] = []
        self.lost_lines = 0

    async def write(self, rows: "Iterator[Row | Refusal]", write_many: "Callable[..., Awaitable[list[Any]]]") -> None:
        """Write all rows, in order, by `write_many`; nothing at all when most of the first ones would be refused."""
        from facetline.streams.files.documents import Refusal

        active = await self._pipeline.definitions()
        is_head = True
        with output.Progress("written", None) as progress:
            async for chunk in _chunks(rows):
                refusals = [row for row in chunk if isinstance(row, Refusal)]
                good = [row for row in chunk if not isinstance(row, Refusal)]
                wanted = [self._document(row) for row in good]
                for refusal in refusals:
                    self._refuse(refusal)
                if is_head and self._refuses_head(active, good, wanted):
                    return
                is_head = False
                results = await write_many(active, wanted, source=self._source, collection=self._definition.name)
                taken = [row for row, result in zip(good, results, strict=True) if self._count(row, result)]
                if self._keys is not None:
                    self._keys.add([(row.uri or row.key or "", row.line) for row in taken])
                progress.at(self.sent + self.refused_count)

    def _refuses_head(self, active: Any, rows: "list[Row]", wanted: list[Any]) -> bool:
        """Judge the head of the file before anything is written; most of it refused: the file is another one."""
        from facetline.facets import errors
        from facetline.streams import pipeline

        judged = pipeline.judge_many(active, wanted, source=self._source, collection=self._definition.name)
        bad = [(row, each) for row, each in zip(rows, judged, strict=True) if isinstance(each, errors.InvalidEvent)]
        refused, many = self.refused_count + len(bad), self.refused_count + len(rows)
        if self._allow_refused or refused < HEAD_REFUSED_MIN or 2 * refused <= many:
            return False
        for row, each in bad:
            self._count(row, each)
        self._head_refused = (
            f"{refused} of the first {many} records would be refused, so nothing was written; correct the file or the"
            " options, or pass --allow-refused to write the others"
        )
        return True

    async def try_out(self, rows: "Iterator[Row | Refusal]", *, json_: bool) -> None:
        """Show what writing the rows would do, and what it would cost."""
        from facetline.streams import import_plan

        with import_plan.DryRun(self._pipeline, self._definition) as dry:
            await self.write(rows, dry.write_many)
            estimate = await dry.estimate()
        if self._head_refused:
            output.error(self._head_refused)
        if json_:
            output.result({"dry_run": True, **self._result(), **import_plan.shown(estimate)})
            return
        self._show_lines()
        self._note_empty()
        output.text(
            f"{self.written} would be written, {self.unchanged} are unchanged, {self.refused_count} would be refused"
        )
        cost = "cost unknown" if estimate.cost_usd is None else f"about ${estimate.cost_usd:.4f}"
        asked = (
            f"{counted(estimate.documents, 'document')} would be classified: at most {counted(estimate.calls, 'call')}"
        )
        output.text(f"{asked}, about {estimate.tokens} tokens, {cost}")

    def _document(self, row: "Row") -> Any:
        from facetline.streams.pipeline import NewDocument

        uri = row.uri
        if uri is None:
            scope = f"@{self._scope}/" if self._scope else ""
            uri = f"{scope}{self._definition.pattern.rstrip('*')}{row.key}"
        return NewDocument(uri, row.body, row.state, str(row.line), row.facets, row.evaluation)

    def _count(self, row: "Row", result: Any) -> bool:
        """Count what became of a row; say whether it was taken."""
        from facetline.facets.errors import InvalidEvent
        from facetline.streams.files.documents import Refusal

        if isinstance(result, InvalidEvent):
            self._refuse(Refusal(row.line, f"{result.reason}: {result.message}"))
            return False
        self.sent += 1
        if result is not None:
            self.written += result.outcome == "applied"
            self.unchanged += result.outcome == "unchanged"
        return True

    def _refuse(self, refusal: "Refusal") -> None:
        self.refused_count += 1
        last = refusal.last_line or refusal.line
        if refusal.lost:
            self.lost_lines += last - refusal.line + 1
        if len(self.refused) < REFUSED_KEPT_MAX:
            more = {} if last == refusal.line else {"last_line": last}
            self.refused.append({"line": refusal.line, "reason": refusal.reason, **more})
            if refusal.lost:
                self.lost.append({"line": refusal.line, "last_line": last, "lines": last - refusal.line + 1})

    async def end(self, wait: documents.Wait, *, json_: bool) -> None:
        """Wait as `wait` does; what was written is shown also when its answers are known not to come."""
        from facetline.facets import errors

        try:
            await self.wait(wait)
        except (errors.EvaluatorMisconfigured, errors.EvaluatorUnavailable):
            self.show(json_=json_)
            raise

    async def wait(self, wait: documents.Wait) -> None:
        """Wait until workers have applied what was sent, and until it is answered."""
        from facetline.storage.queue import queue

        applied = self.written + self.unchanged
        if applied < self.sent and wait != "none":
            await self._wait_applied()
        if wait == "answered":
            await wait_answered(self._pipeline, self._definition.name, self._source)
            self.remembered = await self._pipeline.store.read(queue.remembered, self._source)
            self.failed = await self._pipeline.store.read(queue.failed, self._source)

    async def _wait_applied(self) -> None:
        from facetline.storage.log import outcomes
        from facetline.streams.files.documents import Refusal

        reported = False
        started = time.monotonic()
        with output.Progress("applied", self.sent) as progress:
            while True:
                looked_s = time.monotonic()
                tally = await self._pipeline.store.read(outcomes.tally, self._source)
                progress.at(sum(tally.values()))
                if sum(tally.values()) >= self.sent:
                    break
                if not tally and not reported and time.monotonic() - started > NO_WORKER_S:
                    output.note("nothing has been applied yet; is a 'facetline worker' running?")
                    reported = True
                await running.rest(APPLIED_POLL_S, looked_s)
        self.written, self.unchanged = tally.get("applied", 0), tally.get("unchanged", 0)
        after = ""
        while page := await self._pipeline.store.read(outcomes.rejected, self._source, after=after):
            for each in page:
                self._refuse(Refusal(int(each.id), f"{each.reason}: {each.message}"))
            after = page[-1].id

    def show(self, *, json_: bool) -> None:
        """Show what became of the file."""
        if json_:
            output.result(self._result())
        else:
            self._show_lines()
            self._note_empty()
            known = self.written + self.unchanged
            if known < self.sent:  # what a worker will make of them was not waited for
                output.text(f"{self.sent} sent and not waited for, {self.refused_count} refused")
            else:
                output.text(f"{self.written} written, {self.unchanged} unchanged, {self.refused_count} refused")
            if self.remembered:
                reused = counted(self.remembered, "answer was", "answers were")
                output.note(f"{reused} reused at no cost")
            self._show_failed()
        if self._head_refused:
            output.error(self._head_refused)

    def _note_empty(self) -> None:
        if not (self.written + self.unchanged + self.sent + self.refused_count):
            output.note("the file has no records: it is empty, or has a header alone")

    def _result(self) -> dict[str, Any]:
        self.refused.sort(key=lambda refusal: int(refusal["line"]))
        return {
            "sent": self.sent,
            "written": self.written,
            "unchanged": self.unchanged,
            "failed": sum(many for _, many, _ in self.failed),
            "refused": self.refused,
            "lost": self.lost,
            "duplicates": [] if self._keys is None else self._keys.listed(),
        }

    def _show_lines(self) -> None:
        """Show the first refusals, what was lost with them, and keys that stand more than once."""
        self.refused.sort(key=lambda refusal: int(refusal["line"]))
        for refusal in self.refused[:REFUSED_SHOWN_MAX]:
            first, last = refusal["line"], refusal.get("last_line")
            lines = f"line {first}" if last is None else f"lines {first} to {last} ({last - first + 1} lines)"
            output.note(f"{lines} refused, {refusal['reason']}")
        if self.refused_count > REFUSED_SHOWN_MAX:
            output.note(f"… and {self.refused_count - REFUSED_SHOWN_MAX} more refused; --json lists them")
        if self.lost_lines:
            output.note(
                f"{self.lost_lines} lines are lost in records that cannot be read; other records may be in them"
            )
        if self._keys is None:
            return
        repeated = self._keys.listed()
        for each in repeated[:REFUSED_SHOWN_MAX]:
            output.note(f"key {each['key']!r} stands in lines {', '.join(map(str, each['lines']))}; the last one wins")
        if len(repeated) > REFUSED_SHOWN_MAX or self._keys.unlisted:
            output.note("… and more keys that stand several times; --json lists the first 1,000")
        if not self._keys.complete:
            output.note("keys that stand several times were not all looked for: no room for a temporary file")

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
    from facetline.storage.queue import queue

    waiting = most = await pipeline.store.read(queue.unanswered, source)
    with output.Progress("answered", most) as progress:
        while waiting:
            looked_s = time.monotonic()
            if await pipeline.unavailability(collection) is not None:  # then this count is the last one
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
    from facetline.facets import errors

    if pipeline.work is not None and collection in pipeline.work.side_chain.stats.not_active:
        raise errors.Conflict(
            f"collection '{collection}' was given another definition meanwhile; {waiting} documents stay pending, for"
            " a command that has it, or after 'facetline collections apply'"
        )
    stands = await pipeline.unavailability(collection)
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
    from facetline.facets import private_files

    if file == "-":
        return sys.stdin.buffer
    try:
        return private_files.open_regular(Path(file), pipes=True)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
