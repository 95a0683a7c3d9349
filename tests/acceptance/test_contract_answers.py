"""The promises about answers, the same cases on both runtimes: cleared first, never stale, never paid twice."""

import asyncio
from typing import Any

import pytest
from polling import eventually
from runtimes import Case

from facetline.facets import errors


async def test_an_answered_write_is_found_by_its_answer(case: Case):
    """The reply to a write that waited has the facets, and a search finds the document by them."""
    reply = await case.write("t1", "billing", state={"title": "Charged twice", "priority": 2})
    found = await case.search({"topic": ["billing", "outage"]}, counts="topic")

    assert (reply["status"], reply["version"], reply["revision"], reply["indexed_as"]) == ("indexed", 2, 1, 1)
    assert reply["facets"]["topic"] == {"type": "choice", "choice": "billing", "confidence": 0.9}
    assert [(hit["uri"], hit["state"]) for hit in found["hits"]] == [
        (case.uri("t1"), {"title": "Charged twice", "priority": 2})
    ]
    assert case.calls("t1") == 1


async def test_a_rewrite_clears_the_old_answer_at_once(case: Case):
    """From the moment a rewrite is applied the old answer is gone everywhere, while the new one is only asked for."""
    await case.write("t1", "billing")
    case.on("gate")
    reply = await case.write("t1", "outage hold=gate", wait="applied")
    await case.called("t1", 2)
    document, by_old = await case.get("t1"), await case.search({"topic": "billing"}, counts="topic")
    missing, excluded = await case.keys("__missing__"), await case.search(filter="NOT topic = 'billing'")
    case.off("gate")
    (after,) = await case.settled("t1")

    assert (reply["status"], reply["facets"]) == ("pending", None)
    assert (document["status"], document["facets"]) == ("pending", None)
    assert (by_old["total"], by_old["keys"]) == (0, [])
    assert by_old["facets"][0]["missing"]["pending"] == 1
    assert (missing, excluded["keys"]) == (["t1"], ["t1"])
    assert (after["facets"]["topic"]["choice"], after["indexed_as"]) == ("outage", reply["indexed_as"])
    assert await case.keys("billing") == []


async def test_a_stale_answer_is_discarded(case: Case):
    """A slow first answer that comes after a quick second one changes nothing, and no search ever showed it."""
    case.on("slow")
    await case.write("t1", "billing hold=slow", wait="applied")
    await case.called("t1")
    second = await case.write("t1", "outage")
    before = await case.tally("answers_discarded")
    shown: list[dict[str, Any]] = []
    watching = asyncio.create_task(_watch(case, shown))
    case.off("slow")
    await case.discarded("answers_discarded", before)
    await eventually(lambda: len(shown) > 5, what="somebody has looked at it since")
    watching.cancel()
    after = await case.get("t1")

    assert (second["status"], second["facets"]["topic"]["choice"]) == ("indexed", "outage")
    assert (after["version"], after["indexed_as"]) == (second["version"], second["indexed_as"])
    assert after["facets"] == second["facets"]
    assert {hit["facets"]["topic"]["choice"] for hit in shown} == {"outage"}


async def _watch(case: Case, shown: list[dict[str, Any]]) -> None:
    while True:
        shown += (await case.search())["hits"]
        await asyncio.sleep(0.01)


async def test_a_stale_answer_does_not_settle_a_pending_rewrite(case: Case):
    """The late answer comes while the rewrite's own call still runs: the document stays pending until that ends."""
    case.on("first")
    case.on("second")
    await case.write("t1", "billing hold=first", wait="applied")
    await case.called("t1")
    rewrite = await case.write("t1", "outage hold=second", wait="applied")
    await case.called("t1", 2)
    before = await case.tally("answers_discarded")
    case.off("first")
    await case.discarded("answers_discarded", before)
    between = await case.get("t1")
    case.off("second")
    (after,) = await case.settled("t1")

    assert (between["status"], between["facets"], between["version"]) == ("pending", None, rewrite["version"])
    assert (after["facets"]["topic"]["choice"], after["indexed_as"]) == ("outage", rewrite["indexed_as"])
    assert case.calls("t1") == 2


async def test_a_deleted_document_stays_deleted(case: Case):
    """An answer that comes after the delete brings nothing back."""
    case.on("slow")
    await case.write("t1", "billing hold=slow", wait="applied")
    await case.called("t1")
    deleted = await case.delete("t1")
    before = await case.tally("answers_discarded")
    case.off("slow")
    await case.discarded("answers_discarded", before)

    assert (deleted["status"], (await case.search())["total"]) == ("deleted", 0)
    with pytest.raises(errors.NotFound):
        await case.get("t1")


async def test_a_recreated_document_has_only_its_own_answers(case: Case):
    """The first life's answer arrives last, and changes nothing in the second life; versions go on counting."""
    case.on("slow")
    await case.write("t1", "billing hold=slow", wait="applied")
    await case.called("t1")
    deleted = await case.delete("t1")
    created = await case.write("t1", "outage")
    before = await case.tally("answers_discarded")
    case.off("slow")
    await case.discarded("answers_discarded", before)
    after = await case.get("t1")

    assert created["indexed_as"] > deleted["version"] > 1
    assert (after["facets"], after["version"]) == (created["facets"], created["version"])
    assert after["facets"]["topic"]["choice"] == "outage"


async def test_there_and_back_again(case: Case):
    """A → B → A while the first A is still asked about: three writes, settled under the last, A paid for once."""
    case.on("slow")
    first = await case.write("t1", "billing hold=slow", wait="applied")
    await case.called("t1")
    await case.write("t1", "outage", wait="applied")
    third = await case.write("t1", "billing hold=slow", wait="applied")
    before = await case.tally("answers_discarded")
    case.off("slow")
    await case.discarded("answers_discarded", before)
    (after,) = await case.settled("t1")

    assert third["revision"] - first["revision"] >= 2
    assert (after["facets"]["topic"]["choice"], after["indexed_as"]) == ("billing", third["indexed_as"])
    assert case.calls("t1", "billing hold=slow") == 1


async def test_a_late_failure_fails_nothing(case: Case):
    """A first call that fails after the rewrite was answered, and one that fails while it is asked about: no matter."""
    case.on("no")
    for key, second in (("answered", "outage"), ("asked", "outage hold=second")):
        case.on("first")
        case.on("second")
        await case.write(key, "billing hold=first fail=no", wait="applied")
        await case.called(key)
        await case.write(key, second, wait="answered" if key == "answered" else "applied")
        await case.called(key, 2)
        before = await case.tally("failures_discarded")
        case.off("first")
        await case.discarded("failures_discarded", before)
        between = (await case.get(key))["status"]
        case.off("second")
        (after,) = await case.settled(key)

        assert between == ("indexed" if key == "answered" else "pending")
        assert (after["status"], after["facets"]["topic"]["choice"]) == ("indexed", "outage")


async def test_failed_and_blank_documents_match_no_value(case: Case):
    """What has no answer is found by no value, only as missing; counts say why, and add up."""
    case.on("no")
    await case.write("good", "billing")
    failed = await case.write("bad", "billing fail=no")
    blank = await case.pipeline.write(case.uri("blank"), body=" \n", timeout_s=45)
    reply = await case.search(counts="topic")
    by_value = [await case.keys(value) for value in ("billing", "outage", "other")]
    facet = reply["facets"][0]

    assert (failed["status"], failed["reason"], failed["facets"]) == ("failed", "refused", None)
    assert (blank["status"], blank["facets"]) == ("empty", None)
    assert by_value == [["good"], [], []]
    assert await case.keys("__missing__") == ["bad", "blank"]
    assert sorted((await case.search(filter="topic <> 'outage' OR topic IS NULL"))["keys"]) == ["bad", "blank", "good"]
    assert (facet["missing"]["failed"], facet["missing"]["empty"], facet["total"]) == (1, 1, 3)
    assert sum(bucket["count"] for bucket in facet["buckets"]) + facet["missing"]["count"] == 3


async def test_trouble_that_passes_is_tried_again(case: Case):
    """An evaluator that is away makes the document wait, which is counted as a retry; then it is indexed."""
    case.on("later")
    await case.write("t1", "billing away=later", wait="applied")
    await case.called("t1", 2)
    between = await case.get("t1")
    case.off("later")
    (after,) = await case.settled("t1")

    assert (between["status"], between["facets"]) == ("pending", None)
    assert after["status"] == "indexed"
    assert case.calls("t1") == after["calls"]["made"] <= 1 + after["calls"]["retries"]


async def test_equal_bodies_are_asked_about_once(case: Case):
    """Many documents of one scope with one body cost one call, also when they come at the same time."""
    await asyncio.gather(*(case.write(f"t{number}", "outage") for number in range(6)))

    assert sum(case.calls(f"t{number}") for number in range(6)) == 1
    assert await case.keys("outage") == [f"t{number}" for number in range(6)]


async def test_a_write_never_waits_for_the_model(case: Case):
    """While every call slot hangs, writes, searches and deletes go on; `answered` gives up with the state as it is."""
    case.on("hang")
    for number in range(8):
        await case.write(f"h{number}", f"billing {number} hold=hang", wait="applied")
    for number in range(8):
        await case.called(f"h{number}")
    waited = await case.write("t1", "outage", timeout_s=3)
    deleted = await case.delete("h0")
    missing = await case.keys("__missing__")
    case.off("hang")
    (after,) = await case.settled("t1")

    assert (waited["status"], waited["facets"]) == ("pending", None)
    assert (deleted["status"], len(missing)) == ("deleted", 8)
    assert after["status"] == "indexed"


async def test_a_writer_whose_write_was_passed_is_told(case: Case):
    """Waiting for answers ends when a later write has taken over, and says so."""
    case.on("hang")
    waiting = asyncio.create_task(case.write("t1", "billing hold=hang"))
    await case.called("t1")
    await case.write("t1", "outage", wait="applied")
    reply = await waiting
    case.off("hang")
    await case.settled("t1")

    assert (reply["status"], reply["facets"]) == ("superseded", None)


async def test_a_bad_key_is_told_to_whoever_waits_and_mends_by_itself(case: Case):
    """A write that waits ends early with the reason, nothing fails, and when the key works the answer comes."""
    case.on("key")
    reply = await case.write("t1", "billing badkey=key", timeout_s=600.0)
    stands = await case.pipeline.unavailability("tickets")
    case.off("key")
    (after,) = await case.settled("t1")

    assert (reply["status"], reply["reason"]) == ("pending", None)
    assert stands is not None
    assert stands.says(1, workers=case.site.is_kafka).startswith(
        "tickets is paused: it cannot be used (unavailable: 401: the key is refused); fix its key"
    )
    assert after["status"] == "indexed"
    await eventually(lambda: _answers(case), what="the word is taken back")


async def _answers(case: Case) -> bool:
    return await case.pipeline.unavailability("tickets") is None
