"""The promises about answers of an earlier system, the same on both runtimes: kept, found, asked anew on demand."""

import json
from typing import Any

import pytest
from polling import eventually
from runtimes import ANSWERED_S, Case

from facetline.storage.jobs import model
from facetline.storage.jobs.model import JobRequest
from facetline.streams.reindex import requests
from facetline.streams.wire import codec

OUTAGE = {"topic": {"type": "choice", "choice": "outage", "confidence": 0.75}}


def imported(case: Case, key: str, body: str, facets: Any, event_id: str) -> codec.Message:
    """An import as any producer might send it."""
    return codec.encode_write(
        case.uri(key),
        body=case.body(body),
        state=None,
        source="old",
        event_id=f"{event_id}-{case.scope}",
        unless_equal=True,
        facets=facets,
        evaluation={"evaluator": "old", "model": "svm-3", "classified_at": "2025-01-02T03:04:05Z"},
    )


async def test_imported_answers_are_found_and_cost_nothing(case: Case):
    """A document is found by what came with it, is told to be outdated, and nobody is asked."""
    await case.produce(imported(case, "t1", "billing", OUTAGE, "a"))
    (document,) = await case.settled("t1")
    reply = await case.search({"topic": "outage"}, min_confidence=0.7)

    assert (document["status"], document["facets"]) == ("indexed", OUTAGE)
    assert document["evaluation"]["kind"] == "imported"
    assert document["evaluation"]["classified_at"] == "2025-01-02T03:04:05Z"
    assert [(hit["key"], hit["outdated"]) for hit in reply["hits"]] == [("t1", True)]
    assert case.calls("t1") == 0


async def test_only_a_reindex_asks_about_them(case: Case):
    """The outdated are asked anew on demand, once; the import run again does not bring the old answers back."""
    await case.produce(imported(case, "t1", "billing", OUTAGE, "a"))
    job = await requests.start(case.pipeline, JobRequest("tickets", case.scope, "outdated"))

    async def ended() -> bool:
        return (await requests.result(case.pipeline, job.id))["state"] not in model.ACTIVE

    await eventually(ended, deadline_s=ANSWERED_S, what="the job has ended")
    await case.produce(imported(case, "t1", "billing", OUTAGE, "b"))
    (document,) = await case.settled("t1")

    assert document["facets"]["topic"]["choice"] == "billing"
    assert document["evaluation"]["kind"] != "imported"
    assert case.calls("t1") == 1
    assert await case.keys("outage") == []


async def test_redelivered_imports_change_nothing(case: Case):
    """The same bytes in the log once more: no second version, no call."""
    message = imported(case, "t1", "billing", OUTAGE, "a")
    await case.produce(message)
    before = await case.settled("t1")
    await case.produce(message)

    assert await case.settled("t1") == before
    assert case.calls("t1") == 0


async def test_a_new_body_is_asked_about(case: Case):
    """Imported answers go with the body that they are about."""
    await case.produce(imported(case, "t1", "billing", OUTAGE, "a"))
    await case.write("t1", "billing again")
    (document,) = await case.settled("t1")

    assert document["facets"]["topic"]["choice"] == "billing"
    assert case.calls("t1") == 1


@pytest.mark.parametrize(
    ("facets", "message"),
    [
        ({"topic": {"type": "choice", "choice": "outtage"}}, "none of its options"),
        ({"topik": {"type": "choice", "choice": "outage"}}, "did you mean 'topic'?"),
    ],
)
async def test_what_does_not_fit_is_a_dead_letter(case: Case, facets: Any, message: str):
    """An unknown option or question rejects the event, with the reason; the document does not come to be."""
    bad = imported(case, "t1", "billing", facets, "a")
    await case.produce(bad)
    (letter,) = await case.letters(bad)

    assert letter is not None
    assert letter.reason == "invalid_facets"
    assert message in letter.message


async def test_the_import_command_keeps_them(case: Case):
    """NDJSON with --facets, plain answers too: lines with answers cost nothing, a bad one is refused alone."""
    rows = [
        {"uri": case.uri("t1"), "body": case.body("billing"), "facets": {"topic": "outage"}},
        {"uri": case.uri("t2"), "body": case.body("billing"), "facets": OUTAGE, "evaluation": {"model": "svm-3"}},
        {"uri": case.uri("t3"), "body": case.body("billing"), "facets": {"topic": "outtage"}},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    words = ("import", "-", "--collection", "tickets", "--json")
    without = case.site.place.run(*words, stdin=text)
    ended = case.site.place.run(*words, "--facets", stdin=text)
    again = case.site.place.run(*words, "--facets", stdin=text)

    assert [each["line"] for each in without.json["refused"]] == [1, 2, 3]
    assert "with --facets only" in without.json["refused"][0]["reason"]
    assert (ended.code, ended.json["written"]) == (1, 2)
    assert [each["line"] for each in ended.json["refused"]] == [3]
    assert "did you mean 'outage'?" in ended.json["refused"][0]["reason"]
    assert (again.json["written"], again.json["unchanged"]) == (0, 2)
    assert "imported:" in case.site.place.run("get", case.uri("t1")).out
    assert await case.keys("outage") == ["t1", "t2"]
    assert case.calls("t1") + case.calls("t2") == 0
