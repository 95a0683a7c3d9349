"""A spend limit per day: how many more calls an evaluator may start, over all processes of the store.

Looked at in the transaction of a claim, so that what is known is what the ledger holds. Calls under way have not been
charged yet; they are counted at what a call costs on average. When that is not known yet, or they turn out dearer, the
limit is passed by what the calls under way at that moment cost, and by no more.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from facetline.storage import usage_ledger
from facetline.storage.db import batch_parameters, engine, models
from facetline.storage.queue import due_documents

_DOCUMENTS = models.DOCUMENTS
_C = _DOCUMENTS.c


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the limit leaves: `calls` more may start now. `resumes_ms` (store's clock) is when the next day begins.

    `reached` says that the day's money is spent; without it, 0 calls mean that those under way may use up the rest.
    `unpriced_calls` of today reported no cost, so the limit does not count them.
    """

    limit_usd: float
    spent_usd: float
    unpriced_calls: int
    calls: int
    resumes_ms: int

    @property
    def reached(self) -> bool:
        """Whether the limit is reached."""
        return self.spent_usd >= self.limit_usd

    @property
    def is_blind(self) -> bool:
        """Whether the limit cannot hold, because calls were made today and none reported its cost."""
        return self.unpriced_calls > 0 and self.spent_usd <= 0


def allowance(
    tx: engine.Tx,
    evaluator: str,
    limit_usd: float,
    *,
    collections: Collection[str],
    slots: int,
    unbilled_usd: float = 0.0,
) -> Allowance:
    """Return how many of `slots` calls may start; `unbilled_usd` is what ended calls cost that are not charged yet."""
    found = usage_ledger.today(tx, evaluator)
    spent_usd = found.cost_usd + unbilled_usd
    calls = 0
    if spent_usd < limit_usd:
        mean_usd = found.mean_usd or usage_ledger.recent(tx, evaluator).mean_usd or 0.0
        room_usd = limit_usd - spent_usd - mean_usd * _under_way(tx, collections)
        calls = slots if mean_usd <= 0 else max(0, math.ceil(min(room_usd / mean_usd, slots)))
    resumes_ms = usage_ledger.next_day_ms(tx.now_ms)
    return Allowance(limit_usd, spent_usd, found.unpriced_calls, min(calls, slots), resumes_ms)


def _under_way(tx: engine.Tx, collections: Collection[str]) -> int:
    of = batch_parameters.unindexed(_C.collection).in_(sorted(collections))
    claimed = sa.select(sa.func.count()).where(due_documents.PENDING, _C.owner.is_not(None), of)
    return int(tx.execute(claimed).scalar_one())
