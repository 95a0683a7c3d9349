"""Commands that are interrupted, killed, run side by side, or fed more than fits into memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import runtimes
from commands import Ended, interrupt
from folder_evaluator import Script
from polling import eventually
from runtimes import ANSWERED_S, Case, Site

from facetline.storage.jobs import jobs

BIG_DOCUMENTS = 10_000
BIG_BODY = "0123456789abcdef" * 1_250
"""20,000 bytes: 200 MB in all."""
MEMORY_MAX_MB = 250


@pytest.fixture
async def case(working: Site) -> AsyncIterator[Case]:
    """A pipeline that does not answer: in the local runtime the commands do it, and nobody else."""
    async with runtimes.case(working) as made:
        yield made


async def test_an_interrupted_import_goes_on_when_run_again(case: Case):
    """Ctrl-C while answers are waited for: exit code 130, what was written stays; the rerun writes and pays nothing."""
    keys = [f"t{number:02d}" for number in range(12)]
    file = case.site.folder / f"{case.scope}.ndjson"
    lines = [{"uri": case.uri(key), "body": case.body(f"billing {key} hold=gate")} for key in keys]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("import", file, "--collection", "tickets", "--json")
    case.on("gate")
    with case.site.place.start(*words) as process:
        await eventually(lambda: sum(map(case.calls, keys)) >= 8, deadline_s=ANSWERED_S, what="all slots hang")
        interrupted = await asyncio.to_thread(interrupt, process)
    case.off("gate")
    again = await asyncio.to_thread(case.site.place.run, *words)
    settled = await case.settled(*keys)

    assert (interrupted.code, interrupted.out) == (130, "")
    assert "run the same command again" in interrupted.err
    assert "Traceback" not in interrupted.err
    assert (again.code, again.json["written"], again.json["unchanged"], again.json["failed"]) == (0, 0, 12, 0)
    assert again.json["refused"] == []
    for each in settled:
        assert (each["status"], each["revision"]) == ("indexed", 1)
        assert case.calls(each["key"]) <= 1 + each["calls"]["crashes"]


async def test_an_interrupted_reindex_goes_on(case: Case):
    """Ctrl-C during a reindex: exit code 130, the job stays; it is ended by a rerun (local) or the worker (Kafka).
    Another request is refused meanwhile, before anything is asked.
    """
    keys = [f"t{number:02d}" for number in range(12)]
    lines = [{"uri": case.uri(key), "body": case.body(f"billing {key} hold=gate")} for key in keys]
    written = ("import", "-", "--collection", "tickets", "--json")
    await asyncio.to_thread(case.site.place.run, *written, stdin="\n".join(map(json.dumps, lines)))
    words = ("reindex", "tickets", "--scope", case.scope, "--force", "--json")
    case.on("gate")
    with case.site.place.start(*words) as process:
        await eventually(lambda: sum(map(case.calls, keys)) >= 12 + 8, deadline_s=ANSWERED_S, what="all slots hang")
        interrupted = await asyncio.to_thread(interrupt, process)
    (job,) = [each for each in await case.pipeline.store.read(jobs.list_jobs) if each.request.scope == case.scope]
    if not case.site.is_kafka:
        asked = sum(map(case.calls, keys))
        other = await asyncio.to_thread(case.site.place.run, "reindex", "tickets", "--scope", case.scope)
        assert (other.code, sum(map(case.calls, keys))) == (1, asked)
        assert f"job {job.id} is reindexing" in other.err
    case.off("gate")
    if not case.site.is_kafka:
        again = await asyncio.to_thread(case.site.place.run, *words)
        assert (again.code, again.json["id"], len(again.json["reindexed"])) == (0, job.id, 12)

    async def ended() -> bool:
        return (await case.pipeline.store.read(jobs.get, job.id)).state == "succeeded"

    await eventually(ended, deadline_s=ANSWERED_S, what="the job has ended")
    settled = await case.settled(*keys)

    assert (interrupted.code, interrupted.out, job.state) == (130, "", "running")
    assert "the job stays" in interrupted.err
    for each in settled:
        assert 2 <= case.calls(each["key"]) <= 2 + each["calls"]["crashes"]


@pytest.fixture
def local(tmp_path: Path) -> Site:
    """A local site that nobody has opened yet."""
    return Site("local", tmp_path, {})


def test_commands_side_by_side(local: Site):
    """Several commands at once on a folder that does not exist yet: each does its part, nothing is lost."""
    (local.folder / "lines.ndjson").write_text(
        "".join(json.dumps({"key": f"i{number}", "body": f"outage {number}"}) + "\n" for number in range(50))
    )
    words = [("write", f"notes/w{number}", "--body", f"billing {number}", "--json") for number in range(3)]
    words += [("import", "lines.ndjson", "--collection", "notes", "--json"), ("collections", "apply")]
    started = [local.place.start(*each) for each in words]
    ended = [Ended(process.wait(60), *process.communicate()) for process in started]
    found = local.place.run("search", "notes", "--counts", "topic", "--json").json

    assert [(each.code, each.err) for each in ended] == [(0, "")] * 5
    assert [each.json["status"] for each in ended[:3]] == ["indexed"] * 3
    assert found["total"] == 53
    assert {bucket["value"]: bucket["count"] for bucket in found["facets"][0]["buckets"]} == {
        "billing": 3,
        "outage": 50,
        "other": 0,
    }
    assert max(local.script.count().values()) == 1


def test_a_write_that_returned_survives_a_kill(local: Site):
    """SIGKILL in the moment in which the write is reported: the document is there, and is answered later."""
    Script(local.folder / "script").on("gate")
    words = ("write", "notes/w1", "--body", "billing hold=gate", "--wait", "applied", "--json")
    with local.place.start(*words) as process:
        reply = json.loads(process.stdout.readline())
        process.kill()
    got = local.place.run("get", "notes/w1", "--json").json
    local.script.off("gate")
    later = local.place.run("write", "notes/w2", "--body", "outage", "--json").json
    after = local.place.run("search", "notes", "topic=billing", "--json").json

    assert (reply["status"], got["status"], got["version"]) == ("pending", "pending", reply["version"])
    assert later["status"] == "indexed"
    assert (after["total"], after["as_of"]["pending"]) in {(1, 0), (0, 1)}


def test_writes_killed_again_and_again(local: Site):
    """Writes whose processes are killed at once after they printed: every one that printed is there."""
    for number in range(5):
        words = ("write", f"notes/w{number}", "--body", f"billing {number}", "--wait", "applied", "--json")
        with local.place.start(*words) as process:
            process.stdout.readline()
            process.kill()
    missing = local.place.run("reindex", "notes", "--json")  # runs the side chain until all are answered
    found = local.place.run("search", "notes", "topic=billing", "--json").json

    assert (missing.code, found["keys"]) == (0, [f"w{number}" for number in range(5)])


def _big_lines() -> Iterator[bytes]:
    for number in range(BIG_DOCUMENTS):
        yield json.dumps({"key": f"b{number}", "body": f"{number} {BIG_BODY}"}).encode() + b"\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_file_larger_than_memory_is_streamed(local: Site):
    """200 MB through standard input take no more memory than a few chunks."""
    words = ("import", "-", "--collection", "notes", "--wait", "applied", "--json")
    said, peak_mb = local.place.feed(_big_lines(), *words)

    assert (said["written"], said["unchanged"], said["failed"], said["refused"]) == (BIG_DOCUMENTS, 0, 0, [])
    assert peak_mb < MEMORY_MAX_MB
