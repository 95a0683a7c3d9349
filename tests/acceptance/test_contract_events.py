"""The promises about events, the same cases on both runtimes: outcomes, redelivery, dead letters and redrive."""

import asyncio
import json
import uuid
from typing import Any

import poison
import pytest
from commands import Place
from runtimes import Case

from facetline.facets import errors
from facetline.storage.log import documents, outcomes
from facetline.storage.log.events import DeadLetter
from facetline.streams.replay import redrive
from facetline.streams.wire import codec as wire
from facetline.streams.wire.codec import Message


async def test_what_each_wait_returns(case: Case):
    """`none` returns the event's id, `applied` the write's numbers, `answered` the answers; all three took place."""
    none = await case.write("t1", "billing", wait="none", event_id=f"none-{case.scope}")
    applied = await case.write("t2", "billing", wait="applied")
    answered = await case.write("t3", "billing", wait="answered")
    await case.caught_up()
    (first,) = await case.settled("t1")

    assert none["uri"] == case.uri("t1")
    assert case.site.is_kafka == ("version" not in none)
    assert (applied["revision"], applied["indexed_as"]) == (1, 1)  # it may be answered by now, as version 2
    assert answered["facets"]["topic"]["choice"] == first["facets"]["topic"]["choice"] == "billing"


async def test_every_reply_to_a_write_has_its_event_id(case: Case):
    """Whatever was waited for, written or deleted, there or not, in Python and by a command with `--json`."""
    ids = [f"e{number}-{case.scope}" for number in range(6)]
    replies = [
        await case.write("t1", "billing", wait="none", event_id=ids[0]),
        await case.write("t2", "billing", wait="applied", event_id=ids[1]),
        await case.write("t2", state={"title": "x"}, wait="answered", event_id=ids[2]),
        await case.pipeline.delete(case.uri("t2"), event_id=ids[3]),
        await case.pipeline.delete(case.uri("never"), event_id=ids[4]),
    ]
    made = await case.write("t3", "billing", wait="applied")
    command = ("delete", case.uri("t3"), "--id", ids[5], "--json")
    printed = await asyncio.to_thread(case.site.place.run, *command)

    assert [reply["event_id"] for reply in replies] == ids[:5]
    assert uuid.UUID(made["event_id"])
    assert json.loads(printed.out)["event_id"] == ids[5]


async def test_the_same_event_again_is_no_second_write(case: Case):
    """A retry with the same id returns the first outcome, changes nothing and costs nothing."""
    first = await case.write("t1", "billing", event_id=f"e-{case.scope}")
    before = await case.get("t1")
    second = await case.write("t1", "billing", event_id=f"e-{case.scope}")

    assert {**second, "token": None} == {**first, "token": None}
    assert await case.get("t1") == before
    assert case.calls("t1") == 1


async def test_an_id_is_not_taken_twice(case: Case):
    """Another content under a settled id is refused, and the document stays."""
    first = await case.write("t1", "billing", event_id=f"e-{case.scope}")
    with pytest.raises(errors.InvalidEvent) as refused:
        await case.write("t1", "outage", event_id=f"e-{case.scope}")

    assert refused.value.reason == "id_reused"
    assert (await case.get("t1"))["version"] == first["version"]


async def test_redelivered_bytes_cause_no_call_and_no_change(case: Case):
    """The same records in the log once more: no document, no letter and no count of calls changes."""
    good = [case.message(f"t{number}", "billing") for number in range(3)]
    bad = Message(case.uri("t9").encode(), f"no json {case.scope}".encode(), (("ce_id", case.scope.encode()),))
    await case.produce(*good, bad)
    before = await case.settled("t0", "t1", "t2")
    (letter,) = await case.letters(bad)
    await case.produce(*good, bad)
    after = await case.settled("t0", "t1", "t2")

    assert after == before
    assert letter is not None
    assert await case.letters(*good) == [None] * 3
    assert sum(case.calls(f"t{number}") for number in range(3)) == 1  # equal bodies, one call


async def test_a_change_of_state_clears_nothing(case: Case):
    """A write of state alone keeps body and answers, and counts one version up."""
    first = await case.write("t1", "billing", state={"title": "a"})
    second = await case.write("t1", state={"priority": 3})
    after = await case.get("t1")

    assert second["version"] == first["version"] + 1
    assert (after["state"], after["facets"]) == ({"priority": 3}, first["facets"])
    assert (after["revision"], after["indexed_as"]) == (first["revision"], first["indexed_as"])
    assert case.calls("t1") == 1


async def test_what_a_node_can_judge_is_refused_before_it_is_sent(case: Case):
    """A wrong uri, state or text is refused with its reason, and leaves no trace."""
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("unknown_collection", {"uri": "nowhere/t1", "body": "x"}),
        ("invalid_uri", {"uri": f"{case.uri('t1')}/../t2", "body": "x"}),
        ("invalid_state", {"uri": case.uri("t1"), "body": "x", "state": {"priority": "high"}}),
        ("invalid_state", {"uri": case.uri("t1"), "state": {"nonsense": 1}}),
        ("invalid_text", {"uri": case.uri("t1"), "body": "a\0b"}),
        ("invalid_text", {"uri": case.uri("t1"), "body": "\ud800"}),
        ("too_large", {"uri": case.uri("t1"), "body": "x" * (512 * 1024 + 1)}),
    ]
    reasons = []
    for _, write in wrong:
        with pytest.raises(errors.InvalidEvent) as refused:
            await case.pipeline.write(write.pop("uri"), **write)
        reasons.append(refused.value.reason)

    assert reasons == [reason for reason, _ in wrong]
    assert await case.pipeline.store.read(documents.get, case.uri("t1")) is None


async def test_state_of_an_absent_document_is_refused(case: Case):
    """State alone makes no document; what refused it is told, and kept as a dead letter."""
    with pytest.raises(errors.InvalidEvent) as refused:
        await case.write("t1", state={"title": "a"})

    assert refused.value.reason == "no_document"


async def test_bad_events_become_dead_letters_and_hold_nothing_up(case: Case):
    """Each bad event is a dead letter with its reason and its bytes; each good neighbour is indexed."""
    bad, good = await poison.produced(case)
    letters = await case.letters(*(message for _, message in bad))
    settled = await case.settled(*(f"g{number}" for number in range(len(good))))

    assert [letter.reason if letter else None for letter in letters] == [reason for reason, _ in bad]
    assert {letter.attempts for letter in letters if letter} == {1}
    assert all(letter.message for letter in letters if letter)
    assert {each["status"] for each in settled} == {"indexed"}


async def test_a_reused_id_on_the_log_is_a_dead_letter(case: Case):
    """Two events of one id with two contents: the first stands, the second is a dead letter, and its writer can ask."""
    first, second = case.message("t1", "billing", "one"), case.message("t1", "outage", "one")
    await case.produce(first, second)
    (document,) = await case.settled("t1")
    letters = await case.letters(first, second)

    assert document["facets"]["topic"]["choice"] == "billing"
    assert [letter.reason if letter else None for letter in letters] == [None, "id_reused"]


async def test_a_dead_letter_is_sent_again_when_its_cause_is_gone(case: Case):
    """A letter of a collection that comes later is applied by a redrive, under its own id, and closed."""
    name = f"later_{case.scope}"
    late = wire.encode_write(f"{name}/t1", body="billing", state=None, source="test", event_id=case.scope)
    await case.produce(late)
    before = (await case.letters(late))[0]
    in_vain = await _redrive(case, before)
    still = (await case.letters(late))[0]
    case.site.define(more=[name])
    applied = Place(case.site.folder, case.site.place.settings).run("collections", "apply", "--json")
    await _redrive(case, still)
    after = (await case.letters(late))[0]
    document = await case.pipeline.store.read(documents.get, f"{name}/t1")
    outcome = await case.pipeline.store.read(outcomes.find, "test", case.scope)

    assert (before and before.reason, before and before.state) == ("unknown_collection", "open")
    assert in_vain
    assert (still and still.state, still and still.attempts) == ("open", 2)
    assert {"collection": name, "changed": True} in [
        {key: line[key] for key in ("collection", "changed")} for line in applied.lines
    ]
    assert (after and after.state, document and document.body) == ("redriven", "billing")
    assert outcome is not None
    assert (outcome.outcome, outcome.version) == ("applied", 1)


async def _redrive(case: Case, letter: DeadLetter | None) -> list[dict[str, Any]]:
    assert letter is not None
    results = await redrive.redrive(case.pipeline, ids=[letter.id], reason=None)
    await case.caught_up()
    return results


async def test_a_redrive_never_overtakes_a_later_write(case: Case):
    """A letter whose document has taken a later event is closed as superseded, and the document stays as it is."""
    early = Message(case.uri("t1").encode(), b'{"state": {"title": "old"}}', (("x-test", case.scope.encode()),))
    await case.produce(early)
    await case.produce(case.message("t1", "billing"))
    before = (await case.settled("t1"))[0]
    letter = (await case.letters(early))[0]
    await _redrive(case, letter)
    after = (await case.letters(early))[0]

    assert letter is not None
    assert letter.reason == "no_document"
    assert after is not None
    assert after.state == "superseded"
    assert (await case.settled("t1"))[0] == before
