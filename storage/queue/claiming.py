"""One claim in the making: rounds of due documents, answered from the memo or claimed, until the slots are filled."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from facetline.storage.db import batch_parameters, engine, json_rows, models
from facetline.storage.queue import answer_cache, completion, due_documents

ROUNDS_MAX = 8
"""Selects of one claim and lane. What is still due then is found by the next claim."""
LOCKED_AGAIN_MS = 25
"""When to look again for what is due but was passed over: locked by a transaction that takes milliseconds."""

TURNS_MAX = 64
"""Scopes that have their turn in one claim."""

Turns = Mapping[tuple[str, int], str]
"""Whose turn it was last: a scope by (collection, lane), and a collection by ("", lane)."""

_DOCUMENTS = models.DOCUMENTS
_C = _DOCUMENTS.c


class Picking:
    """The state of one claim; lives as long as its transaction."""

    def __init__(
        self,
        tx: engine.Tx,
        owner: str,
        lease_ms: int,
        active: Mapping[str, str],
        busy: set[answer_cache.Key],
        turns: Turns,
    ) -> None:
        self.picked: list[due_documents.Candidate] = []
        self.remembered = 0
        self.remembered_as: list[completion.Identity] = []
        self._tx = tx
        self._owner = owner
        self._lease_until_ms = tx.now_ms + lease_ms
        self._active = active
        self._busy = busy
        self.turns = dict(turns)
        self._heads: set[str] = set()

    def pick(self, lane: int, slots: int, *, remembered_max: int) -> None:
        """Claim up to `slots` documents of a lane, and answer up to `remembered_max` from the memo on the way."""
        page, claimed, remembered = slots, 0, 0
        for _ in range(ROUNDS_MAX):
            page = min(page, remembered_max - remembered)
            if claimed >= slots or page <= 0:
                return
            found = self._due(lane, page)
            entries = answer_cache.get(self._tx, (self._key(each) for each in found))
            hits = [each for each in found if self._usable(each, entries) is not None]
            self._remember(hits, entries)
            remembered += len(hits)
            known = {each.uri for each in hits}
            claimed += self._claim([each for each in found if each.uri not in known], slots - claimed)
            if len(found) < page and not hits:
                return
            page = page * 2 if 2 * len(hits) > len(found) else page

    def next_due_ms(self) -> int | None:
        """Return when to claim again if nothing happens before."""
        for collection in self._active:
            busy = self._busy_in(collection)
            if any(due_documents.any_due(self._tx, collection, lane, without=busy) for lane in due_documents.LANES):
                return self._tx.now_ms + LOCKED_AGAIN_MS
        return due_documents.next_event_ms(self._tx, sorted(self._active))

    def _due(self, lane: int, limit: int) -> list[due_documents.Candidate]:
        """The longest due of all collections; where there is more than `limit`, collections and scopes take turns.

        What is locked here beyond `limit` is free again in milliseconds.
        """
        found = {
            collection: due_documents.due(self._tx, collection, lane, limit, without=self._busy_in(collection))
            for collection in self._active
        }
        waiting = sum(map(len, found.values()))
        if waiting < limit or limit <= 0:
            return sorted(itertools.chain(*found.values()), key=_longest_due)
        inturn = [self._in_turn(name, lane, each, limit) for name, each in found.items() if each]
        ordered = self._collections_in_turn(lane, inturn)[:limit]
        if ordered:
            self.turns["", lane] = ordered[-1].collection
        for each in ordered:  # heads of scopes come first, in the order of their turns
            if each.uri in self._heads:
                self.turns[each.collection, lane] = each.scope
        return ordered

    def _in_turn(
        self, collection: str, lane: int, found: list[due_documents.Candidate], limit: int
    ) -> list[due_documents.Candidate]:
        """Put the longest due document of each scope first; a collection without scopes is left as it is."""
        if len(found) < limit or not found[0].scope:
            return found
        after = self.turns.get((collection, lane), "")
        heads = due_documents.heads(self._tx, collection, lane, after, min(limit, TURNS_MAX))
        known = {each.uri: each for each in found}
        missing = [uri for uri in heads.values() if uri not in known]
        if missing:
            without = self._busy_in(collection)
            known.update((each.uri, each) for each in due_documents.chosen(self._tx, missing, without=without))
        first = [known[uri] for uri in heads.values() if uri in known]
        self._heads.update(each.uri for each in first)
        return [*first, *(each for each in found if each.uri not in self._heads)]

    def _collections_in_turn(
        self, lane: int, found: list[list[due_documents.Candidate]]
    ) -> list[due_documents.Candidate]:
        """Take one document of each collection in turn, beginning after the collection that came last before."""
        last = self.turns.get(("", lane))
        found = sorted(found, key=lambda each: _longest_due(each[0]))
        if last is not None:
            found.sort(key=lambda each: (each[0].collection <= last, each[0].collection))
        rounds = itertools.zip_longest(*found)
        return [each for one_of_each in rounds for each in one_of_each if each is not None]

    def _claim(self, found: list[due_documents.Candidate], slots: int) -> int:
        chosen: list[due_documents.Candidate] = []
        for each in found:
            key = self._key(each)
            if len(chosen) < slots and key not in self._busy:
                self._busy.add(key)
                chosen.append(each)
        if chosen:
            self._lease(chosen)
            self.picked += chosen
        return len(chosen)

    def _lease(self, chosen: list[due_documents.Candidate]) -> None:
        rows = [{"uri": each.uri, "fingerprint": self._active[each.collection]} for each in chosen]
        self._tx.execute(
            _leasing(self._tx.dialect),
            {
                **batch_parameters.parameter("given", rows),
                "by": self._owner,
                "now": self._tx.now_ms,
                "until": self._lease_until_ms,
            },
        )

    def _usable(
        self, each: due_documents.Candidate, entries: Mapping[answer_cache.Key, answer_cache.Entry]
    ) -> answer_cache.Entry | None:
        entry = entries.get(self._key(each))
        if entry is None or each.memo_after_ms is None:
            return entry
        # One that was asked for in the future is from before the clock went back, and so from before the job.
        return entry if each.memo_after_ms < entry.asked_ms <= self._tx.now_ms else None

    def _remember(
        self, hits: list[due_documents.Candidate], entries: Mapping[answer_cache.Key, answer_cache.Entry]
    ) -> None:
        rows = [self._answer(each, entries[self._key(each)]) for each in sorted(hits, key=lambda hit: hit.uri)]
        stored = completion.store(self._tx, rows)
        self.remembered += len(stored)
        self.remembered_as += sorted(stored)

    def _answer(self, each: due_documents.Candidate, entry: answer_cache.Entry) -> dict[str, Any]:
        now = json_rows.moment(self._tx.now_ms).isoformat()
        evaluation = json_rows.loads(entry.evaluation)
        # The call was paid for once, by the document it was made for.
        evaluation |= {"cached": True, "classified_at": now, "usage": None, "cost_usd": None}
        return {
            "uri": each.uri,
            "indexed_as": each.indexed_as,
            "fingerprint": entry.key.fingerprint,
            "facets": entry.facets,
            "evaluation": json_rows.dumps(evaluation),
        }

    def _key(self, each: due_documents.Candidate) -> answer_cache.Key:
        return answer_cache.Key(each.scope, each.body_hash, self._active[each.collection])

    def _busy_in(self, collection: str) -> set[tuple[str, str]]:
        own = self._active[collection]
        return {(key.scope, key.body_hash) for key in self._busy if key.fingerprint == own}


def _longest_due(each: due_documents.Candidate) -> tuple[int, str]:
    return each.due_ms, each.uri


@functools.cache
def _leasing(dialect: engine.Dialect) -> sa.Update:
    """The statement of every claim, built once."""
    given = batch_parameters.shape(dialect, "given", (("uri", "text"), ("fingerprint", "text")))
    leased = {
        "owner": sa.bindparam("by"),
        "attempt": _C.attempt + 1,
        "calls_made": _C.calls_made + 1,
        "claimed_ms": sa.bindparam("now"),
        "claimed_fingerprint": given.c.fingerprint,
        "lease_until_ms": sa.bindparam("until"),
    }
    return sa.update(_DOCUMENTS).where(_C.uri == given.c.uri).values(leased)
