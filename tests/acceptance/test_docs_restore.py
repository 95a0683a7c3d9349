"""PostgreSQL's backup and restore as docs/operate.md has them: its lines are run, and what it says is so afterwards.

Method: the console blocks with pg_dump and pg_restore, in a shell, against a real server; the store in front of them is
made by commands, and looked at by the product's own functions.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import commands
import documented
import postgres_server
import psycopg
import pytest
import stored

from facetline.facets import errors, tokens
from facetline.facets.backend import Caller, Freshness, Right
from facetline.facets.search.selection import Selection
from facetline.storage import credentials, feed, publications
from facetline.storage.db import engine
from facetline.streams.views import consistency
from facetline.streams.views.live_views import LiveViews

pytestmark = pytest.mark.postgres

RESTORED = "facetline_restored"
"""The name that the page gives the new database."""
FACETS = "facetline.facets.v1"
LIMIT_S = 120


def block(words: str) -> str:
    """Return the page's only block for a shell with these words."""
    [found] = [each.text for each in documented.blocks("docs/operate.md", "console") if words in each.text]
    return found


class Shell:
    """Runs the page's lines as an operator of this server."""

    def __init__(self, place: commands.Place, url: str) -> None:
        asked = psycopg.conninfo.conninfo_to_dict(postgres_server.libpq(url))
        given = {f"PG{name.upper()}": str(value) for name, value in asked.items() if name != "dbname"}
        given["PGDATABASE"] = "postgres"
        beside = place.folder / "bin"
        beside.mkdir()
        program = beside / "facetline"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(commands.COMMAND)} "$@"\n')
        program.chmod(0o700)
        path = os.pathsep.join(map(str, (beside, postgres_server.programs(), os.environ["PATH"])))
        self._given = {**given, "PATH": path, "DATABASE_URL": postgres_server.libpq(url)}
        self._place = place

    def run(self, text: str, store_url: str) -> str:
        """Run lines, each of which must end with 0, and return what they print."""
        settings = {**self._given, "FACETLINE_STORE_URL": store_url}
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=self._place.folder,
            env=commands.environment(settings),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def restored_url(postgres_admin_url: str) -> Iterator[str]:
    """Where the page restores to; there is nothing before and after."""
    postgres_server.drop_database(postgres_admin_url, RESTORED)
    yield postgres_server.url_of(postgres_admin_url, RESTORED)
    postgres_server.drop_database(postgres_admin_url, RESTORED)


def in_force(tx: engine.Tx) -> list[str]:
    """Return the ids of tokens that are not revoked."""
    return [each.id for each in credentials.in_force(tx)[0]]


def publish(tx: engine.Tx) -> int:
    """Send everything, as the publisher does, and return the position."""
    while feed.number(tx):
        pass
    start = publications.elect(tx, FACETS, "sender", 1)
    assert start is not None
    assert publications.advance(tx, FACETS, "sender", feed.end(tx), start=start)
    publications.resign(tx, FACETS, "sender")
    return publications.position(tx, FACETS)


async def read(store: engine.Store, token: str) -> int:
    """Return how many documents a server shows to a reader who has a token and waits for a moment."""
    views = LiveViews(store)
    try:
        while views.unbuilt() or views.end < (await store.read(feed.place)).end:
            await views.look()
        caller = Caller("reader", frozenset[Right]({"read"}))
        wanted = consistency.check(Freshness((token,), 0), caller, "test", store.store_id)
        await consistency.reached(views, store, "tickets", wanted, 0, None)
        async with views.using("tickets") as live:
            found = await views.read(live.view.search, Selection(collection="tickets"))
            return int(found["total"])
    finally:
        await views.close()


async def test_postgresql_is_restored_as_the_page_says(tmp_path: Path, new_postgres_url: str, restored_url: str):
    """Documents, tokens and the publisher's position are those of the backup, the database from before is untouched;
    a token of a later moment asks to wait, and the documents are asked for and sent again.
    """
    place = commands.Place(tmp_path, {"FACETLINE_STORE_URL": new_postgres_url})
    shell = Shell(place, new_postgres_url)
    assert place.run("init", "--samples").code == 0
    assert place.run("import", "samples.ndjson", "--collection", "tickets").code == 0
    revoked = place.run("token", "create", "--json").json["id"]
    async with stored.opened(new_postgres_url) as store:
        sent = await store.write(publish)
        shell.run(block("pg_dump"), new_postgres_url)
        for number in range(3):
            assert place.run("write", f"tickets/later{number}", "--body", "My card was charged twice.").code == 0
        assert place.run("token", "revoke", revoked).code == 0
        sent_later = await store.write(publish)
        later = tokens.encode(tokens.FeedToken(store.store_id, sent_later))
        shown_before = await read(store, later)
    doctor = shell.run(block("pg_restore"), restored_url)

    async with stored.opened(new_postgres_url) as before, stored.opened(restored_url) as after:
        assert await before.read(in_force) == []
        assert await before.read(publications.position, FACETS) == sent_later > sent
        assert after.store_id == before.store_id
        assert await after.read(in_force) == [revoked]
        assert await after.read(publications.position, FACETS) == sent == (await after.read(feed.place)).end
        assert await read(after, tokens.encode(tokens.FeedToken(after.store_id, sent))) == shown_before - 3
        with pytest.raises(errors.NotCaughtUp):
            await read(after, later)
        settings = {"FACETLINE_STORE_URL": restored_url}
        assert place.run("token", "revoke", "--all", "--json", settings=settings).json == {"revoked": 1}
        for number in range(4):
            words = ("write", f"tickets/again{number}", "--body", "Nothing loads.")
            assert place.run(*words, settings=settings).code == 0
        assert await after.write(publish) >= sent_later
        assert await read(after, later) == shown_before + 1
    assert "ok" in doctor
