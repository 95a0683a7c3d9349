"""Whether a store is sound: its pages and indexes, in a bounded time, and that it takes a write."""

import time

import sqlalchemy as sa

from facetline.facets import errors
from facetline.storage.db import engine, models

CHECK_S = 10.0
"""How long SQLite's quick check may take; it reads the whole file, some hundred megabytes a second."""
FAULTS_MAX = 3


def check_pages(tx: engine.Tx, limit_s: float = CHECK_S) -> bool:
    """Read the whole database for damage; return whether that came to its end. PostgreSQL checks its pages itself.

    Raises:
        StoreUnavailable: it is damaged; the message has the first faults.
    """
    if tx.dialect != "sqlite":
        return True
    ends_s = time.monotonic() + limit_s
    try:
        with tx.limited(limit_s):
            found = [str(row[0]) for row in tx.execute(sa.text(f"PRAGMA quick_check({FAULTS_MAX})"))]
    except errors.StoreUnavailable:
        if time.monotonic() < ends_s:
            raise
        return False
    if found != ["ok"]:
        raise errors.StoreUnavailable(
            f"the store is damaged: {'; '.join(' '.join(each.split()) for each in found)[:500]};"
            " restore a backup with 'facetline restore FILE'"
        )
    return True


def write(tx: engine.Tx) -> None:
    """Write what is there already, so that a store that cannot be written says so."""
    tx.execute(sa.update(models.STORE).values(id=models.STORE.c.id))
