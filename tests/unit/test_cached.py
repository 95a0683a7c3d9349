"""Answers that are kept for a moment: asked for once at a time, seldom when dear, and left out when there is none."""

import asyncio

import pytest

from facetline.facets import errors
from facetline.streams.monitor.cached import Cached


class Question:
    """Answers 1, 2, 3, … after `took_s` by the clock; fails while `problem` is set, hangs while `gate` is closed."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.took_s = 0.0
        self.asked = 0
        self.problem: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def clock(self) -> float:
        """Return the time."""
        return self.now_s

    async def ask(self) -> int:
        """Answer."""
        self.asked += 1
        answer = self.asked
        await self.gate.wait()
        self.now_s += self.took_s
        if self.problem:
            raise errors.StoreUnavailable(self.problem)
        return answer


async def test_many_who_look_ask_once():
    """Whoever comes while a question is under way, or within a second, gets the same answer."""
    question = Question()
    cached = Cached(question.ask, wait_s=5, rest=4, clock=question.clock)
    at_once = await asyncio.gather(*(cached.get() for _ in range(5)))
    question.now_s += 0.9
    soon = await cached.get()
    question.now_s += 0.2
    later = await cached.get()

    assert (at_once, soon, later) == ([1] * 5, 1, 2)
    assert question.asked == 2


async def test_what_is_dear_is_asked_for_seldom():
    """An answer is kept for so many times as long as it took."""
    question = Question()
    question.took_s = 3.0
    cached = Cached(question.ask, wait_s=5, rest=10, clock=question.clock)
    first = await cached.get()
    question.now_s += 29.0
    kept, age_s = await cached.get(), cached.age_s
    question.now_s += 2.0
    anew = await cached.get()

    assert (first, kept, age_s, anew) == (1, 1, 29.0, 2)


@pytest.mark.parametrize(("stale", "kept"), [(False, None), (True, 1)])
async def test_a_failure_is_said(stale: bool, kept: int | None):
    """Without an answer there is none, or the last one where that will do; the reason is kept until one comes."""
    question = Question()
    cached = Cached(question.ask, wait_s=5, rest=4, stale=stale, clock=question.clock)
    await cached.get()
    question.now_s, question.problem = question.now_s + 2, "away"
    failed, problem = await cached.get(), cached.problem
    question.now_s, question.problem = question.now_s + 2, None
    found = await cached.get()

    assert (failed, problem) == (kept, "away")
    assert (found, cached.problem) == (3, None)


async def test_nobody_waits_longer_than_a_moment():
    """A question that hangs is not asked again; who looks goes on without, and its late answer is for others."""
    question = Question()
    question.gate.clear()
    cached = Cached(question.ask, wait_s=0.02, rest=4, clock=question.clock)
    hanging, problem = await cached.get(), cached.problem
    again = await cached.get()
    question.gate.set()
    found = await cached.get()

    assert (hanging, again, found) == (None, None, 1)
    assert problem == "no answer within 0.02 s"
    assert question.asked == 1


async def test_closing_ends_the_question():
    """Nothing is left behind that still asks."""
    question = Question()
    question.gate.clear()
    cached = Cached(question.ask, wait_s=0.02, rest=4, clock=question.clock)
    await cached.get()
    await cached.close()

    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "observing"] == []
