"""What a reindex job does with a document: every case of the decision, without a database."""

import pytest

from facetline.storage.jobs import decisions
from facetline.storage.queue import due_documents

CREATED_MS = 100
BEFORE, AFTER = 50, 150
ACTIVE, OTHER = "active", "other"


def document(status: str, **differing: object) -> decisions.DocumentSnapshot:
    """A document in the live lane, cleared before the job, that nobody asks about."""
    plain: dict[str, object] = {
        "status": status,
        "lane": due_documents.LIVE,
        "fingerprint": ACTIVE if status == "indexed" else None,
        "cleared_ms": BEFORE,
        "owner": None,
        "crashes": 0,
        "claimed_fingerprint": None,
    }
    return decisions.DocumentSnapshot(**{**plain, **differing})  # type: ignore[arg-type]


ASKED = {"owner": "one", "claimed_fingerprint": ACTIVE}
ASKED_OTHERWISE = {"owner": "one", "claimed_fingerprint": OTHER}
TAKEN_OVER = {"crashes": 1, "claimed_fingerprint": ACTIVE}
BY_A_JOB = {"cleared_ms": AFTER, "lane": due_documents.REINDEX}
CASES = [
    # document, then what a missing, an outdated and a forced job do
    (document("deleted"), "skipped", "skipped", "skipped"),
    (document("empty", cleared_ms=AFTER), "skipped", "skipped", "skipped"),
    (document("pending", cleared_ms=AFTER), "superseded", "superseded", "superseded"),
    (document("indexed", cleared_ms=AFTER), "superseded", "superseded", "superseded"),
    (document("failed", cleared_ms=AFTER), "superseded", "superseded", "superseded"),
    (document("pending", cleared_ms=CREATED_MS), "adopt", "adopt", "adopt"),
    (document("pending"), "adopt", "adopt", "adopt"),
    (document("pending", **ASKED), "adopt", "adopt", "clear"),
    (document("pending", **ASKED_OTHERWISE), "clear", "clear", "clear"),
    (document("pending", **TAKEN_OVER), "adopt", "adopt", "clear"),
    (document("pending", crashes=1, claimed_fingerprint=OTHER), "clear", "clear", "clear"),
    (document("pending", **BY_A_JOB), "adopt", "adopt", "adopt"),
    (document("pending", **ASKED, **BY_A_JOB), "adopt", "adopt", "adopt"),
    (document("pending", **ASKED_OTHERWISE, **BY_A_JOB), "clear", "clear", "clear"),
    (document("failed"), "clear", "clear", "clear"),
    (document("failed", **BY_A_JOB), "failed", "failed", "failed"),
    (document("indexed"), "reindexed", "reindexed", "clear"),
    (document("indexed", fingerprint=OTHER), "reindexed", "clear", "clear"),
    (document("indexed", **BY_A_JOB), "reindexed", "reindexed", "clear"),
]


@pytest.mark.parametrize(("standing", "missing", "outdated", "force"), CASES)
def test_each_reindex_mode_clears_adopts_or_closes(
    standing: decisions.DocumentSnapshot, missing: str, outdated: str, force: str
):
    """Each kind of document is cleared, adopted or closed as its mode asks, and never asked about twice."""
    decided = {mode: decisions.decide(mode, CREATED_MS, ACTIVE, standing) for mode in ("missing", "outdated", "force")}

    assert decided == {"missing": missing, "outdated": outdated, "force": force}


@pytest.mark.parametrize(
    ("current", "status", "expected"),
    [
        (3, "pending", None),
        (3, "indexed", "reindexed"),
        (3, "failed", "failed"),
        (4, "pending", "superseded"),
        (4, "indexed", "superseded"),
        (4, "deleted", "superseded"),
    ],
)
def test_item_ends_as_its_own_identity_did(current: int, status: str, expected: str | None):
    """An item asked about under one `indexed_as` ends with that answer or failure, or was passed over."""
    assert decisions.outcome(3, current, status) == expected
