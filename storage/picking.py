"""One claim in the making: rounds of due documents, answered from the memo or claimed, until the slots are filled."""

import functools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from storage import batches, candidates, engine, memo, serial, settling, tables

ROUNDS_MAX = 8
"""Selects of one claim and lane. What is still due then is found by the next claim."""
LOCKED_AGAIN_MS = 25
"""When to look again for what is due but was passed over: locked by a transaction that takes milliseconds."""

_DOCUMENTS = tables.DOCUMENTS
_C = _DOCUMENTS.c


class Picking:
    """The state of one claim; lives as long as its transaction."""

    def __init__(
        self, tx: engine.Tx, owner: str, lease_ms: int, active: Mapping[str, str], busy: set[memo.Key]
    ) -> None:
        self.picked: list[candidates.Candidate] = []
        self.remembered = 0
        self.remembered_as: list[settling.Identity] = []
        self._tx = tx
        self._owner = owner
        self._lease_until_ms = tx.now_ms + lease_ms
        self._active = active
        self._busy = busy

    def pick(self, lane: int, slots: int, *, remembered_max: int) -> None:
        """Claim up to `slots` documents of a lane, and answer up to `remembered_max` from the memo on the way."""
        page, claimed, remembered = slots, 0, 0
        for _ in range(ROUNDS_MAX):
            page = min(page, remembered_max - remembered)
            if claimed >= slots or page <= 0:
                return
            found = self._due(lane, page)
            entries = memo.get(self._tx, (self._key(each) for each in found))
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
            if any(candidates.any_due(self._tx, collection, lane, without=busy) for lane in candidates.LANES):
                return self._tx.now_ms + LOCKED_AGAIN_MS
        return candidates.next_event_ms(self._tx, sorted(self._active))

    def _due(self, lane: int, limit: int) -> list[candidates.Candidate]:
        """The longest due of all collections. What is locked here beyond `limit` is free again in milliseconds."""
        found = [
            each
            for collection in self._active
            for each in candidates.due(self._tx, collection, lane, limit, without=self._busy_in(collection))
        ]
        return sorted(found, key=lambda each: (each.due_ms, each.uri))[:limit]

    def _claim(self, found: list[candidates.Candidate], slots: int) -> int:
        chosen: list[candidates.Candidate] = []
        for each in found:
            key = self._key(each)
            if len(chosen) < slots and key not in self._busy:
                self._busy.add(key)
                chosen.append(each)
        if chosen:
            self._lease(chosen)
            self.picked += chosen
        return len(chosen)

    def _lease(self, chosen: list[candidates.Candidate]) -> None:
        rows = [{"uri": each.uri, "fingerprint": self._active[each.collection]} for each in chosen]
        self._tx.execute(
            _leasing(self._tx.dialect),
            {
                **batches.parameter("given", rows),
                "by": self._owner,
                "now": self._tx.now_ms,
                "until": self._lease_until_ms,
            },
        )

    def _usable(self, each: candidates.Candidate, entries: Mapping[memo.Key, memo.Entry]) -> memo.Entry | None:
        entry = entries.get(self._key(each))
        if entry is None or each.memo_after_ms is None:
            return entry
        # One that was asked for in the future is from before the clock went back, and so from before the job.
        return entry if each.memo_after_ms < entry.asked_ms <= self._tx.now_ms else None

    def _remember(self, hits: list[candidates.Candidate], entries: Mapping[memo.Key, memo.Entry]) -> None:
        rows = [self._answer(each, entries[self._key(each)]) for each in sorted(hits, key=lambda hit: hit.uri)]
        stored = settling.store(self._tx, rows)
        self.remembered += len(stored)
        self.remembered_as += sorted(stored)

    def _answer(self, each: candidates.Candidate, entry: memo.Entry) -> dict[str, Any]:
        now = serial.moment(self._tx.now_ms).isoformat()
        evaluation = serial.loads(entry.evaluation)
        # The call was paid for once, by the document it was made for.
        evaluation |= {"cached": True, "classified_at": now, "usage": None, "cost_usd": None}
        return {
            "uri": each.uri,
            "indexed_as": each.indexed_as,
            "fingerprint": entry.key.fingerprint,
            "facets": entry.facets,
            "evaluation": serial.dumps(evaluation),
        }

    def _key(self, each: candidates.Candidate) -> memo.Key:
        return memo.Key(each.scope, each.body_hash, self._active[each.collection])

    def _busy_in(self, collection: str) -> set[tuple[str, str]]:
        own = self._active[collection]
        return {(key.scope, key.body_hash) for key in self._busy if key.fingerprint == own}


@functools.cache
def _leasing(dialect: engine.Dialect) -> sa.Update:
    """The statement of every claim, built once."""
    given = batches.shape(dialect, "given", (("uri", "text"), ("fingerprint", "text")))
    leased = {
        "owner": sa.bindparam("by"),
        "attempt": _C.attempt + 1,
        "calls_made": _C.calls_made + 1,
        "claimed_ms": sa.bindparam("now"),
        "claimed_fingerprint": given.c.fingerprint,
        "lease_until_ms": sa.bindparam("until"),
    }
    return sa.update(_DOCUMENTS).where(_C.uri == given.c.uri).values(leased)
