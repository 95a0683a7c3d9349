"""The feed to the facets topic, and dead letters to theirs: one elected sender, at least once, newest last per key.

In order: 1. read the recorded position and what follows it; 2. send that in one transaction; 3. move the position, from
where it was read. Killed between 2 and 3 it is sent again, with the same versions. A sender that was only asleep is
fenced by its successor. A record that Kafka will never take is set aside, tried again alone, and shown; it holds
nothing up.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from facetline.facets import errors
from facetline.facets.documents import Record
from facetline.storage import feed, publications
from facetline.storage.db.engine import Store, Tx
from facetline.storage.log import dead_letters
from facetline.streams import failpoints
from facetline.streams.kafka import topics, transactions
from facetline.streams.kafka.transactions import TransactionalSender, Unsendable
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec
from facetline.streams.wire.codec import Message

if TYPE_CHECKING:
    from facetline.storage.log.events import DeadLetter

RECORDS_MAX = 500
LETTERS_MAX = 20
"""A dead letter may have 4 MB."""
ASIDE_MAX = 10
NUMBERINGS_MAX = 20
"""Numbering transactions in a row before something is sent."""
LEASE_MS = 9_000
"""How long a publisher that was killed is waited for."""
RENEW_S = LEASE_MS / 3000
IDLE_S = 0.5
ASIDE_FIRST_MS = 10_000
ASIDE_MAX_MS = publications.WAIT_MAX_MS
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0

log = structlog.get_logger(__name__)


class Publisher:
    """Stands for election and, while elected, sends what is new."""

    def __init__(
        self,
        settings: KafkaSettings,
        store: Store,
        *,
        owner: str,
        failpoint: Callable[[str], None] = failpoints.failpoint,
        idle_s: float = IDLE_S,
        sender: TransactionalSender | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Publish what `store` has to the topics of `settings`; `owner` names this process in the election."""
        self._names = topics.topic_names(settings.topic_prefix)
        self._store = store
        self._owner = owner
        self._failpoint = failpoint
        self._idle_s = idle_s
        self._sender = sender or TransactionalSender(settings, f"{settings.topic_prefix}.publisher")
        self._clock = clock
        self._renew_at = 0.0
        self.position: int | None = None
        """How far the feed has been sent; None while another process is the sender."""
        self.waiting: str | None = None
        """What is waited for, such as the broker."""
        self.sent = 0
        self.set_aside = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; the transaction in hand is finished, and the next process may take over at once."""
        pause_s = RETRY_FIRST_S
        try:
            while not stop.is_set():
                try:
                    busy = await self._step()
                except errors.TransientError as error:
                    self._step_down()
                    self.waiting = error.message
                    log.warning("publisher_waits", reason=error.message, pause_s=pause_s)
                    await _wait(stop, pause_s)
                    pause_s = min(pause_s * 2, RETRY_MAX_S)
                    continue
                self.waiting, pause_s = None, RETRY_FIRST_S
                if not busy:
                    await _wait(stop, RENEW_S if self.position is None else self._idle_s)
        finally:
            await self._sender.close()
        if self.position is not None:
            with contextlib.suppress(errors.TransientError):  # then the lease runs out by itself
                await self._store.write(publications.resign, self._names.facets, self._owner)

    async def _step(self) -> bool:
        """Send one batch of each kind; say whether there was anything."""
        if not await self._is_elected():
            return False
        sent = await self._publish()
        sent += await self._try_aside()
        sent += await self._send_letters()
        return sent > 0

    async def _is_elected(self) -> bool:
        """Become or stay the sender; only one that has connected and is elected after that may send."""
        if self.position is not None and self._sender.connected and self._clock() < self._renew_at:
            return True
        if self.position is not None and not self._sender.connected:
            await self._sender.connect()
        renew_at = self._clock() + RENEW_S
        position = await self._store.write(publications.elect, self._names.facets, self._owner, LEASE_MS)
        if position is None:
            self._step_down()
            await self._sender.close()
            return False
        if self.position is None:
            log.info("publisher_elected", topic=self._names.facets, position=position)
        self.position, self._renew_at = position, renew_at
        # A first election does not send yet: someone may have been elected while this process connects.
        return self._sender.connected or await self._is_elected()

    def _step_down(self) -> None:
        self.position = None

    async def _publish(self) -> int:
        for _ in range(NUMBERINGS_MAX):
            if await self._store.write(feed.number) < feed.NUMBERED_MAX:
                break
        start, records = await self._store.read(_unsent, self._names.facets, self._owner)  # 1
        if start is None:
            raise transactions.Fenced
        self.position = start
        if not records:
            return 0
        self._failpoint("publish.before_send")
        failed = await self._send(self._names.facets, records, codec.encode_record)  # 2
        self._failpoint("publish.after_send")
        reasons = {records[index].uri: reason for index, reason in failed}
        ours = await self._store.write(_mark, self._names.facets, self._owner, start, records, reasons)  # 3
        self._failpoint("publish.after_mark")
        if not ours:
            raise transactions.Fenced
        self.position = records[-1].feed_seq
        self.sent += len(records) - len(failed)
        self.set_aside += len(failed)
        log.info("feed_published", topic=self._names.facets, records=len(records), position=self.position)
        return len(records)

    async def _try_aside(self) -> int:
        """Try again what was set aside and is due, each alone and as it now is."""
        due = await self._store.read(publications.due_again, self._names.facets, ASIDE_MAX)
        if not due:
            return 0
        attempts = {one.uri: one.attempts for one in due}
        records = await self._store.read(feed.records, list(attempts))
        for record in records:
            failed = await self._send(self._names.facets, [record], codec.encode_record)
            if failed:
                delay_ms = _delay_ms(attempts[record.uri])
                await self._store.write(publications.set_aside, self._names.facets, record.uri, failed[0][1], delay_ms)
            else:
                await self._store.write(publications.clear, self._names.facets, [record.uri])
        return len(records)

    async def _send_letters(self) -> int:
        letters = await self._store.read(dead_letters.unsent, LETTERS_MAX)
        if not letters:
            return 0
        failed = await self._send(self._names.dead_letters, letters, codec.encode_dead_letter)
        for index, given in failed:  # it stays in the store, where it is listed and can be sent again
            log.warning("dead_letter_not_published", letter=letters[index].id, reason=given)
        await self._store.write(dead_letters.mark_sent, letters)
        return len(letters)

    async def _still_elected(self) -> None:
        """Make sure that a reconnection did not fence a successor and its newer records."""
        if self._sender.connected:
            return
        before = self.position
        if not await self._is_elected() or self.position != before:
            raise transactions.Fenced

    async def _send(
        self,
        topic: str,
        rows: "Sequence[Record] | Sequence[DeadLetter]",
        encode: Callable[..., Message],
    ) -> list[tuple[int, str]]:
        """Send rows in one transaction, or one by one when one of them is refused; return which were, and why."""
        failed: list[tuple[int, str]] = []
        messages: list[tuple[int, Message]] = []
        for index, row in enumerate(rows):
            try:
                messages.append((index, encode(row)))
            except (TypeError, ValueError) as error:
                failed.append((index, f"it cannot be written as a record: {error}"))
        one_by_one = False
        while messages:
            part = messages[:1] if one_by_one else messages
            await self._still_elected()
            try:
                await self._sender.send(topic, [message for _, message in part])
                messages = messages[len(part) :]
            except Unsendable as error:
                if error.index is None and len(part) > 1:  # one of many, and Kafka does not say which
                    one_by_one = True
                    continue
                refused, _ = messages.pop(error.index or 0)
                log.warning("record_set_aside", topic=topic, row=refused, reason=error.message)
                failed.append((refused, error.message))
        return failed


def _unsent(tx: Tx, topic: str, owner: str) -> tuple[int | None, list[Record]]:
    """Return the position of the store itself, None when another is the sender by now, and what follows it."""
    start = publications.own_position(tx, topic, owner)
    return start, [] if start is None else feed.read(tx, start, RECORDS_MAX)


def _mark(tx: Tx, topic: str, owner: str, start: int, records: Sequence[Record], failed: dict[str, str]) -> bool:
    """Record what was sent and what was not, in one transaction; False when the position is not ours to move so."""
    if not publications.advance(tx, topic, owner, records[-1].feed_seq, start=start):
        return False
    publications.clear(tx, topic, [record.uri for record in records if record.uri not in failed])
    for uri, message in failed.items():
        publications.set_aside(tx, topic, uri, message, _delay_ms(0))
    return True


def _delay_ms(attempts: int) -> int:
    return int(min(ASIDE_FIRST_MS * 2**attempts, ASIDE_MAX_MS))


async def _wait(stop: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await stop.wait()
    except TimeoutError:
        return
