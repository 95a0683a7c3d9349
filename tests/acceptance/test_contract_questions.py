"""A collection's questions change while documents are asked about, on both runtimes: nothing mixes, nothing is lost."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import runtimes
from polling import eventually
from runtimes import ANSWERED_S, Case, Site

from facetline.facets import errors
from facetline.storage.jobs import model
from facetline.storage.jobs.model import JobRequest
from facetline.streams.reindex import requests

BEFORE, AFTER = ("billing", "outage", "other"), ("billing", "sales", "other")


@pytest.fixture(params=runtimes.RUNTIMES)
def own_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A place of the test's own: it changes the configuration file."""
    with runtimes.made(request.param, tmp_path, request.getfixturevalue) as site:
        site.define(options=BEFORE)
        yield site


async def working(site: Site, stack: AsyncExitStack, like: Case | None = None) -> Case:
    """Start whoever asks, by the file as it is now; the case of a second start has the documents of the first."""
    if site.is_kafka:
        stack.enter_context(site.worker())
    case = await stack.enter_async_context(runtimes.case(site, classify=not site.is_kafka))
    case.scope = case.scope if like is None else like.scope
    return case


async def outdated(case: Case) -> dict[str, bool]:
    """Which documents' hits say that they are outdated."""
    return {hit["key"]: hit.get("outdated", False) for hit in (await case.search())["hits"]}


@pytest.mark.timeout(240)
async def test_a_question_changes_under_way(own_site: Site):
    """Answers of before stay, outdated; who has the old questions asks and stores nothing under the new ones.

    A removed option is found and offered no more, and counts as outdated until a reindex has asked anew.
    """
    async with AsyncExitStack() as old:
        case = await working(own_site, old)
        await case.write("t1", "billing")
        await case.write("t2", "outage")
        case.on("gate")
        await case.write("t3", "billing hold=gate", wait="applied")
        await case.called("t3")
        own_site.define(options=AFTER)
        applied = own_site.place.run("collections", "apply")
        case.off("gate")
        (late,) = await case.settled("t3")
        await case.write("t4", "sales", wait="applied")

        assert applied.code == 0, applied.err
        assert late["facets"]["topic"]["choice"] == "billing"
        assert case.calls("t4") == 0
        assert (await outdated(case)).items() >= {"t1": True, "t2": True, "t3": True}.items()
        assert (await case.get("t4"))["status"] == "pending"
        reply = await case.search({"topic": "billing"}, counts="topic")
        (facet,) = reply["facets"]
        assert sorted(reply["keys"]) == ["t1", "t3"]
        assert [bucket["value"] for bucket in facet["buckets"]] == list(AFTER)
        assert (facet["missing"]["outdated"], facet["missing"]["pending"]) == (1, 1)
        with pytest.raises(errors.UnknownValue, match="outage"):
            await case.search({"topic": "outage"})

    async with AsyncExitStack() as new:
        case = await working(own_site, new, case)
        (fresh,) = await case.settled("t4")
        job = await requests.start(case.pipeline, JobRequest("tickets", case.scope, "outdated"))

        async def ended() -> bool:
            return (await requests.result(case.pipeline, job.id))["state"] not in model.ACTIVE

        await eventually(ended, deadline_s=ANSWERED_S, what="the job has ended")

        assert fresh["facets"]["topic"]["choice"] == "sales"
        told = await requests.result(case.pipeline, job.id)
        assert sorted(told["reindexed"]) == [case.uri(key) for key in ("t1", "t2", "t3")]
        assert await outdated(case) == dict.fromkeys(("t1", "t2", "t3", "t4"), False)
        assert await case.topic("t2") == "other"
        assert [case.calls(key) for key in ("t1", "t2", "t3", "t4")] == [2, 2, 2, 1]
