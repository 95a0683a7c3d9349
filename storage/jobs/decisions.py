"""What a reindex job does with one document when its turn comes: pure decisions, no database.

A turn clears a document and asks again, takes over an answer that is awaited anyway, or closes the item without either.
Nothing that is answered or awaited well enough is asked about twice.
"""

from dataclasses import dataclass
from typing import Literal

from facetline.storage.queue import due_documents

Mode = Literal["missing", "outdated", "force"]
ItemState = Literal["waiting", "asked", "reindexed", "failed", "superseded", "skipped", "canceled"]
Action = Literal["clear", "adopt", "reindexed", "failed", "superseded", "skipped"]
ASKING: frozenset[Action] = frozenset({"clear", "adopt"})
"""Actions after which an item waits for an answer."""


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """How a document stands, as far as a turn looks at it. `claimed`: someone holds or held a lease on it."""

    status: str
    lane: int
    fingerprint: str | None
    cleared_ms: int
    owner: str | None
    crashes: int
    claimed_fingerprint: str | None

    @property
    def may_be_answered(self) -> bool:
        """Whether someone may be asking about it just now: a running lease, or one that was taken over."""
        return self.owner is not None or self.crashes > 0


def decide(mode: Mode, created_ms: int, active: str, document: DocumentSnapshot) -> Action:
    """Say what the turn of a job created at `created_ms` does with a document under the active fingerprint."""
    cleared_later = document.cleared_ms > created_ms
    if document.status in {"deleted", "empty"}:
        return "skipped"
    if cleared_later and document.lane == due_documents.LIVE:
        return "superseded"
    if document.status == "pending":
        return _decide_pending(mode, active, document, asked_since=cleared_later)
    if document.status == "failed":
        # Cleared since by another job: asked about, in vain, after this job was made.
        return "failed" if cleared_later else "clear"
    if mode == "force" or (mode == "outdated" and document.fingerprint != active):
        return "clear"
    return "reindexed"


def _decide_pending(mode: Mode, active: str, document: DocumentSnapshot, *, asked_since: bool) -> Action:
    """Take a coming answer over, unless it would be under another fingerprint, or asked for before a forced job."""
    if not document.may_be_answered:
        return "adopt"
    if document.claimed_fingerprint != active:
        return "clear"
    return "adopt" if mode != "force" or asked_since else "clear"


def outcome(indexed_as: int, current_indexed_as: int, status: str) -> ItemState | None:
    """Say how an item that was asked about under `indexed_as` has ended, None while it waits for its answer."""
    if current_indexed_as != indexed_as:
        return "superseded"
    if status == "pending":
        return None
    return "reindexed" if status == "indexed" else "failed"
