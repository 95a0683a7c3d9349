"""One test's documents on a rig, everything that was written about them, and the promises that it is all held against.

Every body begins with a mark, which is the answer to it, and the state of the same write has the mark as its title: a
hit whose answer is not its title's shows an answer about another body.
"""

import asyncio
import itertools
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import seeds
import sqlalchemy as sa
from polling import eventually
from runtimes import ANSWERED_S, Case, Site

from facetline.facets import errors
from facetline.storage.db import engine
from facetline.storage.log import outcomes
from facetline.storage.log.events import Outcome
from facetline.streams.pipeline import Pipeline

MARKS = tuple(f"m{number:02d}" for number in range(12))
SETTLED_S = 60.0
"""How long a whole trial may take to come to rest once everything runs again."""


@dataclass(frozen=True)
class Written:
    """A write that was tried; `accepted` says whether the log has acknowledged it. `body` None: a delete."""

    uri: str
    event_id: str
    body: str | None
    accepted: bool


def watch(site: Site, scope: str) -> None:
    """Let the reader look at a scope; at none, for "": a search every few milliseconds costs a sixth of a core."""
    watched = site.folder / "watched"
    watched.with_suffix(".new").write_text(scope)
    watched.with_suffix(".new").replace(watched)


class Trial(Case):
    """A case that remembers what it wrote."""

    def __init__(self, site: Site, pipeline: Pipeline) -> None:
        super().__init__(site, pipeline)
        self.written: list[Written] = []
        self.random = seeds.chance("trial", os.environ.get("PYTEST_CURRENT_TEST"))
        self._numbers = itertools.count(1)
        watch(site, self.scope)

    async def put(self, key: str, words: str, **options: Any) -> dict[str, Any] | None:
        """Write a body whose first word is its mark; what its log did not take (or perhaps did) is None."""
        body = self.body(f"{words} n{next(self._numbers)}")
        state = {"title": words.split(maxsplit=1)[0]}
        return await self._send(key, body, state=state, **{"wait": "applied", "timeout_s": ANSWERED_S, **options})

    async def remove(self, key: str, **options: Any) -> dict[str, Any] | None:
        """Delete a document."""
        return await self._send(key, None, **{"wait": "applied", "timeout_s": ANSWERED_S, **options})

    async def _send(self, key: str, body: str | None, **options: Any) -> dict[str, Any] | None:
        event_id = uuid.uuid4().hex
        uri = self.uri(key)
        try:
            if body is None:
                reply = await self.pipeline.delete(uri, event_id=event_id, **options)
            else:
                reply = await self.pipeline.write(uri, body=body, event_id=event_id, **options)
        except (errors.BrokerUnavailable, errors.StoreUnavailable, errors.WriteInDoubt, errors.InvalidEvent):
            self.written.append(Written(uri, event_id, body, accepted=False))
            return None
        self.written.append(Written(uri, event_id, body, accepted=True))
        return reply

    async def scribble(self, keys: Sequence[str], stop: asyncio.Event, every_s: float) -> None:
        """Write, rewrite and delete documents at random until told to stop, without waiting for anything."""
        while not stop.is_set():
            key = self.random.choice(keys)
            if self.random.random() < 0.1:
                await self.remove(key, wait="none")
            else:
                await self.put(key, self.random.choice(MARKS), wait="none")
            await asyncio.sleep(every_s * self.random.uniform(0, 2))

    async def dally(self) -> None:
        """Wait for a random while, in a soak."""
        await seeds.dally(self.random)

    async def conclude(self) -> None:
        """Wait until everything has ended, and hold it against the promises."""
        await self._at_rest()
        found = {each.event_id: await self._outcome(each) for each in self.written}
        documents = await self.pipeline.store.read(_rows, self.scope)
        self._each_write_ended(found)
        self._each_document_is_its_last_write(found, documents)
        self._calls_are_accounted_for(found, documents, await self.pipeline.store.read(_past, self.scope))
        await self._replies_are_sound(documents)

    async def _at_rest(self) -> None:
        await self.caught_up()

        async def nothing_pending() -> bool:
            rows = await self.pipeline.store.read(_rows, self.scope)
            return all(row["status"] != "pending" for row in rows.values())

        await eventually(nothing_pending, deadline_s=SETTLED_S, every_s=0.1, what="every document is settled")

    async def _outcome(self, written: Written) -> Outcome | None:
        return await self.pipeline.store.read(outcomes.find, self.pipeline.source, written.event_id)

    def _each_write_ended(self, found: dict[str, Outcome | None]) -> None:
        for each in self.written:
            outcome = found[each.event_id]
            if each.accepted:
                assert outcome is not None, f"accepted and lost: {each}"
                assert outcome.outcome in {"applied", "unchanged"} or outcome.reason == "expired", f"{outcome}: {each}"
            else:
                assert outcome is None or outcome.outcome == "rejected", f"refused, and applied all the same: {each}"

    def _each_document_is_its_last_write(self, found: dict[str, Outcome | None], documents: dict[str, Any]) -> None:
        last: dict[str, tuple[int, Written]] = {}
        versions: dict[str, list[int]] = {}
        for each in self.written:
            outcome = found[each.event_id]
            if outcome is not None and outcome.version is not None and outcome.outcome == "applied":
                versions.setdefault(each.uri, []).append(outcome.version)
                if outcome.version > last.get(each.uri, (0, each))[0]:
                    last[each.uri] = (outcome.version, each)
        for uri, (version, each) in last.items():
            row = documents[uri]
            assert len(set(versions[uri])) == len(versions[uri]), f"{uri}: two writes under one version"
            assert row["version"] >= version
            if each.body is None:
                assert (row["status"], row["facets"]) == ("deleted", None), f"{uri}: {row}"
            elif row["status"] == "indexed":
                assert json.loads(row["facets"])["topic"]["choice"] == _mark(each.body), f"{uri}: {row}"
            else:
                assert row["status"] == "failed", f"{uri}: {row}"
                assert row["reason"], f"{uri}: {row}"

    def _calls_are_accounted_for(
        self, found: dict[str, Outcome | None], documents: dict[str, Any], past: list[dict[str, Any]]
    ) -> None:
        """Count calls for each body where they were answered, and what the store says of all its lives."""
        lives = [*past, *documents.values()]
        for uri in documents:
            mine = [each for each in self.written if each.uri == uri]
            starts = sorted(
                (outcome.indexed_as or 0, each.body)
                for each in mine
                if (outcome := found[each.event_id]) is not None and outcome.outcome == "applied"
            )
            allowed: Counter[str] = Counter()
            for life in lives:
                if life["uri"] == uri and (body := _body_at(starts, life["indexed_as"])) is not None:
                    allowed[body] += 1 + life["retries"] + life["crashes"]
            calls = Counter(call.body for call in self.site.script.calls())
            for body, most in allowed.items():
                assert calls[body] <= most, f"{uri}: {calls[body]} calls where {most} are accounted for: {body}"
            unknown = [each.body for each in mine if not each.accepted and each.body and calls[each.body]]
            assert not unknown, f"asked about what was never written: {unknown}"

    async def _replies_are_sound(self, documents: dict[str, Any]) -> None:
        newest = {uri: row["version"] for uri, row in documents.items() if row["status"] != "deleted"}

        def seen_all() -> bool:
            seen: dict[str, int] = {}
            for _, hits in self._replies():
                seen.update({hit[0]: hit[1] for hit in hits})
            return all(seen.get(uri) == version for uri, version in newest.items())

        await eventually(seen_all, deadline_s=ANSWERED_S, every_s=0.2, what="the reader has seen the end")
        highest: dict[str, tuple[int, int]] = {}
        for asked, hits in self._replies():
            for uri, version, _revision, indexed_as, status, title, choice in hits:
                before = highest.setdefault(uri, (0, 0))
                assert (version, indexed_as) >= before, f"{uri} went back from {before} to {(version, indexed_as)}"
                assert indexed_as >= before[1], f"{uri}: indexed_as went back from {before}"
                assert choice == (title if status == "indexed" else None), f"{uri}: {title} with {choice} ({status})"
                assert asked in {None, choice}, f"{uri}: {choice} found by {asked}"
                highest[uri] = (version, indexed_as)

    def _replies(self) -> Iterator[tuple[str | None, list[list[Any]]]]:
        replies = self.site.folder / "replies"
        whole = replies.read_text().rpartition("\n")[0] if replies.exists() else ""  # it writes just now
        for line in whole.splitlines():
            reply = json.loads(line)
            if reply is not None:
                yield reply[0], [hit for hit in reply[1] if hit[0].startswith(f"@{self.scope}/")]


def _mark(body: str) -> str:
    return body.split(maxsplit=1)[0]


def _body_at(starts: list[tuple[int, str | None]], indexed_as: int) -> str | None:
    """Return the body that a life of a document was about: that of the last clearing write at or below it."""
    bodies = [body for start, body in starts if start <= indexed_as]
    return bodies[-1] if bodies else None


def note_the_past(tx: engine.Tx) -> None:
    """Keep what is recorded about the calls of a life of a document when the next one begins."""
    columns = "uri TEXT, indexed_as BIGINT, retries BIGINT, crashes BIGINT"
    tx.execute(sa.text(f"CREATE TABLE IF NOT EXISTS test_past ({columns})"))
    values = "VALUES (OLD.uri, OLD.indexed_as, OLD.retries, OLD.crashes)"
    when = "AFTER UPDATE ON documents FOR EACH ROW WHEN (OLD.indexed_as <> NEW.indexed_as)"
    if tx.dialect == "sqlite":
        steps = [f"CREATE TRIGGER IF NOT EXISTS test_past {when} BEGIN INSERT INTO test_past {values}; END"]
    else:
        body = f"BEGIN INSERT INTO test_past {values}; RETURN NEW; END"
        steps = [
            f"CREATE OR REPLACE FUNCTION test_past() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
            f"CREATE OR REPLACE TRIGGER test_past {when} EXECUTE FUNCTION test_past()",
        ]
    for step in steps:
        tx.execute(sa.text(step))


def _past(tx: engine.Tx, scope: str) -> list[dict[str, Any]]:
    query = sa.text("SELECT * FROM test_past WHERE uri LIKE :uris")
    return [dict(row) for row in tx.execute(query, {"uris": f"@{scope}/%"}).mappings()]


def _rows(tx: engine.Tx, scope: str) -> dict[str, dict[str, Any]]:
    columns = "uri, version, indexed_as, status, reason, facets, retries, crashes"
    query = sa.text(f"SELECT {columns} FROM documents WHERE scope = :scope")
    return {row["uri"]: dict(row) for row in tx.execute(query, {"scope": scope}).mappings()}
