"""What only the Kafka runtime promises: deadlines in the broker's time, and what stands on its topics."""

import json
import time
import uuid
from typing import Any

import kafka_topics
import poison
import pytest
import runtimes
from polling import eventually
from runtimes import Case

from facetline.storage.log import documents
from facetline.storage.log.events import DeadLetter
from facetline.streams.kafka import topics
from facetline.streams.replay import redrive
from facetline.streams.wire import codec as wire
from facetline.streams.wire.codec import Message

HOUR_MS = 3_600_000

pytestmark = [pytest.mark.parametrize("site", runtimes.RUNTIMES[1:], indirect=True, scope="module")]


async def test_an_event_after_its_deadline_expires(case: Case):
    """Late events are dead letters and change nothing; a redrive drops the deadline and applies."""
    now_ms = time.time_ns() // 1_000_000

    def dated(key: str, deadline_ms: int) -> Message:
        text, event_id = case.body("billing"), uuid.uuid4().hex
        return wire.encode_write(
            case.uri(key), body=text, state=None, source="test", event_id=event_id, deadline_ms=deadline_ms
        )

    late, early = dated("late", now_ms - HOUR_MS), dated("early", now_ms + HOUR_MS)
    await case.produce(late, early)
    letter, none = await case.letters(late, early)
    absent = await case.pipeline.store.read(documents.get, case.uri("late"))
    await redrive.redrive(case.pipeline, ids=[letter.id if letter else 0], reason=None)
    await case.caught_up()
    (after,) = await case.settled("late")

    assert (letter and letter.reason, none, absent) == ("expired", None, None)
    assert after["status"] == "indexed"


async def test_the_dead_letter_topic_has_every_byte(case: Case):
    """Kafka's dead-letter topic: key, value and headers as they came, and where and why in headers of their own."""
    bad, _ = await poison.produced(case)
    letters = await case.letters(*(message for _, message in bad))
    kafka = case.site.settings.kafka
    topic = topics.topic_names(kafka.topic_prefix).dead_letters

    async def published() -> dict[tuple[str, int, int], Any] | None:
        records = await kafka_topics.contents(kafka, topic, 10_000, deadline_s=2.0)
        found = {}
        for record in records:
            said = {name.rpartition(".")[2]: value.decode() for name, value in record.headers if name.startswith("__")}
            found[said["topic"], int(said["partition"]), int(said["offset"])] = (record, said)
        return found if all(_place(letter) in found for letter in letters) else None

    found = await eventually(published, deadline_s=30.0, what="all dead letters are on their topic")
    for (reason, message), letter in zip(bad, letters, strict=True):
        record, said = found[_place(letter)]
        own = tuple(header for header in record.headers if not header[0].startswith("__facetline.errors."))

        assert (record.key, record.value, own) == (message.key, message.value, message.headers)
        assert (said["exception"], said["stage"], said["attempts"]) == (reason, _stage(reason), "1")
        assert said["message"]


def _place(letter: DeadLetter | None) -> tuple[str, int, int]:
    assert letter is not None
    return letter.position.topic, letter.position.partition, letter.position.offset


def _stage(reason: str) -> str:
    return "apply" if reason == "no_document" else "decode"


async def test_the_facets_topic_tells_every_document(case: Case):
    """The newest record of a key is the document as `get` shows it, without body; a deleted one is a tombstone."""
    case.on("no")
    await case.write("t1", "billing", state={"title": "a"})
    await case.write("t2", "billing fail=no")
    await case.write("t3", "billing")
    await case.delete("t3")
    kafka = case.site.settings.kafka
    topic = topics.topic_names(kafka.topic_prefix).facets
    wanted = {case.uri("t1"): "indexed", case.uri("t2"): "failed", case.uri("t3"): None}

    async def newest() -> dict[str, Any] | None:
        records = await kafka_topics.contents(kafka, topic, 10_000, deadline_s=2.0)
        last = {record.key.decode(): record for record in records}
        values = {uri: json.loads(last[uri].value) if last[uri].value else None for uri in wanted if uri in last}
        seen = {uri: value and value["status"] for uri, value in values.items()}
        return {uri: (last[uri], values[uri]) for uri in wanted} if seen == wanted else None

    found = await eventually(newest, deadline_s=30.0, what="the facets topic has the newest states")
    document = await case.get("t1")
    _, told = found[case.uri("t1")]
    tombstone, _ = found[case.uri("t3")]

    for name in ("uri", "version", "revision", "indexed_as", "status", "facets", "state"):
        assert told[name] == document[name]
    assert "body" not in told
    assert (told["evaluation"]["model"], told["source_event"]["topic"]) == ("folder-1", _documents_topic(case))
    assert dict(tombstone.headers)["ce_version"] == b"3"


def _documents_topic(case: Case) -> str:
    return str(topics.topic_names(case.site.settings.kafka.topic_prefix).documents)
