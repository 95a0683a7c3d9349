"""The feed: numbered in commit order, complete from anywhere. Each once on SQLite and on PostgreSQL."""

import asyncio
import dataclasses

import pytest
import sqlalchemy as sa
import stored

from facetline.facets.documents import Record
from facetline.facets.table import record_arrays
from facetline.storage import feed
from facetline.storage.db import engine
from facetline.storage.log import apply

pytestmark = pytest.mark.collections("notes", "mails")

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Tail:
    """A reader that keeps the newest record of each document and notes every step back."""

    def __init__(self) -> None:
        self.position = 0
        self.newest: dict[str, Record] = {}
        self.steps_back: list[Record] = []

    async def follow(self, store: engine.Store, limit: int = 7) -> int:
        """Number what has changed, and read to the end."""
        while await store.write(feed.number, limit) == limit:
            pass
        read = 0
        while records := await store.read(feed.read, self.position, limit):
            for record in records:
                self.take(record)
            read += len(records)
        return read

    def take(self, record: Record) -> None:
        """Take one record in."""
        known = self.newest.get(record.uri)
        if record.feed_seq <= self.position or (known and record.version < known.version):
            self.steps_back.append(record)
        self.position = record.feed_seq
        self.newest[record.uri] = record


async def test_record_carries_everything_but_the_body(store: engine.Store):
    """A record says what its document's row says, with the event that its content came from."""
    traced = dataclasses.replace(stored.written("notes/a", "text"), traceparent=TRACE)
    await store.write(apply.append, stored.TOPIC, [traced])
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims, "outage")

    numbered = await store.write(feed.number)
    [record] = await store.read(feed.read, 0, 10)
    row = await store.read(stored.row, "notes/a")

    assert numbered == 1
    assert (record.uri, record.version, record.indexed_as, record.status) == ("notes/a", 2, 1, "indexed")
    assert (record.facets or {})["topic"]["choice"] == "outage"
    assert record.evaluation is not None
    assert record.evaluation.fingerprint == record.fingerprint == stored.FIRST
    assert record.source_event is not None
    assert (record.source_event.id, record.source_event.offset) == (row["event_id"], row["log_offset"])
    assert record.traceparent == TRACE
    assert not hasattr(record, "body")


async def test_every_visible_change_comes_once_more(store: engine.Store):
    """A write, an answer and a delete each bring the document again, behind everything numbered before."""
    tail = Tail()
    seen = []
    for change in (
        lambda: store.write(stored.write, {"notes/a": "text"}),
        lambda: answer(store),
        lambda: store.write(stored.delete, "notes/a"),
    ):
        await change()
        await tail.follow(store)
        seen.append((tail.newest["notes/a"].status, tail.newest["notes/a"].version, tail.position))

    assert seen == [("pending", 1, 1), ("indexed", 2, 2), ("deleted", 3, 3)]


async def answer(store: engine.Store) -> None:
    """Claim and answer whatever is due."""
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)


async def test_claiming_is_no_visible_change(store: engine.Store):
    """A claim moves nothing in the feed."""
    await store.write(stored.write, {"notes/a": "text"})
    await store.write(feed.number)

    await store.write(stored.claimed)

    assert await store.write(feed.number) == 0


async def test_numbering_is_bounded(store: engine.Store):
    """One transaction numbers no more than its limit, in all without gaps."""
    await store.write(stored.write, {f"notes/{n:03}": "text" for n in range(25)})

    counts = [await store.write(feed.number, 10) for _ in range(4)]
    records = await store.read(feed.read, 0, 100)

    assert counts == [10, 10, 5, 0]
    assert [record.feed_seq for record in records] == list(range(1, 26))
    assert await store.read(feed.end) == 25


async def test_pages_and_one_collection(store: engine.Store):
    """Reading in pages gives the same records in the same order; a view gets those of its collection, as they are."""
    await store.write(stored.write, {f"{name}/{n}": f"{n}" for n in range(10) for name in ("notes", "mails")})
    await store.write(stored.answer_all, (await store.write(stored.claimed, slots=8)).claims)
    await store.write(feed.number)

    whole = await store.read(feed.read, 0, 100)
    pages: list[Record] = []
    while page := await store.read(feed.read, pages[-1].feed_seq if pages else 0, 3):
        pages += page
    mails = await store.read(feed.shown, 0, 100, "mails")

    assert pages == whole
    assert mails == [record_arrays.shown(record) for record in whole if record.collection == "mails"]


async def test_end_never_goes_down(store: engine.Store):
    """When the last numbered document changes, the feed still ends where it did."""
    await store.write(stored.write, {"notes/a": "text"})
    await store.write(feed.number)

    await store.write(stored.write, {"notes/a": "changed"})

    assert await store.read(feed.read, 0, 10) == []
    assert await store.read(feed.end) == 1


async def test_records_by_uri_are_those_that_stand(store: engine.Store):
    """Records can be had by uri; a document that has changed since is left to its next number."""
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2", "notes/c": "3"})
    await store.write(feed.number)
    await store.write(stored.write, {"notes/b": "changed"})

    records = await store.read(feed.records, ["notes/c", "notes/b", "notes/a", "notes/never"])

    assert [record.uri for record in records] == ["notes/a", "notes/c"]


@pytest.mark.timeout(120)
async def test_overlapping_writers_and_tails_miss_nothing(store: engine.Store):
    """With four writers and two tails at once, no tail goes back, and both end equal to the table."""
    tails = [Tail(), Tail()]
    writing = asyncio.Event()

    async def write(writer: int) -> None:
        for turn in range(12):
            # Overlapping sets of documents: the same rows change while they are being numbered.
            await store.write(
                stored.write, {f"notes/{(writer * 5 + turn + n) % 30}": f"{writer} {turn}" for n in range(8)}
            )
            await answer(store)

    async def follow(tail: Tail) -> None:
        while not writing.is_set():
            await tail.follow(store)
            await asyncio.sleep(0)

    following = [asyncio.create_task(follow(tail)) for tail in tails]
    await asyncio.gather(*(write(n) for n in range(4)))
    writing.set()
    await asyncio.gather(*following)
    for tail in tails:
        await tail.follow(store)
    table = await store.read(stored.rows)

    for tail in tails:
        assert tail.steps_back == []
        assert {uri: (found.version, found.status) for uri, found in tail.newest.items()} == {
            uri: (row["version"], row["status"]) for uri, row in table.items()
        }


@pytest.mark.postgres
async def test_numbering_passes_over_locked_rows(postgres_url: str):
    """A row that somebody is writing holds no numbering up; it is numbered when it is free."""
    async with stored.opened(postgres_url) as store:
        await store.write(stored.defined, "notes")
        await store.write(stored.write, {"notes/a": "1", "notes/b": "2"})
        with store.engine.connect() as connection, connection.begin():
            lock = sa.select(stored.DOCUMENTS.c.uri).where(stored.DOCUMENTS.c.uri == "notes/a").with_for_update()
            connection.execute(lock)
            first = await store.write(feed.number)
        second = await store.write(feed.number)
        records = await store.read(feed.read, 0, 10)

        assert (first, second) == (1, 1)
        assert [record.uri for record in records] == ["notes/b", "notes/a"]
