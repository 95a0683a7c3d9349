"""The memo: newest wins, oldest goes. Each once on SQLite and on PostgreSQL."""

from facetline.storage.db import engine
from facetline.storage.queue import answer_cache


def entry(body_hash: str, asked_ms: int, facets: str = "{}", scope: str = "") -> answer_cache.Entry:
    """An entry under one fingerprint."""
    return answer_cache.Entry(answer_cache.Key(scope, body_hash, "f"), facets, "{}", asked_ms)


async def test_entries_come_back_by_key(store: engine.Store):
    """What was put is found by exactly its scope, body hash and fingerprint."""
    entries = [entry("a", 1), entry("a", 2, scope="ann"), entry("b", 3)]
    await store.write(answer_cache.put, entries)

    found = await store.read(answer_cache.get, [each.key for each in entries] + [answer_cache.Key("bob", "a", "f")])

    assert found == {each.key: each for each in entries}


async def test_answer_asked_for_later_replaces_an_older_one(store: engine.Store):
    """Of two answers for one key the one asked for later stays, in whatever order they come."""
    await store.write(answer_cache.put, [entry("a", 5, "new")])
    await store.write(answer_cache.put, [entry("a", 4, "old")])
    await store.write(answer_cache.put, [entry("b", 9, "new"), entry("b", 8, "old")])
    await store.write(answer_cache.put, [entry("c", 1, "old")])
    await store.write(answer_cache.put, [entry("c", 2, "new")])

    found = await store.read(answer_cache.get, [answer_cache.Key("", name, "f") for name in "abc"])

    assert [each.facets for each in found.values()] == ["new"] * 3


async def test_pruning_forgets_the_oldest(store: engine.Store):
    """Beyond the bound the oldest entries go, in bounded steps; below it nothing does."""
    await store.write(answer_cache.put, [entry(f"{n}", n) for n in range(10)])

    steps = [await store.write(answer_cache.prune, 3, 5) for _ in range(3)]
    found = await store.read(answer_cache.get, [answer_cache.Key("", f"{n}", "f") for n in range(10)])

    assert steps == [5, 2, 0]
    assert sorted(each.asked_ms for each in found.values()) == [7, 8, 9]


async def test_more_keys_than_one_statement_takes(store: engine.Store):
    """Any number of keys can be put and asked for."""
    await store.write(answer_cache.put, [entry(f"{n}", n) for n in range(1_201)])

    found = await store.read(answer_cache.get, [answer_cache.Key("", f"{n}", "f") for n in range(1_201)])

    assert len(found) == 1_201
