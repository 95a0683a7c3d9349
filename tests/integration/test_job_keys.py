"""Keys of job requests: one key, one job, for a day at least and as long as the job runs."""

import pytest
import stored

from facetline.facets import errors
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, request_keys
from facetline.storage.jobs.model import JobRequest

pytestmark = pytest.mark.collections("notes")

FORCE = JobRequest("notes", mode="force")
DAY_MS = 24 * 60 * 60 * 1000


async def made(
    store: engine.Store, id_: str, key: str, request: JobRequest = FORCE, by: str = "c1"
) -> tuple[str, bool]:
    """Ask for a job under a key; return which one it is, and whether it was there before."""
    job, joined = await store.write(request_keys.create, id_, request, by, key)
    return job.id, joined


async def test_a_key_brings_back_its_job_when_that_is_over(store: engine.Store):
    """The same request and key is the same job after its end; without the key, or by another, it is a new one."""
    assert await made(store, "j1", "k") == ("j1", False)
    await store.write(jobs.cancel, "j1")

    assert await made(store, "j2", "k") == ("j1", True)
    assert await made(store, "j3", "k", by="c2") == ("j3", False)


async def test_another_request_under_a_key_is_refused(store: engine.Store):
    """A key that came with another request is refused by name, and nothing is started."""
    await made(store, "j1", "k")
    await store.write(jobs.cancel, "j1")

    with pytest.raises(errors.KeyReused, match="j1"):
        await made(store, "j2", "k", JobRequest("notes"))
    assert [job.id for job in await store.read(jobs.list_jobs)] == ["j1"]


async def test_a_request_that_is_in_conflict_uses_up_no_key(store: engine.Store):
    """A key whose request found another job in its way is free for the next try."""
    await made(store, "j1", "k1")
    with pytest.raises(errors.Conflict):
        await made(store, "j2", "k2", JobRequest("notes"))
    await store.write(jobs.cancel, "j1")

    assert await made(store, "j3", "k2", JobRequest("notes")) == ("j3", False)


async def test_keys_are_forgotten_a_day_after_with_their_job_over(store: engine.Store, clock: stored.Clock):
    """A day old key is forgotten when its job is over, and not before."""
    await made(store, "j1", "k1")
    clock.shift_ms = DAY_MS - 60_000
    assert await store.write(request_keys.purge) == 0
    clock.shift_ms = DAY_MS + 60_000
    assert await store.write(request_keys.purge) == 0  # it runs

    await store.write(jobs.cancel, "j1")

    assert await store.write(request_keys.purge) == 1
    assert await made(store, "j2", "k1") == ("j2", False)
