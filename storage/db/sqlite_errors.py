"""What SQLite's errors mean to an operator: read-only, damaged, no database, not to be opened; with the way out."""

import os
import re
import sqlite3
from pathlib import Path

from sqlalchemy import exc

from facetline.facets import errors

RESTORE = "restore a backup with 'facetline restore FILE'"
_RIGHTS = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def explained(error: exc.DBAPIError | sqlite3.Error, path: Path) -> errors.PipelineError | None:
    """Return what is wrong with the files of a store, in one line; None for what is no fault of theirs."""
    original = error.orig if isinstance(error, exc.DBAPIError) else error
    if not isinstance(original, sqlite3.DatabaseError):
        return None
    code = getattr(original, "sqlite_errorcode", 0) & 0xFF
    text = re.sub(r"\s+", " ", str(original)).strip()
    if code == sqlite3.SQLITE_NOTADB:
        return errors.StoreMismatch(f"{path} is not a store of Facetline: {text}; move it away, or {RESTORE}")
    if code == sqlite3.SQLITE_CORRUPT:
        return errors.StoreUnavailable(
            f"the store at {path} is damaged: {text}; {RESTORE}, or move the file away and write the documents again"
        )
    if code in _RIGHTS:
        return errors.StoreUnavailable(f"the store at {path} cannot be used: {text}; {_rights(path)}")
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return errors.StoreUnavailable(f"the store at {path} cannot be used: {text}; look at the disk")
    return None


def _rights(path: Path) -> str:
    """Say who may write there: SQLite needs the folder, too, for the files beside the database."""
    for each in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm")), path.parent):
        if each.exists() and not os.access(each, os.R_OK | os.W_OK):
            owner = each.stat().st_uid
            return f"this process (user {os.geteuid()}) may not write {each}, which is user {owner}'s"
    return f"the file, {path.parent} and what is mounted there must be writable"
