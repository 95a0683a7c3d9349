"""Recorded events sent again: the same numbers in a fresh store, nothing at all in one that has seen them.

Method: events stand at places of a topic, are applied as a worker would, and are replayed through the local runtime;
outcomes, documents and calls are compared.
"""

import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from polling import eventually

from facetline.facets.documents import EventReason
from facetline.facets.errors import InvalidEvent
from facetline.storage import definitions
from facetline.storage.log import dead_letters, outcomes, positions
from facetline.storage.log import documents as documents_
from facetline.storage.log.events import Outcome, Raw
from facetline.streams.files import kcat
from facetline.streams.files.kcat import Line, Recorded, Refusal
from facetline.streams.local import open_local
from facetline.streams.pipeline import Pipeline
from facetline.streams.replay import replayer
from facetline.streams.replay.pacing import Pace
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent

TOPIC = "shop.documents.v1"
CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"
[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"
state = { title = "string" }
[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Anything else" }
"""
BODIES = ("I was charged twice", "Nothing works", "Refund, please")
LATE_MS = 1_900_000_000_000


@asynccontextmanager
async def opened(folder: Path, *, classify: bool = False) -> AsyncIterator[Pipeline]:
    """A local pipeline in a folder of its own."""
    _prepare(folder)
    async with open_local(config=folder / "facetline.toml", folder=folder / "data", classify=classify) as pipeline:
        if not classify:
            await pipeline.store.write(_activate, pipeline)
        yield pipeline


def _prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "facetline.toml").write_text(CONFIG)
    answer = {"topic": {"type": "choice", "choice": "billing", "confidence": 0.5}}
    known = [json.dumps({"body": body, "answers": answer}) + "\n" for body in BODIES]
    (folder / "answers.ndjson").write_text("".join(known))


def _activate(tx: Any, pipeline: Pipeline) -> None:
    assert pipeline.project is not None
    definitions.activate(tx, pipeline.project.definitions)


def write(key: str, body: str | None, event_id: str, **more: Any) -> wire.Message:
    """A write of a document."""
    state = more.pop("state", None)
    return wire.encode_write(f"tickets/{key}", body=body, state=state, source="shop", event_id=event_id, **more)


def history() -> list[wire.Message]:
    """Three documents: rewritten, stateful, deleted and written again, imported with answers; one event has no id."""
    return [
        write("a", BODIES[0], "1", deadline_ms=LATE_MS + 5_000),
        write("b", BODIES[1], "2"),
        write("a", BODIES[1], "3"),
        write("c", None, "4", state={"title": "too early"}),
        write("a", None, "5", state={"title": "T"}),
        wire.encode_delete("tickets/b", source="shop", event_id="6"),
        write("a", BODIES[1], "7", unless_equal=True),
        wire.Message(b"tickets/c", json.dumps({"body": BODIES[2]}).encode()),
        write("b", BODIES[0], "8"),
        write("c", BODIES[0], "9", facets={"topic": {"type": "choice", "choice": "other", "confidence": None}}),
    ]


def lines(messages: Sequence[wire.Message], *, incarnation: int | None = None) -> list[Line | Refusal]:
    """Messages as the lines of a recording; all of one partition, a second apart."""
    return [
        Line(number, Recorded(TOPIC, 0, number - 1, raw(message, number), incarnation, 1))
        for number, message in enumerate(messages, 1)
    ]


def raw(message: wire.Message, number: int) -> Raw:
    """A message as the log had it."""
    return Raw(message.key, message.value, message.headers, LATE_MS + 1_000 * number)


async def replay(pipeline: Pipeline, recorded: Sequence[Line | Refusal], **given: Any) -> replayer.Tally:
    """Replay lines."""
    active = given.pop("active", None) or await pipeline.definitions()
    return await replayer.Replay(pipeline, active, **given).run(iter(recorded))


async def documents(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Every document as it stands, without times."""
    found = {}
    for key in ("a", "b", "c"):
        document = await pipeline.store.read(documents_.get, f"tickets/{key}")
        found[key] = document.model_dump(exclude={"written_at", "evaluation"}) if document else {}
    return found


async def said(pipeline: Pipeline) -> list[Outcome | None]:
    """The outcome of each event that has an id."""
    return [await pipeline.store.read(outcomes.find, "shop", str(number)) for number in range(1, 10)]


async def test_a_fresh_store_gets_the_same_numbers(tmp_path: Path):
    """Each event has the outcome, version and indexed_as that it had where it was applied one by one at first."""
    async with opened(tmp_path / "first") as first, opened(tmp_path / "second") as second:
        for one in lines(history()):
            await replay(first, [one])
        tally = await replay(second, lines(history()))

        assert await said(second) == await said(first)
        assert await documents(second) == await documents(first)
    assert (tally.sent, tally.applied, tally.unchanged, dict(tally.rejected)) == (10, 8, 1, {"no_document": 1})


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_store_that_saw_the_events_takes_none(tmp_path: Path, forgotten: bool):
    """A second replay changes no document and makes no call, also when the outcomes are forgotten by then."""
    async with opened(tmp_path, classify=True) as pipeline:
        await replay(pipeline, lines(history()))
        await _answered(pipeline)
        before = await documents(pipeline)
        if forgotten:
            await pipeline.store.write(outcomes.purge, -1)
        tally = await replay(pipeline, lines(history()))
        await _answered(pipeline)

        assert await documents(pipeline) == before
        letters = await pipeline.store.read(dead_letters.find)
    assert before["a"]["facets"] is not None
    assert (tally.applied, tally.unchanged) == (0, 0)
    assert tally.known == (0 if forgotten else 9)
    assert [letter.reason for letter in letters] == []


async def _answered(pipeline: Pipeline) -> None:
    async def look() -> bool:
        return await replayer.pending(pipeline, {"tickets"}) == 0

    await eventually(look, deadline_s=20, what="nothing waits for an answer")


async def test_an_interrupted_replay_is_run_again(tmp_path: Path):
    """What had arrived is known, the rest is applied, and documents are as if nothing had happened."""
    async with opened(tmp_path / "whole") as whole, opened(tmp_path / "twice") as twice:
        await replay(whole, lines(history()))
        await replay(twice, lines(history())[:5])
        tally = await replay(twice, lines(history()))

        assert await documents(twice) == await documents(whole)
    assert tally.known == 4
    assert tally.applied + tally.unchanged == 5


async def test_what_was_too_late_stays_too_late(tmp_path: Path):
    """An event that was recorded after its deadline was never applied, and is not sent; others lose their deadline."""
    late = write("b", BODIES[0], "late", deadline_ms=LATE_MS)
    good = write("a", BODIES[0], "good", deadline_ms=LATE_MS + 60_000)
    async with opened(tmp_path) as pipeline:
        tally = await replay(pipeline, lines([late, good]))
        document = await pipeline.store.read(documents_.get, "tickets/a")
        missing = await pipeline.store.read(documents_.get, "tickets/b")
    sent = replayer.judge(lines([good])[0].recorded, 1, await _active(tmp_path))  # type: ignore[union-attr]

    assert [(number, reason.split(":")[0]) for number, reason in tally.refused] == [(1, "expired")]
    assert document is not None
    assert missing is None
    assert wire.DEADLINE_HEADER not in dict(sent.message.headers)


async def _active(folder: Path) -> Any:
    async with opened(folder) as pipeline:
        return await pipeline.definitions()


async def test_events_keep_their_bytes_and_say_where_they_stood(tmp_path: Path):
    """Key, value and headers are the recorded ones; the place in the log is added, unless an earlier one is there."""
    active = await _active(tmp_path)
    again = wire.Message(b"tickets/a", b'{"body": "x"}', ((wire.ORIGIN_HEADER, b"other/2/3/4"), ("own", b"\xff")))
    plain = wire.Message(b"tickets/a", b'{"body": "x"}', (("own", b"\xff"),))
    first, second = (replayer.judge(Recorded(TOPIC, 5, 6, raw(each, 1)), 7, active) for each in (plain, again))

    assert first.message == wire.Message(
        b"tickets/a", b'{"body": "x"}', (("own", b"\xff"), (wire.ORIGIN_HEADER, b"shop.documents.v1/7/5/6"))
    )
    assert second.message == again
    assert (first.event.redriven, second.event.redriven) == (True, True)
    assert (first.event.id, second.event.id) == ("7/5/6", "2/3/4")


async def test_bad_lines_are_refused_and_their_neighbours_sent(tmp_path: Path):
    """Damaged lines, dead letters, facets records and what a worker would reject are told by line; the rest arrives."""
    good = [kcat.encode(each.recorded) for each in lines(history()) if isinstance(each, Line)]
    letter = wire.Message(b"tickets/a", b"1", ((f"{wire.ERROR_HEADER}topic", b"x"),))
    facets = wire.Message(b"tickets/a", b"{}", (("ce_type", wire.FACETS.encode()),))
    unknown = wire.Message(b"nobodys/a", b'{"body": "x"}')
    odd = [kcat.encode(Recorded(TOPIC, 1, at, raw(each, 1))) for at, each in enumerate((letter, facets, unknown))]
    text = "".join([good[0], "{\n", odd[0], *good[1:3], odd[1], odd[2], *good[3:]])
    async with opened(tmp_path / "bad") as pipeline, opened(tmp_path / "good") as wanted:
        tally = await replay(pipeline, list(kcat.read(io.BytesIO(text.encode()))))
        await replay(wanted, lines(history()))

        assert await documents(pipeline) == await documents(wanted)
    assert [(number, reason.split(":")[0]) for number, reason in tally.refused] == [
        (2, "it is not one JSON object (Expecting property name enclosed in double quotes"),
        (3, "unknown_type"),
        (6, "unknown_type"),
        (7, "unknown_collection"),
    ]
    assert (tally.sent, tally.refused_count, tally.last) == (10, 4, 14)


async def test_without_a_pipeline_lines_are_only_judged(tmp_path: Path):
    """A dry run counts what would be sent and what would be refused."""
    bad = Refusal(11, "no record")
    tally = await replayer.Replay(None, await _active(tmp_path)).run(iter([*lines(history()), bad]))

    assert (tally.sent, tally.applied, tally.refused) == (10, 0, [(11, "no record")])


async def test_events_come_when_they_are_due(tmp_path: Path):
    """Under a pace each event is sent at its time, what comes before it first, and no two later than they must."""
    now_s, seen = [0.0], list[tuple[float, int]]()

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds

    async with opened(tmp_path) as pipeline:
        await replay(
            pipeline,
            lines(history()[:4]),
            pace=Pace(2.0),
            clock=lambda: now_s[0],
            sleep=sleep,
            on_progress=lambda line: seen.append((now_s[0], line)),
        )

    assert seen == [(0.0, 1), (0.5, 2), (1.0, 3), (1.5, 4)]


async def test_the_store_says_which_life_of_a_topic_a_record_is_of(tmp_path: Path):
    """A line without an incarnation is of the topic's newest one; a line's own word counts more."""
    message = wire.Message(b"tickets/a", json.dumps({"body": BODIES[0]}).encode())
    async with opened(tmp_path) as pipeline:
        await pipeline.store.write(positions.first_seen, TOPIC, 0, 0)
        await _made_anew(pipeline)
        await replay(pipeline, lines([message]))
        newest = await pipeline.store.read(outcomes.find, f"log:{TOPIC}", "2/0/0")
        await replay(pipeline, lines([message], incarnation=1))
        first = await pipeline.store.read(outcomes.find, f"log:{TOPIC}", "1/0/0")
        await replay(pipeline, lines([message], incarnation=3))
        told = await pipeline.store.read(outcomes.find, f"log:{TOPIC}", "3/0/0")

    assert newest is not None
    assert newest.outcome == "applied"
    assert first is not None
    assert (first.outcome, first.reason) == ("rejected", "superseded")
    assert told is not None
    assert told.outcome == "applied"


async def _made_anew(pipeline: Pipeline) -> None:
    def anew(tx: Any) -> None:
        positions.new_incarnation(tx, TOPIC, 0, after=1, start_offset=0)

    await pipeline.store.write(anew)


class Narrow:
    """A pipeline whose log takes no event about b, as a topic takes none that is too large; it knows no outcome."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.store = pipeline.store
        self.taken: list[str] = []

    async def append(self, sent: Sequence[Sent]) -> None:
        """Take all, or refuse all for one of them."""
        if any(each.event.uri == "tickets/b" for each in sent):
            raise InvalidEvent(EventReason.TOO_LARGE, "more than topics take")
        self.taken += [each.event.id for each in sent]


async def test_what_no_topic_takes_does_not_hold_up_the_others(tmp_path: Path):
    """One that the log refuses is refused by its line, and its neighbours are sent, in order."""
    async with opened(tmp_path) as pipeline:
        narrow: Any = Narrow(pipeline)
        tally = await replay(narrow, lines(history()), active=await pipeline.definitions())

    assert [number for number, _ in tally.refused] == [2, 6, 9]
    assert tally.refused[0][1] == "too_large: more than topics take"
    assert narrow.taken == ["1", "3", "4", "5", "7", "1/0/7", "9"]
    assert (tally.sent, tally.applied) == (7, 0)
