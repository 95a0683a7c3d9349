"""A topic's records as lines, from a real Kafka: what kcat prints, all of it, in order, and where to go on.

Method: topics of one or three partitions are filled with whatever producers may send, and read by ourselves and kcat.
"""

import asyncio
import io
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kafka_topics
import pytest
from commands import Place, finish, interrupt

from facetline.facets.errors import BrokerUnavailable, InvalidQuery
from facetline.streams.files import kcat as event_files
from facetline.streams.files.kcat import Line, Recorded
from facetline.streams.kafka import topics
from facetline.streams.replay import recorder as recording
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec
from facetline.streams.wire.codec import Message

pytestmark = pytest.mark.kafka


def message(number: int, key: bytes | None = None) -> Message:
    """One of many."""
    return Message(key or f"tickets/{number}".encode(), f'{{"body": "{number}"}}'.encode())


ODD = [
    kafka_topics.write("tickets/a", "Größe 💶\u2028"),
    Message(b"tickets/b", None, (("ce_id", b"1"), ("ce_id", b"2"), ("none", b""))),
    Message(None, b""),
    Message(b"\xff\x00", b"\xed\xa0\x80", (("odd", b"\xfe"),)),
    Message(b"", b'"\\u0000\x01\n\\"'),
]


async def read(settings: KafkaSettings, wanted: Mapping[int, recording.Span] | None = None) -> list[Recorded]:
    """Record all of the documents topic."""
    topic = topics.topic_names(settings.topic_prefix).documents
    recorder = recording.Recorder(settings, topic, wanted or await recording.spans(settings, topic))
    return [each async for chunk in recorder.chunks() for each in chunk]


def kcat(settings: KafkaSettings) -> bytes:
    """What kcat prints of the documents topic."""
    topic = topics.topic_names(settings.topic_prefix).documents
    words = ["-C", "-b", str(settings.bootstrap_servers), "-t", topic, "-e", "-q", "-J"]
    command = ["kcat", *words, "-X", "isolation.level=read_committed"]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat (Debian: apt-get install kcat)")
async def test_lines_say_what_kcats_say(kafka_bootstrap: str, topic_prefix: str):
    """Records of every odd kind: kcat's lines are read as the records that we read, and ours have kcat's members."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix)
    await kafka_topics.fill(settings, ODD)
    await kafka_topics.odd_header(settings)
    ours = await read(settings)
    printed = await asyncio.to_thread(kcat, settings)
    theirs = [each.recorded for each in event_files.read(io.BytesIO(printed)) if isinstance(each, Line)]

    assert theirs == ours
    assert [each.raw.value for each in ours[:5]] == [message.value for message in ODD]
    plain = json.loads(event_files.encode(ours[0]))
    assert list(plain) == [name for name in json.loads(printed.splitlines()[0]) if name != "broker"]


async def test_only_what_was_committed_is_recorded(kafka_bootstrap: str, topic_prefix: str):
    """Aborted records and markers are passed, also at the very end, and the recorder ends."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix)
    await kafka_topics.transaction(settings, [message(1)], commit=True)
    await kafka_topics.transaction(settings, [message(2)], commit=False)
    await kafka_topics.fill(settings, [message(3)])
    await kafka_topics.transaction(settings, [message(4)], commit=False)

    assert [each.raw.value for each in await read(settings)] == [b'{"body": "1"}', b'{"body": "3"}']


async def test_partitions_are_merged_by_time(kafka_bootstrap: str, topic_prefix: str):
    """All records come once, in the order of the log's time, and each partition's in its own order."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=3)
    for number in range(12):
        await kafka_topics.fill(settings, [message(number)], partition=number % 3)
    await kafka_topics.fill(settings, [message(number) for number in range(12, 1_500)])
    found = await read(settings)

    times = [each.raw.timestamp_ms or 0 for each in found]
    assert times == sorted(times)
    assert sorted(int(json.loads(each.raw.value or b"")["body"]) for each in found) == list(range(1_500))
    for partition in range(3):
        offsets = [each.offset for each in found if each.partition == partition]
        assert offsets == list(range(len(offsets)))


async def test_spans_begin_where_they_are_told(kafka_bootstrap: str, topic_prefix: str):
    """Partitions and offsets can be chosen; what the log does not have is refused and says what it has."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=2)
    topic = topics.topic_names(topic_prefix).documents
    await kafka_topics.fill(settings, [message(number) for number in range(5)], partition=1)
    await kafka_topics.truncate(settings, 2, partition=1)
    wanted = await recording.spans(settings, topic, starts={1: 3})

    assert wanted == {1: recording.Span(3, 5)}
    assert [each.offset for each in await read(settings, wanted)] == [3, 4]
    assert await recording.spans(settings, topic, partitions=[1]) == {1: recording.Span(2, 5)}
    for given, said in (
        ({"starts": {1: 1}}, "begins at 2 and ends at 5"),
        ({"starts": {1: 6}}, "begins at 2 and ends at 5"),
        ({"partitions": [2]}, "has no partition 2; it has 0 to 1"),
    ):
        with pytest.raises(InvalidQuery, match=said):
            await recording.spans(settings, topic, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidQuery, match="there is no topic nobodys"):
        await recording.spans(settings, f"nobodys{topic_prefix}")


async def test_nothing_to_read_needs_no_broker():
    """Spans without an offset end at once, and are where they began."""
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    recorder = recording.Recorder(settings, "any", {0: recording.Span(7, 7)})

    assert [chunk async for chunk in recorder.chunks()] == []
    assert recorder.at == {0: 7}


async def test_a_broker_that_is_away_is_named():
    """Without a broker the recording ends with an error that names it."""
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1")

    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        await recording.spans(settings, "any")


def lines(text: str) -> list[int]:
    """The numbers in recorded lines; each line must be whole."""
    return [int(json.loads(json.loads(line)["payload"])["body"]) for line in text.splitlines()]


def place(folder: Path, settings: KafkaSettings) -> Place:
    """A folder in which commands reach the broker."""
    given = {"BOOTSTRAP_SERVERS": str(settings.bootstrap_servers), "TOPIC_PREFIX": settings.topic_prefix}
    return Place(folder, {f"FACETLINE_KAFKA__{name}": value for name, value in given.items()})


def fill(settings: KafkaSettings, numbers: Sequence[int]) -> None:
    """Produce messages."""
    asyncio.run(kafka_topics.fill(settings, [message(number) for number in numbers]))


@pytest.mark.slow
def test_an_interrupted_recording_says_where_to_go_on(kafka_bootstrap: str, topic_prefix: str, tmp_path: Path):
    """While it follows, what comes is printed; Ctrl-C leaves whole lines, and the rest is had with its offsets."""
    settings = asyncio.run(kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=2))
    where = place(tmp_path, settings)
    fill(settings, range(5))
    process: Any = where.start("record", "--follow")
    first = "".join(process.stdout.readline() for _ in range(5))
    fill(settings, range(5, 9))
    first += "".join(process.stdout.readline() for _ in range(4))
    ended = interrupt(process)
    fill(settings, range(9, 12))
    (at,) = [line.rpartition(" ")[2] for line in ended.err.splitlines() if "--from-offsets" in line]
    rest = where.run("record", "--from-offsets", at)

    assert (ended.code, ended.out) == (130, "")
    assert "9 records; what comes after them: --from-offsets 0:" in ended.err
    assert sorted(lines(first)) == list(range(9))
    assert (rest.code, sorted(lines(rest.out))) == (0, [9, 10, 11])


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_the_recording(kafka_bootstrap: str, topic_prefix: str, tmp_path: Path):
    """A closed pipe is no crash: the command ends, and says where it was."""
    settings = asyncio.run(kafka_topics.make(kafka_bootstrap, topic_prefix))
    fill(settings, range(3_000))
    process: Any = place(tmp_path, settings).start("record")
    process.stdout.readline()
    process.stdout.close()
    code, said = process.wait(60), process.stderr.read()
    process.stderr.close()

    assert code == 1
    assert "--from-offsets 0:" in said
    assert "Traceback" not in said


def test_without_a_broker_there_is_nothing_to_record(tmp_path: Path):
    """The local runtime keeps no log: a usage error, which says so."""
    done = finish(Place(tmp_path).start("record"))

    assert (done.code, done.out) == (2, "")
    assert "keeps no log" in " ".join(done.err.split())


async def test_types_of_events_are_known_to_both(kafka_bootstrap: str, topic_prefix: str):
    """What stands in a real topic is judged for replay as it was: a broker's time is on every line."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix)
    late = codec.encode_write("tickets/a", body="x", state=None, source="s", event_id="1", deadline_ms=1_000)
    await kafka_topics.fill(settings, [late])
    (found,) = await read(settings)
    told = json.loads(event_files.encode(found))

    assert told["tstype"] == "logappend"
    assert told["ts"] > 1_000
