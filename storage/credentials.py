"""Who may ask over HTTP: credentials with rights and a scope, their tokens hashed.

A token is 32 random bytes, so one plain SHA-256 hides it as well as a slow hash would: there is nothing to guess. It is
shown once and never stored. A revoked credential stays as a row: its id names who wrote something, and a store that
has once had a token never answers without one again.

The generation moves with every change, so that a serving process finds out cheaply whether it is up to date.
"""

import hashlib
import secrets
from collections.abc import Iterable

import sqlalchemy as sa

from facetline.facets import errors
from facetline.storage.db import engine, models
from facetline.storage.db.models import Credential as Credential  # noqa: PLC0414 (part of what this module offers)
from facetline.storage.generations import Generation

PREFIX = "flt_"
"""What tokens begin with, so that scanners for leaked secrets find them."""
TOKEN_BYTES = 32
CREDENTIALS_MAX = 10_000
"""Serving processes keep them all in memory; one is some hundred bytes there."""

_STORES = models.STORE
_CREDENTIALS = models.CREDENTIALS
_C = _CREDENTIALS.c
_GENERATION = (_STORES.c.credentials_generation, _STORES.c.credentials_mark)


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    """Return what is stored of a token, in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def create(tx: engine.Tx, id: str, token: str, *, name: str, rights: Iterable[str], scope: str | None) -> Credential:  # noqa: A002 (a credential's id is its name)
    """Store a credential; the caller shows its token, once.

    Raises:
        Conflict: there are `CREDENTIALS_MAX` already.
    """
    _lock(tx)
    there = tx.execute(sa.select(sa.func.count()).select_from(_CREDENTIALS).where(_C.revoked_ms.is_(None))).scalar_one()
    if there >= CREDENTIALS_MAX:
        raise errors.Conflict(f"there are {there} tokens already; revoke some: facetline token list")
    row = {
        "id": id,
        "name": name,
        "digest": digest(token),
        "rights": tuple(rights),
        "scope": scope,
        "created_ms": tx.now_ms,
    }
    tx.execute(sa.insert(_CREDENTIALS), row)
    _changed(tx)
    return get(tx, id)


def get(tx: engine.Tx, id: str) -> Credential:  # noqa: A002
    """Return a credential.

    Raises:
        NotFound: there is none of that id.
    """
    found = tx.rows(Credential, sa.select(_CREDENTIALS).where(_C.id == id))
    if not found:
        raise errors.NotFound(f"there is no token '{id[:80]}'; see: facetline token list")
    return found[0]


def all(tx: engine.Tx) -> list[Credential]:  # noqa: A001 (read as `credentials.all`)
    """Return all credentials, the revoked ones too, oldest first."""
    return tx.rows(Credential, sa.select(_CREDENTIALS).order_by(_C.created_ms, _C.id))


def in_force(tx: engine.Tx) -> tuple[list[Credential], bool]:
    """Return the credentials that are not revoked, and whether there has ever been one."""
    query = sa.select(_CREDENTIALS).where(_C.revoked_ms.is_(None)).order_by(_C.created_ms, _C.id)
    found = tx.rows(Credential, query.limit(CREDENTIALS_MAX))
    return found, bool(found) or tx.execute(sa.select(_C.id).limit(1)).first() is not None


def revoke(tx: engine.Tx, id: str) -> Credential:  # noqa: A002
    """Revoke a credential; one that is revoked already stays as it is.

    Raises:
        NotFound: there is none of that id.
    """
    _lock(tx)
    revoked = sa.update(_CREDENTIALS).where(_C.id == id, _C.revoked_ms.is_(None)).values(revoked_ms=tx.now_ms)
    if tx.execute(revoked.returning(_C.id)).first() is not None:
        _changed(tx)
    return get(tx, id)


def revoke_all(tx: engine.Tx) -> int:
    """Revoke all credentials; return how many were in force."""
    _lock(tx)
    revoked = sa.update(_CREDENTIALS).where(_C.revoked_ms.is_(None)).values(revoked_ms=tx.now_ms)
    count = int(tx.execute(revoked).rowcount)
    if count:
        _changed(tx)
    return count


def generation(tx: engine.Tx) -> Generation:
    """Return the generation of the credentials."""
    return Generation.of(tx.execute(sa.select(*_GENERATION)).one())


def _lock(tx: engine.Tx) -> None:
    """Keep other changes out until this transaction ends."""
    tx.execute(tx.lock_rows(sa.select(*_GENERATION)))


def _changed(tx: engine.Tx) -> None:
    number, mark = generation(tx).next()
    tx.execute(sa.update(_STORES).values(credentials_generation=number, credentials_mark=mark))
