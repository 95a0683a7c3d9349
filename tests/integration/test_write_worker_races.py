"""Two write workers at one partition, as in a rebalance that one of them has not noticed: neither misreads the other."""

from collections.abc import Awaitable, Callable

import stored
from sim_log import Intent, SimLog

from storage import documents, positions
from storage.events import Raw
from streams import events
from streams.log_reader import LogRecord, LogSlice
from streams.write_worker import WriteWorker


class WatchedLog:
    """A log in memory that lets a test do something after it was asked for its bounds."""

    def __init__(self, log: SimLog) -> None:
        self.log = log
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end, as they were when asked."""
        life = self.log.now(partition)
        said = (life.first, life.end)
        if self.meanwhile is not None:
            await self.meanwhile()
        return said

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """Return what stands in a range."""
        return self.log.slice(partition, start, end, records_max)


def append(log: SimLog, body: str) -> LogRecord:
    """Write a body to `tickets/a`."""
    message = events.encode_write("tickets/a", body=body, state=None, source="test", event_id=body)
    raw = Raw(message.key, message.value, message.headers, 1)
    log.append(0, raw, Intent("write", "tickets/a", "test", body, body))
    return log.now(0).records[log.now(0).end - 1]


async def test_a_position_that_another_worker_moves_meanwhile_is_no_sign_of_another_log(sqlite_url: str):
    """What was written and applied elsewhere after the log's end was asked for does not make the log a new one."""
    log = SimLog()
    slow, quick = WatchedLog(log), WatchedLog(log)
    async with stored.opened(sqlite_url) as store:
        await store.write(stored.defined, "tickets")
        one, other = WriteWorker(store, slow, "documents"), WriteWorker(store, quick, "documents")
        await other.assigned([0])
        await other.handle([append(log, "first")])

        async def write_more() -> None:
            await other.handle([append(log, "second")])

        slow.meanwhile = write_more
        await one.assigned([0])

        found = await store.read(documents.get, "tickets/a")
        assert one.stats.incarnations == 0
        assert (await store.read(positions.get, "documents"))[0].next_offset == 2
        assert found is not None
        assert (found.version, found.body) == (2, "second")
