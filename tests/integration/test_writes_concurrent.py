"""Writers that meet: nothing lost, nothing applied twice, no two waiting for each other, no row blamed for a lock."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import applied
import judged
import pytest
import sqlalchemy as sa
import stored
from polling import eventually

from facetline.facets import errors
from facetline.storage.db import engine
from facetline.storage.log import apply, documents, positions
from facetline.storage.log.events import Applied, Batch, Event, Outcome

URI = applied.URI

APPENDER = """
import asyncio, sys
import judged
from facetline.storage.db import opening
from facetline.storage.log import apply as writes

async def main(url, name, rounds):
    store = await opening.open_store(url)
    for turn in range(rounds):
        events = [judged.write(f"tickets/t{n}", f"{name} {turn}", event_id=f"{name}-{turn}-{n}") for n in range(5)]
        done = await store.write(writes.append, "local", events)
        assert [outcome.outcome for outcome in done.outcomes] == ["applied"] * 5, done
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """A store that has seen two partitions."""
    for partition in (0, 1):
        await store.write(positions.first_seen, judged.TOPIC, partition, 0)
    return store


def appender(url: str, name: str) -> "subprocess.Popen[bytes]":
    """Start a process that writes the same five documents twenty times."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "error", "-c", APPENDER, url, name, "20"]
    environment = {"PYTHONPATH": str(root / "tests/helpers"), "PATH": ""}
    return subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE)


@contextmanager
def holding(store: engine.Store, statement: str) -> Iterator[None]:
    """Hold the locks that a statement takes, in a transaction of its own."""
    with store.engine.connect() as connection, connection.begin():
        connection.execute(sa.text(statement))
        yield


def free(store: engine.Store, query: str) -> bool:
    """Say whether the rows of a query are locked by nobody."""
    with store.engine.connect() as connection, connection.begin():
        return bool(connection.execute(sa.text(f"{query} FOR UPDATE SKIP LOCKED")).all())


def waiting(store: engine.Store) -> bool:
    """Say whether some transaction waits for a lock."""
    with store.engine.connect() as connection, connection.begin():
        return bool(connection.execute(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")).all())


async def test_processes_writing_to_one_store_lose_nothing(store_url: str):
    """Several processes that write the same documents at once all get through: every write has a version of its own."""
    async with stored.opened(store_url) as store:
        processes = [appender(store_url, name) for name in "abcd"]
        said = [await asyncio.to_thread(process.communicate, timeout=50) for process in processes]

        assert [process.returncode for process in processes] == [0] * 4, said
        for n in range(5):
            assert (await applied.get(store, f"tickets/t{n}")).version == 80
        assert (await store.read(positions.get, "local"))[0].next_offset == 400


async def test_two_workers_with_the_same_partition_apply_it_once(store: engine.Store, store_url: str):
    """Whoever comes second waits for the position's row and finds everything done."""
    batches = [judged.batch(judged.write(f"tickets/t{at}", "x", offset=at)) for at in range(10)]

    async with stored.opened(store_url) as other:
        for batch in batches:
            both = await asyncio.gather(*(each.write(apply.apply, [batch]) for each in (store, other)))
            assert sorted(done.redelivered for done in both) == [0, 1]

    rows = [await applied.get(store, f"tickets/t{at}") for at in range(10)]
    assert {row.version for row in rows} == {1}


@pytest.mark.parametrize("uris_of", ["new", "known"])
async def test_two_partitions_that_write_the_same_documents_count_every_write(
    store: engine.Store, store_url: str, uris_of: str
):
    """Workers that meet at the same documents, absent or present, give every write a version of its own."""
    turns, size = 10, 20

    def batch(turn: int, partition: int) -> Batch:
        uris = [f"tickets/{n}" if uris_of == "known" else f"tickets/{turn}-{n}" for n in range(size)]
        events = [
            judged.write(uri, "x", offset=turn * size + n, event_id=f"{partition} {turn} {n}")
            for n, uri in enumerate(uris)
        ]
        return judged.batch(*events, partition=partition)

    async with stored.opened(store_url) as other:
        for turn in range(turns):
            await asyncio.gather(
                store.write(apply.apply, [batch(turn, 0)]),
                other.write(apply.apply, [batch(turn, 1)]),
            )

    counted = await store.read(lambda tx: tx.execute(sa.text("SELECT DISTINCT version FROM documents")).scalars().all())
    assert counted == [2 if uris_of == "new" else 2 * turns]
    assert await applied.letters(store) == []


async def test_one_event_in_two_partitions_is_applied_once(store: engine.Store, store_url: str):
    """The same id and content at once in two workers: one applies it, the other finds it settled."""
    async with stored.opened(store_url) as other:
        for turn in range(10):
            event = judged.write(f"tickets/t{turn}", "x", offset=turn, event_id=f"one-{turn}")
            both = await asyncio.gather(
                *(
                    each.write(apply.apply, [judged.batch(event, partition=partition)])
                    for partition, each in enumerate((store, other))
                )
            )
            assert sorted(done.outcomes[0].duplicate for done in both) == [False, True]
            assert {done.outcomes[0].version for done in both} == {1}


async def test_one_id_for_two_events_at_once_settles_one(store: engine.Store, store_url: str):
    """Of two events under one id in two workers at the same moment, one is applied and the other rejected."""
    async with stored.opened(store_url) as other:
        for turn in range(10):
            both = await asyncio.gather(
                *(
                    each.write(
                        apply.apply,
                        [
                            judged.batch(
                                judged.write(f"tickets/{turn}-{partition}", "x", offset=turn, event_id=f"one-{turn}"),
                                partition=partition,
                            )
                        ],
                    )
                    for partition, each in enumerate((store, other))
                )
            )
            assert sorted(str(done.outcomes[0].reason) for done in both) == ["None", "id_reused"]


async def test_a_held_lock_delays_a_batch_and_blames_no_event(store: engine.Store):
    """A lock that others hold, even past the database's own patience, is waited for and makes no dead letter."""
    await applied.apply(store, judged.write(URI, "old"))
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with holding(store, f"UPDATE documents SET lane = 0 WHERE uri = '{URI}'"):
            held.set()
            release.wait(20)

    def impatient(tx: engine.Tx, batch: Batch) -> Applied:
        tries.append(1)
        if tx.dialect == "postgresql":
            tx.execute(sa.text("SET LOCAL lock_timeout = '50ms'"))
        return apply.apply(tx, [batch])

    tries: list[int] = []
    holder = asyncio.create_task(asyncio.to_thread(hold))
    await asyncio.to_thread(held.wait, 20)
    batch = judged.batch(judged.write(URI, "new", offset=1))
    write = asyncio.create_task(store.write(impatient, batch))
    if store.engine.dialect.name == "postgresql":
        await eventually(lambda: len(tries) > 2, what="the write was tried again")
    release.set()
    done = await write
    await holder

    assert [outcome.version for outcome in done.outcomes] == [2]
    assert await applied.letters(store) == []


@pytest.mark.postgres
async def test_a_lost_connection_is_no_dead_letter(postgres_url: str):
    """When the server drops the connection in the middle of a batch, the whole batch is applied again."""
    tries: list[int] = []

    def cut_off(tx: engine.Tx, batch: Batch) -> Applied:
        tries.append(1)
        if len(tries) == 1:
            with store.engine.connect() as other:
                backend = tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
                other.execute(sa.text(f"SELECT pg_terminate_backend({backend})"))
        return apply.apply(tx, [batch])

    async with stored.opened(postgres_url) as store:
        await store.write(positions.first_seen, judged.TOPIC, 0, 0)
        done = await store.write(cut_off, judged.batch(judged.write(URI, "a"), judged.write(URI, "b", offset=1)))

        assert len(tries) == 2
        assert [outcome.version for outcome in done.outcomes] == [1, 2]
        assert await applied.letters(store) == []


@pytest.mark.postgres
async def test_positions_are_locked_in_sorted_order(postgres_url: str):
    """A worker that waits for partition 0 does not hold partition 1 yet, in whatever order its batches come."""
    async with stored.opened(postgres_url) as store:
        for partition in (0, 1):
            await store.write(positions.first_seen, judged.TOPIC, partition, 0)
        batches = [
            judged.batch(judged.write(f"tickets/t{partition}", "x"), partition=partition) for partition in (1, 0)
        ]
        with holding(store, "SELECT * FROM positions WHERE partition = 0 FOR UPDATE"):
            write = asyncio.create_task(store.write(apply.apply, batches))
            await eventually(lambda: asyncio.to_thread(waiting, store))
            second_is_free = await asyncio.to_thread(free, store, "SELECT 1 FROM positions WHERE partition = 1")
        await write

    assert second_is_free


@pytest.mark.postgres
async def test_documents_are_locked_in_sorted_order(postgres_url: str):
    """A batch that waits for an earlier uri does not hold a later one yet, in whatever order its events come."""
    async with stored.opened(postgres_url) as store:
        await store.write(positions.first_seen, judged.TOPIC, 0, 0)
        # The later uri first, so that the order of the rows in the table is not the one to be kept.
        await applied.apply(store, judged.write("tickets/b", "x"))
        await applied.apply(store, judged.write("tickets/A", "x", offset=1))
        events = [judged.write("tickets/b", "y", offset=2), judged.write("tickets/A", "y", offset=3)]
        with holding(store, "SELECT * FROM documents WHERE uri = 'tickets/A' FOR UPDATE"):
            write = asyncio.create_task(applied.apply(store, *events))
            await eventually(lambda: asyncio.to_thread(waiting, store))
            later_is_free = await asyncio.to_thread(free, store, "SELECT 1 FROM documents WHERE uri = 'tickets/b'")
        await write

    assert later_is_free


@pytest.mark.postgres
@pytest.mark.parametrize("races", [1, apply.RACES_MAX - 1, apply.RACES_MAX])
async def test_a_lost_race_is_run_again_and_blames_no_event(postgres_url: str, races: int):
    """A row that others keep making first is read anew each time; past the bound the whole write is put off."""
    runs: list[int] = []

    def racing(tx: engine.Tx) -> list[Outcome]:
        def work() -> list[Outcome]:
            runs.append(1)
            if len(runs) <= races:
                tx.execute(sa.text("INSERT INTO topics VALUES ('t', 1)"))
            return []

        tx.execute(sa.text("INSERT INTO topics VALUES ('t', 1)"))
        return apply._isolated(tx, work)

    async with stored.opened(postgres_url) as store:
        if races < apply.RACES_MAX:
            assert await store.write(racing) == []
            assert len(runs) == races + 1
        else:
            with pytest.raises(errors.StoreUnavailable, match="other workers"):
                await store.write(racing)


async def test_a_damaged_store_blames_no_event(sqlite_url: str):
    """An error that is nobody's data, such as a missing table, surfaces and leaves everything as it was."""

    def broken(tx: engine.Tx, event: Event) -> Applied:
        tx.execute(sa.text("DROP TABLE outcomes"))
        return apply.append(tx, "local", [event])

    async with stored.opened(sqlite_url) as store:
        with pytest.raises(sa.exc.OperationalError, match="outcomes"):
            await store.write(broken, judged.write(URI, "x"))

        assert await store.read(documents.get, URI) is None
        assert await applied.letters(store) == []
