"""Sending in transactions under one fixed id: all of a batch or nothing, and only by the newest sender.

Kafka fences an older client with the same id, so a sender that lost its election while it slept can send nothing more.
After any failure the client is closed and replaced: what its transaction had written is aborted by that.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import aiokafka
import structlog
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
    RecordListTooLargeError,
)

from facetline.facets import errors
from facetline.streams import failpoints
from facetline.streams.kafka import clients
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.codec import Message

TRANSACTION_MS = 20_000
"""A transaction that its sender left open holds readers back no longer than this."""
SEND_S = 10.0
"""One transaction, or one connection, takes no longer; less than the broker's own limit above."""
STOP_S = 3.0

_TO_BLAME = (InvalidTimestampError, MessageSizeTooLargeError, RecordListTooLargeError)

log = structlog.get_logger(__name__)


class Fenced(errors.TransientError):
    """Another sender with the same transactional id has taken over."""


class Unsendable(errors.PermanentError):
    """A record of the batch will never be taken; `index` is its place, None when it is not known which one."""

    def __init__(self, message: str, index: int | None) -> None:
        super().__init__(message)
        self.index = index


class TransactionalSender:
    """Sends batches in transactions; connects at `connect`, which fences every earlier sender."""

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        send_s: float = SEND_S,
        failpoint: Callable[[str], None] = failpoints.failpoint,
    ) -> None:
        self._settings = settings
        self._failpoint = failpoint
        self._id = transactional_id
        self._send_s = send_s
        self._client: aiokafka.AIOKafkaProducer | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a client, as far as is known."""
        return self._client is not None

    async def connect(self) -> None:
        """Become the one sender of this id.

        Raises:
            BrokerUnavailable: no broker answered in time.
        """
        arguments = clients.producer_arguments(
            self._settings,
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_MS,
            max_request_size=clients.DEAD_LETTER_BYTES_MAX,
        )
        client = aiokafka.AIOKafkaProducer(**arguments)
        try:
            async with asyncio.timeout(self._send_s):
                await client.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await clients.stop_within(client, STOP_S)
            raise self._unavailable(error) from error
        except BaseException:
            await clients.stop_within(client, STOP_S)
            raise
        self._client = client

    async def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Send all messages in one transaction, in this order for each key; committed when this returns.

        Raises:
            Unsendable: a record is to blame; nothing was committed.
            Fenced: another sender has taken over; nothing was committed.
            BrokerUnavailable: no answer in time. Nothing was committed, unless the commit was under way.
        """
        assert self._client is not None  # noqa: S101 (the caller connects first)
        try:
            async with asyncio.timeout(self._send_s):
                await self._transact(self._client, topic, messages)
        except ProducerFenced as error:
            await self.close()
            raise Fenced from error
        except _TO_BLAME as error:
            await self.close()
            raise Unsendable(str(error) or type(error).__name__, None) from error
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise self._unavailable(error) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, within a bound."""
        client, self._client = self._client, None
        if client is not None:
            await clients.stop_within(client, STOP_S)

    async def _transact(self, client: aiokafka.AIOKafkaProducer, topic: str, messages: Sequence[Message]) -> None:
        await client.begin_transaction()
        sending = []
        for index, message in enumerate(messages):
            try:
                sending.append(await _hand_over(client, topic, message))
            except (*_TO_BLAME, UnicodeEncodeError) as error:  # aiokafka sends no header name that is not UTF-8
                await client.abort_transaction()
                raise Unsendable(str(error) or type(error).__name__, index) from error
        results = await asyncio.gather(*sending, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]
        self._failpoint("publish.before_commit")
        await client.commit_transaction()

    def _unavailable(self, error: BaseException) -> errors.BrokerUnavailable:
        message = str(error) or f"no answer within {self._send_s:g} s"
        return errors.BrokerUnavailable(f"Kafka at {self._settings.bootstrap_servers} does not take records: {message}")


async def _hand_over(client: aiokafka.AIOKafkaProducer, topic: str, message: Message) -> "asyncio.Future[Any]":
    """Give a record to the client; its future is done with the broker's answer."""
    headers = list(message.headers)
    if message.key is not None or message.value is not None:
        sent: asyncio.Future[Any] = await client.send(topic, message.value, message.key, headers=headers)
        return sent
    # aiokafka's `send` refuses a record without key and value; the log takes it, and so do dead letters.
    batch = client.create_batch()
    batch.append(key=None, value=None, timestamp=None, headers=headers)
    batched: asyncio.Future[Any] = await client.send_batch(batch, topic, partition=0)
    return batched
