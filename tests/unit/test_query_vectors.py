"""Query vectors: one call for each text, remembered, given up in time, and charged for.

Method: a real embedder of the contract, whose calls wait for a gate or fail as a hosted one's do.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from facetline.evaluators.embedders.contract import Embedded, Embedder, EmbedderIdentity, Purpose, Vectors
from facetline.facets.errors import (
    EmbedderUnavailable,
    EvaluationFailed,
    EvaluatorMisconfigured,
    EvaluatorUnavailable,
    PipelineError,
    Spent,
)
from facetline.streams.embed.query_vectors import QueryVectors


def window(text: str) -> Vectors:
    """A vector of its own for each text."""
    return Vectors(2, 1, bytes([len(text) % 100, sum(map(ord, text)) % 100]), b"\0\0\x80?")


class Gated:
    """An embedder whose calls wait until `gate` is set, and then answer with two windows or fail with `error`."""

    name, kind, model, fingerprint, max_batch, min_similarity = "big", "hosted", "openai/x", "ab", 96, 0.5
    identity = EmbedderIdentity("hosted", "openai/x")

    def __init__(self, *, is_free: bool = False) -> None:
        self.is_free = is_free
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Semaphore(0)
        self.error: PipelineError | None = None
        self.calls: list[tuple[list[str], Purpose, float]] = []

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Answer as scripted."""
        self.calls.append((list(texts), purpose, deadline_s))
        self.entered.release()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        first = window(texts[0])
        return Embedded([Vectors(2, 2, first.data + b"xy", first.scales * 2)], "x-1", {"input_tokens": 3}, 0.25)

    async def close(self) -> None:
        """Nothing is open."""


class Account:
    """What was charged, and whether more may be."""

    def __init__(self) -> None:
        self.charged: list[Spent] = []
        self.is_open = True

    async def permit(self) -> bool:
        """As it was set."""
        return self.is_open

    async def charge(self, spent: Spent) -> None:
        """Write down."""
        self.charged.append(spent)


def of(embedder: Gated, account: Account | None = None, **more: Any) -> QueryVectors:
    """Query vectors of an embedder."""
    account = account or Account()
    return QueryVectors(embedder, permit=account.permit, charge=account.charge, **more)


async def refused(vectors: QueryVectors, text: str = "late") -> EmbedderUnavailable:
    """Return the error of a query without a vector."""
    with pytest.raises(EmbedderUnavailable) as caught:
        await vectors.vector(text)
    return caught.value


async def test_a_querys_first_window_is_its_vector():
    """It is embedded as a query, within two seconds, and paid for."""
    embedder, account = Gated(), Account()

    assert isinstance(embedder, Embedder)
    assert await of(embedder, account).vector("late") == window("late")
    assert embedder.calls == [(["late"], "query", 2.0)]
    assert account.charged == [Spent("x-1", {"input_tokens": 3}, 0.25)]


async def test_vectors_are_remembered():
    """The one that was not used for the longest time is forgotten first; a remembered one costs nothing."""
    embedder, account = Gated(), Account()
    vectors = of(embedder, account, remembered=2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        assert await vectors.vector(text) == window(text)

    assert [texts for texts, _, _ in embedder.calls] == [["a"], ["bb"], ["ccc"], ["bb"]]
    assert len(account.charged) == 4


async def test_a_thousand_are_remembered():
    """Unless another number is given."""
    embedder = Gated(is_free=True)
    vectors = of(embedder)
    for number in (*range(1001), 0, 1000):
        await vectors.vector(f"query {number}")

    assert [texts[0] for texts, _, _ in embedder.calls[1001:]] == ["query 0"]


async def test_equal_queries_at_once_share_a_call():
    """One that is given up meanwhile takes nothing from the other; another text has a call of its own."""
    embedder, account = Gated(), Account()
    embedder.gate.clear()
    vectors = of(embedder, account, deadline_s=30)
    first, second, other = (asyncio.create_task(vectors.vector(text)) for text in ("late", "late", "broken"))
    await embedder.entered.acquire()
    await embedder.entered.acquire()
    first.cancel()
    await asyncio.wait([first])
    embedder.gate.set()

    assert (await second, await other) == (window("late"), window("broken"))
    assert first.cancelled()
    assert [texts for texts, _, _ in embedder.calls] == [["late"], ["broken"]]
    assert len(account.charged) == 2


async def test_a_call_that_all_gave_up_is_remembered():
    """It was paid for."""
    embedder = Gated()
    embedder.gate.clear()
    vectors = of(embedder, deadline_s=30)
    only = asyncio.create_task(vectors.vector("late"))
    await embedder.entered.acquire()
    only.cancel()
    await asyncio.wait([only])
    embedder.gate.set()

    assert await vectors.vector("late") == window("late")
    assert len(embedder.calls) == 1


async def test_a_silent_embedder_is_given_up():
    """At the deadline, whatever the embedder does; the next query asks again."""
    embedder, account = Gated(), Account()
    embedder.gate.clear()
    vectors = of(embedder, account, deadline_s=0.05)
    error = await refused(vectors)
    embedder.gate.set()

    assert error.reason == "timeout"
    assert error.message == "embedder 'big' did not answer in time; search by words, or try again later"
    assert await vectors.vector("late") == window("late")
    assert account.charged == [Spent(), Spent("x-1", {"input_tokens": 3}, 0.25)]


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (EvaluatorUnavailable("Cannot connect to host models:80"), "unavailable", "cannot be reached"),
        (EvaluatorUnavailable("slow", reason="rate_limited"), "rate_limited", "has too many requests"),
        (EvaluatorUnavailable("slow", reason="unheard of"), "unavailable", "cannot be reached"),
        (EvaluatorMisconfigured("KEY is not set."), "misconfigured", "is not configured rightly"),
        (EvaluationFailed("too_long", "The body is too long."), "refused", "does not take this query"),
    ],
)
async def test_a_failure_has_a_reason_and_words_for_clients(error: Any, reason: str, words: str):
    """The provider's words may name servers, and stay with us; what the call used up is charged."""
    embedder, account = Gated(), Account()
    embedder.error = error
    error.spent = Spent("x-1", None, 0.5)
    found = await refused(of(embedder, account))

    assert found.reason == reason
    assert found.message.startswith(f"embedder 'big' {words}")
    assert error.message not in found.message
    assert found.__cause__ is error
    assert account.charged == [Spent("x-1", None, 0.5)]


async def test_what_was_refused_before_it_cost_anything_is_not_charged():
    """And not remembered."""
    embedder, account = Gated(), Account()
    embedder.error = EvaluatorUnavailable("away")
    vectors = of(embedder, account)
    await refused(vectors)
    embedder.error = None

    assert account.charged == []
    assert await vectors.vector("late") == window("late")


async def test_a_spent_budget_ends_calls():
    """Not those of an embedder that costs nothing, and not vectors that are remembered."""
    embedder, account = Gated(), Account()
    vectors = of(embedder, account)
    await vectors.vector("known")
    account.is_open = False

    assert (await refused(vectors)).reason == "budget_spent"
    assert await vectors.vector("known") == window("known")
    assert len(embedder.calls) == 1
    free = Gated(is_free=True)
    assert await of(free, account).vector("late") == window("late")
    assert len(account.charged) == 1


async def test_closing_ends_running_calls():
    """A search that waits for one is not cancelled, but learns why there is no vector."""
    embedder = Gated()
    embedder.gate.clear()
    vectors = of(embedder, deadline_s=30)
    waiting = asyncio.create_task(refused(vectors))
    await embedder.entered.acquire()
    await vectors.close()

    assert (await waiting).reason == "unavailable"
