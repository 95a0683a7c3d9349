"""Something to explore: a hundred support tickets with recorded answers, and the page over them on a free port.

The numbers are those of the user stories: billing 37, bug 12, feature 20, praise 0, other 28, and 3 without an answer.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import serving as serving_process
import uvicorn
from commands import Place

from facetline.facets.api.application import application
from facetline.facets.backend import LOCAL
from facetline.facets.explorer import routes
from facetline.streams import wiring
from facetline.streams.pipeline import NewDocument, Pipeline
from facetline.streams.serve.node import PipelineNode, open_node
from facetline.streams.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "streams" / "samples"
COUNTS = {"billing": 37, "bug": 12, "feature": 20, "praise": 0, "other": 28}
UNANSWERED = 3
TOTAL = 100
LEVELS = ("cosmetic", "a nuisance", "annoying", "costs us money", "work is blocked")
_OF_SAMPLE = {
    "billing": "billing",
    "outage": "bug",
    "login": "bug",
    "feature": "feature",
    "delivery": "other",
    "other": "other",
}
START_S = 60.0

CONFIGURATION = """\
[evaluators.triage]
kind = "recorded"
path = "answers.ndjson"

[collections.support]
pattern = "support/*"
evaluator = "triage"
state = { title = "string", priority = "integer" }

[collections.support.questions.topic]
type = "choice"
ask = "What is this support ticket about?"

[collections.support.questions.topic.options]
billing = "Charges, payments, refunds, invoices, prices and plans"
bug = "Something is down, slow or broken, or somebody cannot sign in"
feature = "Something is asked for that is not there yet"
praise = "Thanks, and nothing else"
other = "None of these"

[collections.support.questions.urgent]
type = "boolean"
ask = "Does the customer need an answer today?"

[collections.support.questions.severity]
type = "score"
ask = "How bad is it for the customer?"
levels = LEVELS
"""


SCRIPT = "<script>document.title='taken'</script>"
IMAGE = '"><img src=x onerror="document.title=\'taken\'">'
PROBES = f"""
[collections.probes]
pattern = "probes/**"
evaluator = "triage"
state = {{ title = "string", note = "string" }}

[collections.probes.questions.kind]
type = "choice"
ask = {json.dumps(f"What {SCRIPT}?")}
[collections.probes.questions.kind.options]
{json.dumps(SCRIPT)} = {json.dumps(IMAGE)}
{json.dumps(IMAGE)} = "…"
"a & b 'c' %27" = "…"
other = "…"

[collections.probes.questions.how]
type = "score"
ask = "How?"
levels = [{json.dumps(IMAGE)}, "it's {{{{ 7001 * 7 }}}}"]
"""
"""A collection whose every text tries to be more than text."""
NOTES = """
[collections.notes]
pattern = "notes/*"
evaluator = "triage"
scoped = true

[collections.notes.questions.mood]
type = "choice"
ask = "In what mood?"
options = { calm = "Calm", angry = "Angry" }
"""
"""A collection with scopes."""


@dataclass(frozen=True)
class Ticket:
    """One document and the recorded answers to it, None where there are none."""

    key: str
    body: str
    state: dict[str, Any]
    answers: dict[str, Any] | None
    scope: str = ""


@dataclass(frozen=True)
class Explored:
    """A page that is served: `run` runs a coroutine of the pipeline where it lives."""

    url: str
    pipeline: Pipeline
    node: PipelineNode
    run: Callable[[Any], Any]


def tickets() -> list[Ticket]:
    """Return the documents, always the same ones."""
    labels = json.loads((SAMPLES / "labels.json").read_text())
    lines = [json.loads(line) for line in (SAMPLES / "tickets.ndjson").read_text().splitlines()]
    by_topic: dict[str, list[Any]] = {}
    for line in lines:
        by_topic.setdefault(_OF_SAMPLE[labels[line["key"]]["topic"]], []).append(line)
    topics = [topic for topic, count in COUNTS.items() for _ in range(count)] + ["other"] * UNANSWERED
    # Spread out, so that a page shows several kinds: 37 and 100 have no common divisor.
    order = [topics[(number * 37) % TOTAL] if number < TOTAL else "" for number in range(TOTAL)]
    unanswered = {number for number in range(TOTAL) if (number * 37) % TOTAL >= TOTAL - UNANSWERED}
    used: dict[str, int] = {}
    found = []
    for number, topic in enumerate(order):
        line = by_topic[topic][used.setdefault(topic, 0) % len(by_topic[topic])]
        used[topic] += 1
        answers = None if number in unanswered else _answers(number, topic)
        # Equal texts would share one answer.
        body = line["body"] if used[topic] <= len(by_topic[topic]) else f"{line['body']}\n\n(Sent again, {number}.)"
        found.append(Ticket(f"d-{number + 1}", body, line["state"], answers))
    return found


def _answers(number: int, topic: str) -> dict[str, Any]:
    sure = (99, 97, 94, 91, 88, 83, 96, 72, 64, 43)[number % 10] / 100
    left = dict(zip([each for each in COUNTS if each != topic], (5, 3, 1, 1), strict=True))
    distribution = {topic: sure, **{name: round((1 - sure) * part / 10, 4) for name, part in left.items()}}
    probability = (92, 8, 71, 15, 4, 55, 31)[number % 7] / 100
    score = (3.6, 0.2, 1.4, 2.2, 2.9, 0.8)[number % 6]
    return {
        "topic": {"type": "choice", "choice": topic, "confidence": sure, "probabilities": distribution},
        "urgent": {"type": "boolean", "value": probability >= 0.5, "probability": probability, "confidence": None},
        "severity": {
            "type": "score",
            "score": score,
            "level": LEVELS[round(score)],
            "confidence": round(sure - 0.1, 2),
        },
    }


def probes() -> list[Ticket]:
    """Return documents whose uris, bodies and state try to be more than text."""
    kind = {"type": "choice", "choice": SCRIPT, "confidence": 0.9, "probabilities": {SCRIPT: 0.9, IMAGE: 0.1}}
    kind["probabilities"] |= {"a & b 'c' %27": 0.0, "other": 0.0}
    how = {"type": "score", "score": 0.0, "level": IMAGE, "confidence": 0.8}
    keys = (SCRIPT.replace("/", "|"), "a b?c=d#e%2F&amp;", "'\";|", "日本/été", "{{ 7001 * 7 }}")
    return [
        Ticket(key, f"{SCRIPT} {number} {IMAGE}", {"title": IMAGE, "note": SCRIPT}, {"kind": kind, "how": how})
        for number, key in enumerate(keys)
    ]


def notes() -> list[Ticket]:
    """Return documents of two scopes: three of alice's, two of bob's."""
    mood = {"mood": {"type": "choice", "choice": "calm", "confidence": 0.9}}
    scopes = ("alice", "alice", "alice", "bob", "bob")
    return [Ticket(f"n{place}", f"Note {place} of {scope}", {}, mood, scope) for place, scope in enumerate(scopes)]


def define(folder: Path, given: Sequence[Ticket], *, more: str = "") -> None:
    """Write a configuration, with `more` collections, and the answers to these documents."""
    text = CONFIGURATION.replace("= LEVELS", f"= {json.dumps(LEVELS)}") + more
    (folder / "facetline.toml").write_text(text, encoding="utf-8")
    lines = [json.dumps({"key": each.key, "answers": each.answers}) for each in given if each.answers is not None]
    (folder / "answers.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


@asynccontextmanager
async def opened(folder: Path, *, classify: bool = True) -> AsyncIterator[tuple[Pipeline, PipelineNode]]:
    """Open a pipeline and its node over what `define` wrote."""
    settings = load_settings(config=folder / "facetline.toml", data_folder=folder / ".facetline")
    async with wiring.open_pipeline(settings, classify=classify) as pipeline, open_node(pipeline) as node:
        yield pipeline, node


async def write(pipeline: Pipeline, given: Sequence[Ticket], collection: str = "support") -> None:
    """Write documents; those that are there already stay as they are."""
    rows = [
        NewDocument(f"@{each.scope}/{path}" if each.scope else path, each.body, each.state, f"{each.scope}/{path}")
        for each in given
        for path in (f"{collection}/{each.key}",)
    ]
    await pipeline.write_many(await pipeline.definitions(), rows, source="tests", collection=collection)


async def settled(node: PipelineNode, collection: str = "support", *, total: int = TOTAL, waits: bool = False) -> None:
    """Wait until every document is answered, or cannot be (`waits`: is there), and the views say so."""
    async with asyncio.timeout(START_S):
        while True:
            counts: Mapping[str, int] = (await node.strip(LOCAL, collection))["counts"]
            if sum(counts.values()) == total and (waits or not counts["pending"]):
                return
            await asyncio.sleep(0.05)


@contextmanager
def serving(
    folder: Path,
    given: Mapping[str, Sequence[Ticket]] | None = None,
    *,
    classify: bool = True,
    around: Callable[[PipelineNode], Any] = lambda node: node,
) -> Iterator[Explored]:
    """Serve the page over documents by collection from a thread of its own; the folder has what `define` wrote.

    `around` returns the node to serve in place of the pipeline's own.
    """
    documents = {"support": tickets()} if given is None else given
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        found["loop"] = asyncio.get_running_loop()
        async with opened(folder, classify=classify) as (pipeline, node):
            await _answer(pipeline, node, documents, waits=not classify)
            app = application(around(node), loopback=True, parts=[routes.part])
            listening = socket.create_server(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
            found.update(server=server, pipeline=pipeline, node=node)
            found["url"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
            ready.set()
            await server.serve(sockets=[listening])

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found["error"] = error
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="served")
    thread.start()
    ready.wait(2 * START_S)
    if "url" not in found:
        raise RuntimeError("the page is not served") from found.get("error")
    try:
        yield Explored(
            found["url"],
            found["pipeline"],
            found["node"],
            lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, found["loop"]).result(START_S),
        )
    finally:
        found["server"].should_exit = True
        thread.join(START_S)


@contextmanager
def command(folder: Path, given: Mapping[str, Sequence[Ticket]]) -> Iterator[str]:
    """Run `facetline serve` over documents by collection; the folder has what `define` wrote. Yields the address."""
    with ThreadPoolExecutor(1) as apart:  # a browser's driver has a loop in this thread
        apart.submit(asyncio.run, _answered(folder, given)).result()
    with serving_process.serve_process(Place(folder)) as running:
        yield running.url


async def _answered(folder: Path, given: Mapping[str, Sequence[Ticket]]) -> None:
    async with opened(folder) as (pipeline, node):
        await _answer(pipeline, node, given, waits=False)


async def _answer(
    pipeline: Pipeline, node: PipelineNode, given: Mapping[str, Sequence[Ticket]], *, waits: bool
) -> None:
    for collection, listed in given.items():
        await write(pipeline, listed, collection)
        await settled(node, collection, total=len(listed), waits=waits)


def until(condition: Callable[[], bool], *, deadline_s: float = 15.0) -> bool:
    """Say whether a condition holds before the deadline; asked again and again."""
    ends = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True
