"""The promises about asking again, the same cases on both runtimes: reindex jobs, and imports that are run twice."""

import asyncio
import csv
import io
import json
from typing import Any

from polling import eventually
from runtimes import ANSWERED_S, Case

from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.decisions import Mode
from facetline.storage.jobs.model import JobRequest
from facetline.streams.reindex import requests


async def _started(case: Case, mode: Mode, text: str | None = None) -> str:
    return (await requests.start(case.pipeline, JobRequest("tickets", case.scope, mode, text))).id


async def _ended(case: Case, job_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        result = await requests.result(case.pipeline, job_id)
        return result if result["state"] not in model.ACTIVE else None

    return await eventually(look, deadline_s=ANSWERED_S, what="the job has ended")


async def _reindexed(case: Case, mode: Mode, text: str | None = None) -> dict[str, Any]:
    return await _ended(case, await _started(case, mode, text))


def _names(case: Case, *keys: str) -> list[str]:
    return [case.uri(key) for key in keys]


async def test_missing_asks_about_those_without_answers(case: Case):
    """The default takes exactly what failed; those that fail again are told as failed."""
    case.on("no")
    case.on("never")
    await case.write("good", "billing")
    await case.write("bad", "outage fail=no")
    await case.write("worse", "outage fail=never")
    case.off("no")
    plan = await requests.plan(case.pipeline, JobRequest("tickets", case.scope))
    result = await _reindexed(case, "missing")

    assert (plan.documents, plan.calls) == (2, 2)
    assert (result["reindexed"], result["failed"]) == (_names(case, "bad"), _names(case, "worse"))
    assert [case.calls(key) for key in ("good", "bad", "worse")] == [1, 2, 2]
    assert await case.keys("outage") == ["bad"]


async def test_force_asks_about_all(case: Case):
    """Every document is asked about again, whatever is remembered, and once for equal bodies."""
    for key in ("t1", "t2", "t3"):
        await case.write(key, "billing" if key == "t3" else "outage")
    before = await case.get("t1")
    result = await _reindexed(case, "force")
    after = await case.get("t1")

    assert (sorted(result["reindexed"]), result["failed"]) == (_names(case, "t1", "t2", "t3"), [])
    assert (case.calls("t1") + case.calls("t2"), case.calls("t3")) == (2, 2)
    assert after["indexed_as"] > before["indexed_as"]
    assert after["revision"] == before["revision"]


async def test_a_filter_narrows_a_reindex(case: Case):
    """Only the documents that the filter finds are asked about again."""
    await case.write("t1", "billing", state={"priority": 1})
    await case.write("t2", "outage", state={"priority": 2})
    result = await _reindexed(case, "force", "state_priority = 2")

    assert result["reindexed"] == _names(case, "t2")
    assert (case.calls("t1"), case.calls("t2")) == (1, 2)


async def test_a_live_write_goes_first_and_wins(case: Case):
    """Writes during a forced reindex: each document ends at its latest body, and the write's item is superseded."""
    keys = [f"t{number:02d}" for number in range(30)]
    await asyncio.gather(*(case.write(key, f"billing {key} hold=gate") for key in keys))
    case.on("gate")
    job_id = await _started(case, "force")
    # 8 call slots are held by the job, and no more than 16 of its documents are cleared.
    await eventually(lambda: sum(case.calls(key) for key in keys) >= 38, deadline_s=ANSWERED_S)
    dark = (await case.search(counts="topic"))["facets"][0]["missing"]["pending"]
    written = {key: await case.write(key, "outage", wait="applied") for key in (keys[0], keys[-1])}
    at_once = (await requests.result(case.pipeline, job_id))["progress"]["superseded"]
    case.off("gate")
    result = await _ended(case, job_id)
    after = {each["key"]: each for each in await case.settled(*keys)}

    assert (dark <= 16, at_once) == (True, 2)
    assert {after[key]["facets"]["topic"]["choice"] for key in written} == {"outage"}
    assert {after[key]["indexed_as"] for key in written} == {reply["indexed_as"] for reply in written.values()}
    assert {after[key]["facets"]["topic"]["choice"] for key in keys if key not in written} == {"billing"}
    assert result["progress"]["superseded"] == 2
    assert len(result["reindexed"]) == 28
    assert max(case.calls(key, f"billing {key} hold=gate") for key in keys) == 2


async def test_a_second_request_joins_the_first(case: Case):
    """The same request while the job runs is the same job; after a cancel no document gets another turn."""
    keys = [f"t{number:02d}" for number in range(30)]
    await asyncio.gather(*(case.write(key, f"billing {key} hold=gate") for key in keys))
    case.on("gate")
    first = await _started(case, "force")
    await eventually(lambda: sum(case.calls(key) for key in keys) >= 38, deadline_s=ANSWERED_S)
    second = await _started(case, "force")
    await case.pipeline.store.write(jobs.cancel, first)
    case.off("gate")
    result = await _ended(case, first)
    await case.settled(*keys)

    assert first == second
    assert (result["state"], result["progress"]["canceled"] >= 30 - 16) == ("canceled", True)
    assert sum(case.calls(key) for key in keys) <= 30 + 16


async def test_an_import_run_again_asks_nothing_again(case: Case):
    """The same file twice: nothing is written and nobody asked; a changed line alone is written and asked about."""
    lines = [{"uri": case.uri(f"t{n}"), "body": case.body(f"billing {n}"), "state": {"priority": n}} for n in range(20)]
    file = case.site.folder / f"{case.scope}.ndjson"

    async def imported() -> tuple[dict[str, Any], int]:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        words = ("import", file, "--collection", "tickets", "--json")
        ended = await asyncio.to_thread(case.site.place.run, *words)
        assert ended.code == 0, ended.err
        return ended.json, sum(case.calls(f"t{n}") for n in range(20))

    first = await imported()
    second = await imported()
    lines[7]["body"] = case.body("outage now")
    lines[8]["state"] = {"priority": 80}
    third = await imported()

    same = {"sent": 20, "failed": 0, "refused": [], "lost": [], "duplicates": []}
    assert first == ({**same, "written": 20, "unchanged": 0}, 20)
    assert second == ({**same, "written": 0, "unchanged": 20}, 20)
    assert third == ({**same, "written": 2, "unchanged": 18}, 21)
    assert await case.keys("outage") == ["t7"]


async def test_an_import_names_the_lines_it_refuses(case: Case):
    """Lines that cannot be documents are named with their numbers; the others are written."""
    rows = io.StringIO()
    sheet = csv.writer(rows)
    sheet.writerows([["id", "text", "priority"], ["t1", case.body("billing"), "1"], ["t2", "x", "high"]])
    sheet.writerows([["a/b", "x", ""], ["t3", case.body("two\nlines"), ""]])
    file = case.site.folder / f"{case.scope}.csv"
    file.write_text(rows.getvalue())
    words = ("import", file, "--collection", "tickets", "--key-column", "id", "--body-column", "text", "--json")
    ended = await asyncio.to_thread(case.site.place.run, *words, "--scope", case.scope)

    assert ended.code == 1, ended.err
    assert (ended.json["written"], [each["line"] for each in ended.json["refused"]]) == (2, [3, 4])
    assert (await case.get("t3"))["body"] == case.body("two\nlines")
