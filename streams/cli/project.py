"""`init`, `collections`, `doctor`, `config`: the configuration file, what is active, and whether all is well."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.facets.plurals import counted
from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from facetline.evaluators.contract import Evaluator
    from facetline.evaluators.embedders.contract import Embedder
    from facetline.storage.db.engine import Tx
    from facetline.storage.jobs.decisions import Mode
    from facetline.streams.settings import Settings

FIRST_BODY = "I was charged twice"
READY_S = 5.0
LOOK_S = 5.0
"""How long `doctor` tries again to reach a store that does not answer."""
OF_THE_STORE = {"calls", "topics", "worker"}
"""Checks that need the store."""
"""A worker answers within two seconds."""

collections_app = typer.Typer(
    help="Check the collections of the file, or make them the active ones.", no_args_is_help=True
)


def init(
    config: options.Config = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="Write samples.ndjson, too: 40 tickets to import.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a facetline.toml to start from: one collection, answered by the embedded model."""
    from importlib import resources

    from facetline.streams.settings import CONFIG_NAME

    path = config or Path(CONFIG_NAME)
    files = {path: "facetline.toml"} | ({path.with_name("samples.ndjson"): "tickets.ndjson"} if samples else {})
    for each in files:
        if each.exists() and not force:
            output.error(f"{each} is there already; pass --force to replace it")
            raise typer.Exit(running.FAILED)
    for each, name in files.items():
        text = resources.files("facetline.streams").joinpath("samples", name).read_text(encoding="utf-8")
        try:
            each.write_text(text, encoding="utf-8")
        except OSError as error:
            output.error(f"{each} cannot be written: {error.strerror}")
            raise typer.Exit(running.FAILED) from None
    following = "import samples.ndjson --collection tickets" if samples else f"write tickets/t1 --body '{FIRST_BODY}'"
    output.text(f"{' and '.join(map(str, files))} written. Next: facetline {following}")


@collections_app.command("check")
def check(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """Check the file: every problem is named, with the way out."""

    async def work() -> int | None:
        from facetline.streams import project as project_

        project = project_.load_project(options.settings(config, folder))
        for warning in project.warnings:
            output.note(f"warning: {warning}")
        for definition in project.definitions:
            if json_:
                output.result(definition.model_dump(mode="json"))
            else:
                questions = ", ".join(f"{name} ({each.type})" for name, each in definition.questions.items())
                embedding = definition.embedding
                vectors = "" if embedding is None else f"  embedder {embedding.embedder} ({embedding.model})"
                output.text(f"{definition.name}  {definition.pattern}  {definition.kind}  {questions}{vectors}")
        await project.close()
        return None

    running.run(work)


@collections_app.command("list", short_help="List the active collections.")
def list_(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """List the active collections, with their documents, and those of the file that are not active."""

    async def work() -> int | None:
        from facetline.storage import definitions
        from facetline.storage.log import documents
        from facetline.streams import wiring

        async with wiring.open_pipeline(options.settings(config, folder), writes=False) as pipeline:
            _, active = await pipeline.store.read(definitions.active)
            counts = await pipeline.store.read(documents.counts)
            own = {} if pipeline.project is None else pipeline.project.by_name
        known = {**own, **active.by_name}
        rows = [
            {
                "collection": name,
                "pattern": each.pattern,
                "evaluator": each.evaluator,
                "active": name in active.by_name,
                "differs": name in own and name in active.by_name and own[name] != each,
                "documents": {status: found for status, found in counts.get(name, {}).items() if status != "deleted"},
            }
            for name, each in sorted(known.items())
        ]
        if json_:
            for row in rows:
                output.result(row)
        else:
            output.table(_listed(row) for row in rows)
        return None

    running.run(work)


def _listed(row: dict[str, Any]) -> tuple[str, ...]:
    stands = "not active" if not row["active"] else "the file differs" if row["differs"] else "active"
    counted = ", ".join(f"{found} {status}" for status, found in row["documents"].items())
    return row["collection"], row["pattern"], row["evaluator"], stands, counted or "no documents"


@collections_app.command("apply", short_help="Make the file's definitions the active ones.")
def apply(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """Make the file's definitions the active ones: workers, API and views go by them from now on."""

    async def work() -> int | None:
        from facetline.storage import definitions
        from facetline.streams import project as project_
        from facetline.streams import wiring

        settings = options.settings(config, folder)
        project = project_.load_project(settings)
        for warning in project.warnings:
            output.note(f"warning: {warning}")
        async with wiring.open_store(settings) as store:
            activated = await store.write(definitions.activate, project.definitions)
            older = await store.read(_answers_to_older_questions, activated.names)
        await project.close()
        for definition in project.definitions:
            changed = definition.name in activated.names
            if json_:
                output.result(
                    {"collection": definition.name, "changed": changed, "fingerprint": definition.fingerprint}
                )
            else:
                output.text(f"{definition.name}  {'activated' if changed else 'was active already'}")
        for name, number in older.items():
            if number and not json_:
                answers = counted(number, "answer is", "answers are")
                output.note(f"{answers} to older questions; run facetline reindex {name} --outdated")
        return None

    running.run(work)


def config_(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """Print the settings in force, secrets masked."""

    async def work() -> int | None:
        from facetline.facets import masking

        settings = options.settings(config, folder)
        shown: dict[str, Any] = settings.model_dump(mode="json")
        shown = masking.masked({**shown, "store_url": settings.store, "runtime": settings.runtime})
        if json_:
            output.result(shown)
        else:
            output.table(_flat(shown))
        return None

    running.run(work)


def _flat(values: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            rows.extend(_flat(value, f"{before}{name}."))
        else:
            rows.append((before + name, "" if value is None else str(value)))
    return rows


def doctor(json_: options.Json = False, config: options.Config = None, folder: options.Folder = None) -> None:
    """Check everything that a run needs: file, store, evaluators, and Kafka where it is used."""

    async def work() -> int | None:
        settings = options.settings(config, folder)
        checks: list[tuple[str, Callable[[Settings], Coroutine[Any, Any, str]]]] = [
            ("collections", _check_project),
            ("store", _check_store),
            ("evaluators", _check_evaluators),
            ("calls", _check_calls),
        ]
        if settings.runtime == "kafka":
            checks += [("topics", _check_topics), ("worker", _check_worker)]
        results: list[dict[str, Any]] = []
        for name, check in checks:
            away = name in OF_THE_STORE and any(each["check"] == "store" and not each["ok"] for each in results)
            results.append(await _checked(name, _not_checked if away else check, settings))
        if not results[0]["ok"]:
            again = {"evaluators", "calls"}  # they can only say the same again
            results = [each for each in results if each["check"] not in again]
        if json_:
            for result in results:
                output.result(result)
        else:
            output.table(row for each in results for row in _lines(each))
        return None if all(each["ok"] for each in results) else running.FAILED

    running.run(work)


def _lines(result: dict[str, Any]) -> "Iterator[tuple[str, str, str]]":
    """Yield one check as rows of a table: its problems below each other."""
    message, name = "FAILED" if not result["ok"] else "PAUSED" if result["paused"] else "ok", result["check"]
    for line in str(result["detail"]).split("\n"):
        yield message, name, line.strip()
        message = name = ""


async def _checked(
    name: str, check_: "Callable[[Settings], Coroutine[Any, Any, str]]", settings: "Settings"
) -> dict[str, Any]:
    from facetline.facets import errors

    try:
        detail = await check_(settings)
        return {"check": name, "ok": True, "paused": isinstance(detail, _Paused), "detail": detail}
    except errors.PipelineError as error:
        return {"check": name, "ok": False, "paused": False, "detail": error.message}


class _Paused(str):
    """The detail of a check for something paused on purpose: neither a failure nor quite in order."""

    __slots__ = ()


def _answers_to_older_questions(tx: "Tx", collections: "Iterable[str]") -> dict[str, int]:
    """Return how many documents of each collection were answered under another fingerprint than the active one."""
    from facetline.storage.jobs import jobs
    from facetline.storage.jobs.model import JobRequest

    def documents(collection: str, mode: "Mode") -> int:
        return jobs.plan(tx, JobRequest(collection, mode=mode)).documents

    return {name: documents(name, "outdated") - documents(name, "missing") for name in collections}


async def _not_checked(settings: "Settings") -> str:
    del settings
    return "not checked: the store cannot be used"


async def _check_project(settings: "Settings") -> str:
    from facetline.streams import project as project_

    project = project_.load_project(settings)
    await project.close()
    named = ", ".join(each.name for each in project.definitions)
    return f"{settings.config}: {named}" + "".join(f"; warning: {warning}" for warning in project.warnings)


async def _check_store(settings: "Settings") -> str:
    from facetline.facets import errors
    from facetline.facets.documents import Status
    from facetline.storage import counters
    from facetline.storage.db import engine, health, json_rows
    from facetline.storage.log import dead_letters, documents
    from facetline.streams import wiring

    try:
        async with wiring.open_store(settings, create=False, deadline_s=LOOK_S) as store:
            counts = await store.read(documents.counts)
            message = await store.read(counters.all)
            whole = await store.read(health.check_pages)
            await store.write(health.write)
            letters, since_ms = await store.read(dead_letters.counts), await store.read(dead_letters.oldest_open_ms)
    except errors.NotFound as error:
        return f"not made yet: {error.message}"
    total = sum(
        number for found in counts.values() for status, number in found.items() if status != Status.DELETED.value
    )
    shown = engine.shown(settings.store)
    counted = "".join(f"; {count} {name.replace('_', ' ')}" for name, count in sorted(message.items()))
    if since_ms is not None:
        since = json_rows.moment(since_ms).strftime("%Y-%m-%d %H:%M:%S UTC")
        counted += f"; {sum(letters.values())} open dead letters since {since}: facetline dlq list"
    unchecked = "" if whole else f"; too large to check for damage within {health.CHECK_S:g} s"
    return f"{shown}: {total} documents{counted}{unchecked}"


async def _check_evaluators(settings: "Settings") -> str:
    """Ask every evaluator that costs nothing one small question, and embed one word where that costs nothing.

    Raises:
        EvaluatorMisconfigured: the variable of a key is not set.
    """
    from facetline.facets import errors
    from facetline.streams import project as project_

    project = project_.load_project(settings)
    given, unusable = [], False
    for definition in project.definitions:
        evaluator = project.evaluators[definition.evaluator]
        if settings.calls != "live":  # a question of ours is none for a recording
            given.append(f"{definition.evaluator} is {definition.kind}, calls: {settings.calls} {settings.calls_file}")
        elif definition.kind == "embedded":
            evaluated = await evaluator.evaluate("hello", definition.questions, key="doctor", deadline_s=60)
            given.append(f"{definition.evaluator} answers ({evaluated.model})")
        else:
            given.append(f"{definition.evaluator} is {definition.kind}, not asked{_key_missing(evaluator)}")
            unusable = unusable or bool(_key_missing(evaluator))
    for name, embedder in project.embedders.items():
        if settings.calls != "live":
            given.append(f"embedder {name} is {embedder.kind}, calls: {settings.calls} {settings.calls_file}")
        elif embedder.kind == "embedded":
            embedded = await embedder.embed(["hello"], purpose="query", deadline_s=60)
            given.append(f"embedder {name} answers ({embedded.model})")
        else:
            given.append(f"embedder {name} is {embedder.kind}, not asked{_key_missing(embedder)}")
            unusable = unusable or bool(_key_missing(embedder))
    await project.close()
    if unusable:
        raise errors.EvaluatorMisconfigured("; ".join(sorted(set(given))))
    return "; ".join(sorted(set(given)))


def _key_missing(asked: "Evaluator | Embedder") -> str:
    """Say that a key's variable is not set here, where calls cannot be made then."""
    import os

    from facetline.evaluators.chat import evaluator as chat
    from facetline.evaluators.decisions import evaluator as decisions
    from facetline.evaluators.embedders import hosted

    hosted_kinds = chat.Chat | decisions.Decisions | hosted.HostedEmbedder
    variable = asked.key_env if isinstance(asked, hosted_kinds) else None
    return f"; {variable} is not set here" if variable and not os.environ.get(variable, "").strip() else ""


async def _check_calls(settings: "Settings") -> str:
    """Say which evaluators do not answer or may spend no more today, as the store knows it.

    Raises:
        EvaluatorMisconfigured: one cannot be used now, and must be fixed.
    """
    from facetline.facets import errors
    from facetline.streams import project as project_
    from facetline.streams import wiring
    from facetline.streams.classify import availability

    project = project_.load_project(settings)
    await project.close()
    try:
        async with wiring.open_store(settings, create=False, deadline_s=LOOK_S) as store:
            found = await store.read(availability.survey, project.limits)
    except errors.NotFound:
        return "none was made yet"
    message = "\n".join(found.lines) or "No known problems"
    if found.broken:
        raise errors.EvaluatorMisconfigured(message)
    return _Paused(message) if found.paused else message


async def _check_topics(settings: "Settings") -> str:
    from facetline.streams import wiring
    from facetline.streams.kafka import topics

    async with wiring.open_store(settings) as store:
        found = await topics.check_topics(settings.kafka, store)
    return "; ".join(f"{name} has {partitions} partitions" for name, partitions in found.items())


async def _check_worker(settings: "Settings") -> str:
    """Ask the worker of this machine, if there is one, how it is; without one nothing may be left waiting.

    Raises:
        FatalError: it is not ready; or none is running, here or elsewhere, and documents wait.
    """
    import asyncio

    from facetline.facets import errors

    address = settings.worker_http
    if address == "off":
        return await _none_answers(settings, "worker_http is off")
    page = await asyncio.to_thread(_ready_page, f"http://{address}/readyz")
    if page is None:
        return await _none_answers(settings, f"none answers at {address}")
    if page.get("status") not in {"ready", "degraded"}:
        raise errors.FatalError(f"the one at {address} is not ready: {page.get('detail')}")
    wrong = "; ".join(f"{check['name']}: {check['detail']}" for check in page["checks"])
    return f"the one at {address} is {page['status']}{f': {wrong}' if wrong else ''}"


async def _none_answers(settings: "Settings", message: str) -> str:
    """Return what the store knows of workers elsewhere.

    Raises:
        FatalError: there is none, and documents wait.
    """
    from facetline.facets import errors
    from facetline.storage import processes
    from facetline.streams import wiring
    from facetline.streams.monitor import answering

    try:
        async with wiring.open_store(settings, create=False, deadline_s=LOOK_S) as store:
            found = await store.read(processes.answering)
    except errors.NotFound:
        return message
    if answering.is_amiss(found):
        raise errors.FatalError(f"{message}; {answering.says(found)}")
    return f"{message}; {answering.says(found)}"


def _ready_page(url: str) -> dict[str, Any] | None:
    """Return what a worker says of its readiness, None where none answers."""
    import json
    import urllib.error
    import urllib.request

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=READY_S) as reply:
            return dict(json.load(reply))
    except urllib.error.HTTPError as error:  # not ready is an answer, too
        with error:
            return dict(json.loads(error.read() or b"{}"))
    except (OSError, TypeError, ValueError):  # no process, or another one
        return None
