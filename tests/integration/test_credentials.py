"""Credentials in the store: only hashes, revoked at once, and a generation that says when to look again."""

import re

import pytest
import sqlalchemy as sa

from facetline.facets import errors
from facetline.storage import credentials, feed, generations
from facetline.storage.db import engine, models


async def made(store: engine.Store, id_: str, token: str, scope: str | None = None) -> credentials.Credential:
    """Make a credential."""
    return await store.write(credentials.create, id_, token, name="x", rights=("read", "write"), scope=scope)


def test_tokens_are_long_and_never_the_same():
    """A token has 256 random bits behind a prefix that scanners know."""
    found = {credentials.new_token() for _ in range(100)}

    assert len(found) == 100
    assert all(re.fullmatch(r"flt_[A-Za-z0-9_-]{43}", token) for token in found)


async def test_only_the_hash_is_stored(store: engine.Store):
    """No column of a credential's row holds its token."""
    token = credentials.new_token()
    await made(store, "c1", token, "alice")

    def row(tx: engine.Tx) -> list[object]:
        return list(tx.execute(sa.select(models.CREDENTIALS)).one())

    stored_ = await store.read(row)
    assert credentials.digest(token) in stored_
    assert not any(token in str(value) or token.removeprefix("flt_") in str(value) for value in stored_)


async def test_what_is_made_is_in_force_until_revoked(store: engine.Store):
    """A credential is in force with its rights and scope; a revoked one is not, and stays listed."""
    assert await store.read(credentials.in_force) == ([], False)
    first, second = await made(store, "c1", "t1", "alice"), await made(store, "c2", "t2")

    revoked = await store.write(credentials.revoke, "c1")

    assert (first.rights, first.scope) == (("read", "write"), "alice")
    assert await store.read(credentials.in_force) == ([second], True)
    assert [each.id for each in await store.read(credentials.all)] == ["c1", "c2"]
    assert revoked.revoked_ms is not None


async def test_a_store_that_had_a_token_says_so_for_ever(store: engine.Store):
    """Revoking the last token does not make a store one without tokens."""
    await made(store, "c1", "t1")
    await store.write(credentials.revoke, "c1")

    assert await store.read(credentials.in_force) == ([], True)


async def test_each_change_moves_the_generation_once(store: engine.Store):
    """Making and revoking move the generation; revoking again, and reading, do not."""

    async def generation() -> int:
        return (await store.read(feed.place)).credentials.number

    seen = [await generation()]
    await made(store, "c1", "t1")
    seen.append(await generation())
    await store.write(credentials.revoke, "c1")
    seen.append(await generation())
    again = await store.write(credentials.revoke, "c1")
    seen.append(await generation())

    assert seen == [0, 1, 2, 2]
    assert again.revoked_ms is not None


async def test_what_is_not_there_is_named(store: engine.Store):
    """Revoking an id that there is not is an error that names it."""
    with pytest.raises(errors.NotFound, match="'none'"):
        await store.write(credentials.revoke, "none")


async def test_a_generation_that_is_counted_again_is_another_one(store: engine.Store):
    """After a restore the same number comes again for other credentials; its mark says that it is not the same."""

    async def back(seen: generations.Generation) -> None:
        def restore(tx: engine.Tx) -> None:
            tx.execute(sa.delete(models.CREDENTIALS))
            values = {"credentials_generation": seen.number, "credentials_mark": seen.mark}
            tx.execute(sa.update(models.STORE).values(values))

        await store.write(restore)

    backed_up = await store.read(credentials.generation)
    await made(store, "c1", "t1")
    cached = await store.read(credentials.generation)
    await back(backed_up)
    restored = await store.read(credentials.generation)
    await made(store, "c2", "t2")
    again = await store.read(credentials.generation)

    assert restored == backed_up
    assert (again.number, cached.number) == (1, 1)
    assert again != cached
    assert (await store.read(feed.place)).credentials == again


async def test_all_are_revoked_at_once(store: engine.Store):
    """Revoking all leaves none in force, moves the generation once, and with nothing to do changes nothing."""
    for number in range(3):
        await made(store, f"c{number}", f"t{number}")
    before = await store.read(credentials.generation)

    counts = [await store.write(credentials.revoke_all) for _ in range(2)]

    assert counts == [3, 0]
    assert await store.read(credentials.in_force) == ([], True)
    assert (await store.read(credentials.generation)).number == before.number + 1
