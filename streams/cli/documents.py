"""`write`, `get`, `delete`, `search`: one document, or a question about all of them."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

Wait = Literal["none", "applied", "answered"]
WaitOption = Annotated[Wait, typer.Option("--wait", help="What to wait for: nothing, the write, or its answers.")]
Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait, such as 500ms, 60s or 5m.")]
UriArgument = Annotated[str, typer.Argument(metavar="URI", help="Such as tickets/t1, or @alice/tickets/t1.")]
Id = Annotated[str | None, typer.Option("--id", help="Id of this event; the same id again is no second write.")]


BEGINNING_CHARS = 60
"""Shown of a text in a line of the table."""


def write(  # a command's parameters are its options
    uri: UriArgument,
    source: Annotated[str | None, typer.Argument(metavar="-", help="'-' reads the body from standard input.")] = None,
    body: Annotated[str | None, typer.Option("--body", help="The text.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file that holds the text.")] = None,
    state: Annotated[str | None, typer.Option("--state", help='Your own fields as JSON: {"title": "…"}')] = None,
    id_: Id = None,
    wait: WaitOption = "answered",
    timeout: Timeout = "60s",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Write a document; its facets are cleared at once and asked for again."""
    timeout_s = seconds(timeout)
    given = _body(source, body, file)
    fields = _state(state)
    if given is None and fields is None:
        raise typer.BadParameter("give a body (--body, --file or -) or --state")

    async def work() -> int | None:
        from facetline.streams import wiring

        settings = options.settings(config, folder)
        async with wiring.open_pipeline(settings, classify=wait == "answered") as pipeline:
            reply = await pipeline.write(uri, body=given, state=fields, event_id=id_, wait=wait, timeout_s=timeout_s)
            why = await _why_pending(pipeline, reply) if wait == "answered" else None
        _show(reply, json_=json_)
        if why:
            output.note(why)
        # Without a status it is not applied yet; `failed` is an end, and so is a later write.
        return running.UNANSWERED if wait == "answered" and reply.get("status", "pending") == "pending" else None

    running.run(work, again="what was written stays; the next write, import or reindex goes on with its answers")


def delete(
    uri: UriArgument,
    id_: Id = None,
    wait: WaitOption = "applied",
    timeout: Timeout = "60s",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Delete a document: body, state and facets go, its uri keeps counting."""
    timeout_s = seconds(timeout)

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder)) as pipeline:
            reply = await pipeline.delete(uri, event_id=id_, wait=wait, timeout_s=timeout_s)
        _show(reply, json_=json_)
        if reply.get("status") == "deleted" and "version" not in reply:
            output.note("there was no such document")
        return None

    running.run(work)


def get(
    uri: UriArgument, json_: options.Json = False, config: options.Config = None, folder: options.Folder = None
) -> None:
    """Show a document: body, state, answers, and when and by which model they were given."""

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            found = await pipeline.get(uri)
        if json_:
            output.result(found)
        else:
            _show_document(found)
        return None

    running.run(work)


def search(  # a command's parameters are its options
    collection: Annotated[str, typer.Argument(metavar="COLLECTION")],
    chosen: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUESTION=VALUE",
            help="topic=billing, urgent=yes, severity=annoying; a question twice: either; __missing__ too.",
        ),
    ] = None,
    min_confidence: Annotated[float | None, typer.Option("--min-confidence", help="0 to 1, inclusive.")] = None,
    filter_: options.Filter = None,
    scope: options.Scope = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="Columns, '-' for descending: -severity,doc_written_at")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Hits on a page.")] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where the page before ended.")] = None,
    counts: Annotated[str | None, typer.Option("--counts", help="Questions to count, with commas.")] = None,
    fields: options.Fields = None,
    q: options.Query = None,
    mode: options.Mode = None,
    words: options.Words = "any",
    exact: options.Exact = False,
    min_score: options.MinScore = None,
    grep: options.Grep = None,
    ignore_case: options.IgnoreCase = False,
    glob_: options.Glob = None,
    highlight: options.Highlight = False,
    ask: Annotated[
        str | None, typer.Option("--ask", help="A sentence to search by; it costs one call to the evaluator.")
    ] = None,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Find documents by their answers, words and lines. No model runs, but for --ask."""
    facets = chosen_facets(chosen or [])
    page = {"sort": sort or "", "limit": limit, "cursor": cursor, "counts": counts or "", "fields": fields}
    texts = {"q": q, "mode": mode, "words": words, "exact": exact, "min_score": min_score, "highlight": highlight}
    patterns = {"grep": grep, "ignore_case": ignore_case, "glob": glob_}
    given: dict[str, Any] = {**page, **texts, **patterns, "filter": filter_, "scope": scope}
    given["min_confidence"] = min_confidence

    async def work() -> int | None:
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            for warning in await pipeline.warnings(collection):
                output.note(f"warning: {warning}")
            if ask is not None:
                await _print_call_cost(pipeline, collection)
            reply = await pipeline.search(collection, facets, ask=ask, **given)
        if ask is not None:
            _show_understood(reply["asked"], facets)
        if json_:
            output.result(reply)
        else:
            _show_hits(reply)
        return None

    running.run(work)


async def _print_call_cost(pipeline: "Pipeline", collection: str) -> None:
    definition = await pipeline.definition(collection)
    evaluator, _limits = pipeline.asked_by(definition)
    cost = "" if evaluator.limits.is_free else ", which may cost money"
    output.note(f"--ask makes one call to evaluator '{definition.evaluator}' ({definition.model}){cost}")
    if evaluator.kind == "embedded":
        output.note("the embedded model understands sentences roughly: by their subjects, not by what they say of them")


def _show_understood(asked: dict[str, Any], given: dict[str, list[str]]) -> None:
    """Say what the sentence was taken for; what was given by name goes before it."""
    parts = [_understood(name, found) for name, found in asked["facets"].items() if name not in given]
    cost = "" if asked["cost_usd"] is None else f"; the call cost {asked['cost_usd']:.6f} USD"
    output.note(f"understood as: {'  '.join(parts) or 'nothing more than what was given'}{cost}")
    unsure = [_understood(name, found) for name, found in asked["unsure"].items()]
    if unsure:
        output.note(f"left out, for a confidence below 0.5: {'  '.join(unsure)}")
    if asked["unasked"]:
        output.note(f"not asked, for they have as many options as the evaluator takes: {', '.join(asked['unasked'])}")


def _understood(name: str, found: dict[str, Any]) -> str:
    confidence = "" if found["confidence"] is None else f" {found['confidence']:.2f}"
    return f"{name}={found['value']}{confidence}"


def seconds(text: str) -> float:
    """Return a span of time such as 500ms, 60s, 5m or 60 in seconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    for unit in ("ms", "s", "m"):
        if text.endswith(unit):
            number, factor = text[: -len(unit)], units[unit]
            break
    else:
        number, factor = text, 1.0
    try:
        span = float(number) * factor
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write it like 500ms, 60s or 5m") from None
    if not 0 <= span <= 86_400:  # noqa: PLR2004 (a day)
        raise typer.BadParameter(f"{text!r} is not between 0 and a day")
    return span


def _body(source: str | None, body: str | None, file: Path | None) -> str | None:
    from facetline.facets import private_files
    from facetline.facets.documents import BODY_BYTES_MAX

    if source not in {None, "-"}:
        raise typer.BadParameter(f"{source!r} is no body; use --body TEXT, --file PATH, or - for standard input")
    if sum(given is not None for given in (source, body, file)) > 1:
        raise typer.BadParameter("give the body once: --body, --file or -")
    if body is not None:
        return body
    try:
        if file is not None:
            with private_files.open_regular(file, pipes=True) as opened:
                raw = opened.read(BODY_BYTES_MAX + 1)
        elif source is not None:
            raw = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
        else:
            return None
        return raw.decode("utf-8", "strict" if len(raw) <= BODY_BYTES_MAX else "replace")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the body is not UTF-8: {error}") from error


def _state(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        state = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--state is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise typer.BadParameter('--state is not an object; write {"title": "…"}')
    return state


def chosen_facets(pairs: list[str]) -> dict[str, list[str]]:
    """Return the wanted values of QUESTION=VALUE pairs, by question."""
    facets: dict[str, list[str]] = {}
    for pair in pairs:
        question, equals, value = pair.partition("=")
        if not equals or not question:
            raise typer.BadParameter(f"{pair!r} is not QUESTION=VALUE, such as topic=billing")
        facets.setdefault(question, []).append(value)
    return facets


async def _why_pending(pipeline: "Pipeline", reply: dict[str, Any]) -> str | None:
    """Say why a write has no answers yet, and when it will have them, as far as is known."""
    from facetline.storage.log import documents

    if reply.get("status") != "pending":
        return None
    found = await pipeline.store.read(documents.get, reply["uri"])
    stands = None if found is None else await pipeline.unavailability(found.collection)
    return None if stands is None else stands.says(1, workers=pipeline.settings.runtime == "kafka")


def _show(reply: dict[str, Any], *, json_: bool) -> None:
    if json_:
        output.result(reply)
        return
    if "status" not in reply:
        output.text(f"{reply['uri']}  sent as event {reply['event_id']}, not applied yet")
        output.note(f"a 'facetline worker' applies it; then: facetline get {shlex.quote(reply['uri'])}")
        return
    version = f"  version {reply['version']}" if "version" in reply else ""
    reason = f" ({reply['reason']})" if reply.get("reason") else ""
    output.text(f"{reply['uri']}{version}  {reply['status']}{reason}  {output.answers(reply.get('facets'))}".rstrip())
    if reply["status"] == "failed":
        output.note(f"why: facetline get {shlex.quote(reply['uri'])}")


def _show_document(found: dict[str, Any]) -> None:
    reason = f" ({found['reason']}: {found['reason_message']})" if found["reason"] else ""
    rows = [("uri", found["uri"]), ("status", found["status"] + reason), ("answers", output.answers(found["facets"]))]
    evaluation = found["evaluation"]
    if evaluation:
        cached = ", remembered from an equal body" if evaluation["cached"] else ""
        source = evaluation["confidence_source"]
        way = "imported" if evaluation["kind"] == "imported" else "asked"
        rows.append((way, f"{evaluation['classified_at']} by {evaluation['model']}{cached}"))
        if found.get("outdated"):
            rows.append(("outdated", "the questions or the evaluator have changed since"))
        rows.append(("confidence", source or "none given"))
        rows.extend(("note", f"{name}: {value}") for name, value in (evaluation["notes"] or {}).items())
    rows.append(("state", json.dumps(found["state"], ensure_ascii=False) if found["state"] else ""))
    numbers = (f"{name} {found[name]}" for name in ("version", "revision", "indexed_as"))
    rows.append(("numbers", "  ".join(numbers)))
    calls = found["calls"]
    rows.append(("calls", f"{calls['made']} made, {calls['retries']} retries, {calls['crashes']} crashes"))
    output.table([(f"{name}:", value) for name, value in rows if value])
    output.text()
    output.text(found["body"] or "")


def _word(value: Any) -> str:
    """Say a bucket's value as a filter would."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _beginning(body: str | None) -> str:
    """Return how a text begins, in one line."""
    words = " ".join((body or "")[: 8 * BEGINNING_CHARS].split())
    return words if len(words) <= BEGINNING_CHARS else words[: BEGINNING_CHARS - 1] + "…"


def _line(hit: dict[str, Any]) -> str:
    """Return a hit's line with most of the words, and where it is."""
    place = f"{hit['line_range']['start']}: " if hit["line_range"] else ""
    return place + hit["snippet"] if hit["snippet"] else ""


def _show_hits(reply: dict[str, Any]) -> None:
    output.table(
        (
            hit["uri"],
            *([f"{hit['score']:.3f}"] if "score" in hit else []),
            (output.answers(hit["facets"]) or f"({hit['status']})") + ("  (outdated)" if hit.get("outdated") else ""),
            json.dumps(hit["state"], ensure_ascii=False) if hit["state"] else "",
            *([_beginning(hit["body"])] if "body" in hit else []),
            *([_line(hit)] if "snippet" in hit else []),
        )
        for hit in reply["hits"]
    )
    for facet in reply["facets"]:
        buckets = "  ".join(f"{_word(bucket['value'])} {bucket['count']}" for bucket in facet["buckets"])
        output.text(f"{facet['name']}: {buckets}  (missing {facet['missing']['count']})")
    for given, used in reply.get("search", {}).get("corrected", {}).items():
        output.note(f"no document has '{given}': looked for '{used}' (--exact: as written)")
    if "taken_as" in reply.get("search", {}):
        output.note(f"--grep is taken literally: {reply['search']['because']}")
    pending = reply["as_of"]["pending"]
    waiting = f", {pending} still pending" if pending else ""
    output.note(f"{reply['total']} found{waiting}, {reply['took_ms']:.1f} ms")
    if reply["next_cursor"]:
        output.note(f"more: --cursor {reply['next_cursor']}")
