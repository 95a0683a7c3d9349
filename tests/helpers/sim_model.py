"""What must hold, told a second time: a model of documents, answers, letters and calls that shares no product code.

It is told what a log's records meant, which calls began, and what every row looked like after every commit. It works
out what the records do by itself; every other change of a document must be one that the committed function may make.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from sim_log import Intent

Place = tuple[int, int, int]
"""Incarnation, partition, offset."""
VISIBLE = ("version", "revision", "indexed_as", "status", "facets", "fingerprint", "reason")


class Broken(AssertionError):
    """A promise does not hold."""


@dataclass(frozen=True)
class Doc:
    """A document by its records alone, with what answers and turns have made of its counters since."""

    version: int = 0
    revision: int = 0
    indexed_as: int = 0
    status: str = "deleted"
    body: str | None = None
    state: str | None = None
    at: Place = (0, 0, -1)


@dataclass
class Call:
    """One call: its number is in its answer's confidence, so an answer tells which call it came from."""

    number: int
    uri: str
    indexed_as: int
    body: str
    scope: str
    fingerprint: str
    started_ms: int
    valid: bool = False


@dataclass
class Letter:
    """A dead letter."""

    reason: str
    state: str
    attempts: int


def holds(condition: object, said: str) -> None:
    """Fail with what is said unless it holds."""
    if not condition:
        raise Broken(said)


class Model:
    """The promises, checked after each commit."""

    def __init__(self, unanswered_max: int) -> None:
        self.docs: dict[str, Doc] = {}
        self.letters: dict[Place, Letter] = {}
        self.settled: dict[tuple[str, str], tuple[tuple[object, ...], str, int | None]] = {}
        self.calls: dict[int, Call] = {}
        self.begun: Counter[tuple[str, int]] = Counter()
        self.allowed: dict[tuple[str, int], int] = {}
        self.history: dict[tuple[str, int], dict[str, Any]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.ended: set[str] = set()
        self._unanswered_max = unanswered_max

    # What records do.

    def take(self, intent: Intent, place: Place) -> None:
        """Apply one record in log order."""
        at = intent.origin or place
        reason, doc = self._judge(intent, at)
        if reason == "duplicate":
            if intent.origin:
                self._close(at)
            return
        if reason is not None:
            self._reject(at, reason)
            return
        before = self.docs.get(intent.uri)
        if doc is not None:
            self.docs[intent.uri] = replace(doc, at=max(doc.at, at))
        if intent.origin:
            self._close(at)
        changed = doc is not None and (before is None or before.version != doc.version)
        said = "applied" if changed else "unchanged"
        self.settled[intent.source, intent.id] = (intent.content, said, None if doc is None else doc.version)

    def _judge(  # noqa: PLR0911 (the rules, one after another)
        self, intent: Intent, at: Place
    ) -> tuple[str | None, Doc | None]:
        if intent.bad and not (intent.bad == "expired" and intent.origin):
            return intent.bad, None
        known = self.settled.get((intent.source, intent.id))
        if known is not None:
            return ("duplicate" if known[0] == intent.content else "id_reused"), None
        doc = self.docs.get(intent.uri)
        if intent.origin and doc is not None and doc.at >= at:
            return "superseded", None
        alive = doc is not None and doc.status != "deleted"
        if intent.kind == "delete":
            if doc is None or not alive:
                return None, doc
            new = doc.version + 1
            return None, Doc(new, doc.revision, new, "deleted", at=doc.at)
        if doc is not None and alive and intent.unless_equal and _equal(intent, doc):
            return None, doc
        if intent.body is None and not alive:
            return "no_document", None
        doc = doc or Doc()
        new = doc.version + 1
        state = doc.state if intent.state is None else intent.state
        if intent.body is None:
            return None, replace(doc, version=new, state=state)
        status = "pending" if intent.body.strip() else "empty"
        return None, Doc(new, new, new, status, intent.body, state, doc.at)

    def _reject(self, at: Place, reason: str) -> None:
        letter = self.letters.get(at)
        state = "superseded" if reason == "superseded" else "open"
        if letter is None:
            self.letters[at] = Letter(reason, state, 1)
        else:
            kept = letter.reason if state == "superseded" else reason
            self.letters[at] = Letter(kept, state, letter.attempts + 1)

    def _close(self, at: Place) -> None:
        if at in self.letters and self.letters[at].state == "open":
            self.letters[at].state = "redriven"

    # What calls and commits do.

    def call(self, call: Call) -> None:
        """Note that a call begins, if it may."""
        identity = (call.uri, call.indexed_as)
        self.calls[call.number] = call
        self.begun[identity] += 1
        most = 1 + self.allowed.get(identity, 0)
        holds(self.begun[identity] <= most, f"call {self.begun[identity]} of {identity}, {most} allowed")

    def committed(self, function: str, rows: dict[str, dict[str, Any]], owner: str, now_ms: int) -> list[str]:
        """Compare all documents after a commit; return what has changed."""
        said = []
        for uri, row in rows.items():
            before = self.rows.get(uri)
            if before == row:
                continue
            self._check_row(uri, row)
            self._check_change(function, uri, before, row, now_ms)
            self._check_claim(uri, before, row, owner, now_ms)
            self.allowed[uri, row["indexed_as"]] = row["retries"] + row["crashes"]
            said.append(f"{uri}@{row['version']}/{row['indexed_as']} {row['status']} {row['owner'] or ''}".strip())
        for uri, doc in self.docs.items():
            row = rows.get(uri)
            holds(row is not None, f"{uri} is not in the store")
            found = row and tuple(row[name] for name in ("version", "revision", "indexed_as", "status", "body"))
            wanted = (doc.version, doc.revision, doc.indexed_as, doc.status, doc.body)
            holds(found == wanted, f"{uri} is {found}, must be {wanted}")
            holds(row and _json(row["state"]) == _json(doc.state), f"{uri} has state {row and row['state']}")
        holds(set(rows) == set(self.docs), f"documents without a record: {set(rows) - set(self.docs)}")
        self.rows = rows
        return said

    def _check_row(self, uri: str, row: dict[str, Any]) -> None:
        holds((row["facets"] is not None) == (row["status"] == "indexed"), f"{uri} is {row['status']} with answers")
        holds((row["reason"] is not None) == (row["status"] == "failed"), f"{uri} is {row['status']} with a reason")
        holds(row["owner"] is None or row["status"] == "pending", f"{uri} is {row['status']} and claimed")
        holds(row["status"] != "pending" or row["due_ms"] is not None, f"{uri} is pending and never due")
        shown = {name: row[name] for name in VISIBLE} | {"state": row["state"]}
        same = self.history.setdefault((uri, row["version"]), shown)
        holds(same == shown, f"{uri}@{row['version']} was {same} and is {shown}")

    def _check_change(
        self, function: str, uri: str, before: dict[str, Any] | None, row: dict[str, Any], now_ms: int
    ) -> None:
        """Take over what answers, failures and turns may do; what records do is known already."""
        doc = self.docs.get(uri)
        holds(doc is not None, f"{uri} came out of nothing")
        if doc is None or before is None or function in {"_commit", "apply"}:
            return
        if row["version"] == before["version"]:
            holds(all(row[name] == before[name] for name in VISIBLE), f"{function} changed {uri} without a new version")
            return
        holds(row["version"] == before["version"] + 1, f"{function} took {uri} to {row['version']}")
        change = (before["status"], row["status"])
        if function == "exchange":
            holds(change == ("pending", "indexed"), f"{function} made {uri} {change}")
            self._check_answer(uri, row)
        elif function == "fail":
            holds(change == ("pending", "failed"), f"{function} made {uri} {change}")
        elif function == "turn":
            holds(row["status"] == "pending" and before["status"] not in {"deleted", "empty"}, f"a turn {change} {uri}")
            holds(row["indexed_as"] == row["version"], f"a turn cleared {uri} under an old number")
            holds(row["cleared_ms"] == now_ms, f"a turn cleared {uri} at another time")
            self.docs[uri] = replace(doc, version=row["version"], indexed_as=row["version"], status="pending")
            return
        else:
            raise Broken(f"{function} changed {uri}: {change}")
        self.docs[uri] = replace(doc, version=row["version"], status=row["status"])

    def _check_answer(self, uri: str, row: dict[str, Any]) -> None:
        """An answer is one that a call gave about this very body, scope and set of questions."""
        facets, evaluation = json.loads(row["facets"]), json.loads(row["evaluation"])
        call = self.calls.get(round(facets["topic"]["confidence"] * 1_000_000))
        holds(call is not None and call.valid, f"{uri} has an answer that nobody gave: {facets}")
        if call is None:
            return
        about = (call.body, call.scope, call.fingerprint)
        holds(about == (row["body"], row["scope"], row["fingerprint"]), f"{uri} has the answer about {about}")
        own = (call.uri, call.indexed_as) == (uri, row["indexed_as"])
        holds(evaluation["cached"] or own, f"{uri}@{row['indexed_as']} has the answer to {call.uri}@{call.indexed_as}")
        after_ms = self.rows[uri]["memo_after_ms"]
        holds(after_ms is None or call.started_ms >= after_ms, f"{uri} has an answer from before a forced reindex")

    def _check_claim(
        self, uri: str, before: dict[str, Any] | None, row: dict[str, Any], owner: str, now_ms: int
    ) -> None:
        if row["owner"] is None or (before is not None and row["owner"] == before["owner"]):
            return
        holds(row["owner"] == owner, f"{uri} was claimed for {row['owner']} by {owner}")
        same = before is not None and before["indexed_as"] == row["indexed_as"] and before["owner"] is not None
        holds(
            not same or before["lease_until_ms"] <= now_ms, f"{uri} was taken from {before and before['owner']} early"
        )

    def jobs(self, jobs: dict[str, dict[str, Any]], items: list[dict[str, Any]]) -> None:
        """Check jobs: few documents are dark at once, ended ones stay so, and forced answers are new."""
        for job_id, job in jobs.items():
            asked = [item for item in items if item["job_id"] == job_id and item["state"] == "asked"]
            active = job["state"] in {"queued", "running"}
            if active:
                holds(len(asked) <= self._unanswered_max, f"job {job_id} has {len(asked)} documents dark")
            holds(job_id not in self.ended or not active, f"job {job_id} lives again")
            if job["state"] == "succeeded" and job_id not in self.ended:
                self._check_done(job, [item for item in items if item["job_id"] == job_id])
            if not active:
                self.ended.add(job_id)

    def _check_done(self, job: dict[str, Any], items: list[dict[str, Any]]) -> None:
        for item in items:
            holds(
                item["state"] not in {"waiting", "asked"}, f"{item['uri']} of {job['id']} is {item['state']} at its end"
            )
            row = self.rows[item["uri"]]
            if item["state"] != "reindexed" or row["indexed_as"] != item["indexed_as"] or job["mode"] != "force":
                continue
            number = round(json.loads(row["facets"])["topic"]["confidence"] * 1_000_000)
            early = self.calls[number].started_ms < job["created_ms"]
            holds(not early, f"{item['uri']} has an answer from before the forced {job['id']}")


def _equal(intent: Intent, doc: Doc) -> bool:
    same_state = intent.state is None or _json(intent.state) == _json(doc.state)
    return intent.body in (None, doc.body) and same_state


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
