"""The promises, looked at after every commit: the store is what the model says, and changes only as it may.

What records do is in `simulation.model`. Every other change of a document must be one that the committed function may
make, by the process that may make it.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from simulation.model import Model, same_json

Row = dict[str, Any]
VISIBLE = ("version", "revision", "indexed_as", "status", "facets", "fingerprint", "reason")
ENDS_CLAIMS = {"fail", "retry", "release"}


class Broken(AssertionError):
    """A promise does not hold."""


def holds(condition: object, said: str) -> None:
    """Fail with what is said unless it holds."""
    if not condition:
        raise Broken(said)


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


class Promises:
    """What has been seen so far, and what must hold next."""

    def __init__(self, unanswered_max: int, call_ms: int) -> None:
        self.model = Model()
        self.calls: dict[int, Call] = {}
        self.begun: Counter[tuple[str, int]] = Counter()
        self.allowed: dict[tuple[str, int], int] = {}
        self.history: dict[tuple[str, int], Row] = {}
        self.rows: dict[str, Row] = {}
        self.seen: Counter[str] = Counter()
        self.paid: set[int] = set()
        self._ended: dict[str, str] = {}
        self._items: dict[tuple[str, str], str] = {}
        self._unanswered_max = unanswered_max
        self._call_ms = call_ms
        self.clock_jumped = False
        """Whether the store's clock has jumped: then times of before and after it say nothing about each other."""

    def call(self, call: Call, who: str) -> None:
        """Note that a call begins, if it may: it was not paid for before, and ends before its lease does."""
        identity, row = (call.uri, call.indexed_as), self.rows[call.uri]
        self.calls[call.number] = call
        self.begun[identity] += 1
        most = 1 + self.allowed.get(identity, 0)
        holds(self.begun[identity] <= most, f"call {self.begun[identity]} of {identity}, {most} allowed")
        if (row["indexed_as"], row["status"]) == (call.indexed_as, "pending"):
            holds(
                self.clock_jumped or row["owner"] == who,
                f"{who} calls about {identity}, which {row['owner']} has claimed",
            )
            left_ms = row["lease_until_ms"] - call.started_ms
            holds(
                self.clock_jumped or left_ms >= self._call_ms - 1,
                f"{who} calls about {identity} with {left_ms} ms of its lease left",
            )

    def committed(self, function: str, who: str, rows: dict[str, Row], now_ms: int) -> list[str]:
        """Look at all documents after a commit; return what has changed."""
        changed = {uri: row for uri, row in rows.items() if self.rows.get(uri) != row}
        for uri, row in changed.items():
            holds(uri in self.model.docs, f"{uri} came out of nothing")
            self._look_at_row(uri, row)
            if uri in self.rows:
                self._look_at_change(function, who, uri, row, now_ms)
            holds(row["owner"] in {None, who, self.rows.get(uri, row)["owner"]}, f"{who} claims for {row['owner']}")
            self.allowed[uri, row["indexed_as"]] = row["retries"] + row["crashes"]
        for uri, doc in self.model.docs.items():
            holds(uri in rows, f"{uri} is not in the store")
            found = tuple(rows[uri][name] for name in ("version", "revision", "indexed_as", "status", "body"))
            wanted = (doc.version, doc.revision, doc.indexed_as, doc.status, doc.body)
            holds(found == wanted, f"{uri} is {found}, must be {wanted}")
            holds(same_json(rows[uri]["state"], doc.state), f"{uri} has state {rows[uri]['state']}, not {doc.state}")
        self.rows = rows
        return [f"{uri}@{row['version']}/{row['indexed_as']} {row['status']}" for uri, row in changed.items()]

    def _look_at_row(self, uri: str, row: Row) -> None:
        status = row["status"]
        holds((row["facets"] is not None) == (status == "indexed"), f"{uri} is {status} with answers {row['facets']}")
        holds((row["reason"] is not None) == (status == "failed"), f"{uri} is {status} with reason {row['reason']}")
        holds(row["owner"] is None or status == "pending", f"{uri} is {status} and claimed")
        holds(row["due_ms"] is not None or status != "pending", f"{uri} is pending and never due")
        shown = {name: row[name] for name in (*VISIBLE, "state")}
        same = self.history.setdefault((uri, row["version"]), shown)
        holds(same == shown, f"{uri}@{row['version']} was {same} and is {shown}")

    def _look_at_change(self, function: str, who: str, uri: str, row: Row, now_ms: int) -> None:
        """Take over what answers, failures and turns may do; what records do is known already."""
        before, doc = self.rows[uri], self.model.docs[uri]
        self._look_at_claim(function, who, uri, before, row, now_ms)
        if function == "_commit" or row["version"] == before["version"]:
            same = all(row[name] == before[name] for name in VISIBLE)
            holds(same or function == "_commit", f"{function} changed {uri} without a new version")
            return
        holds(row["version"] == before["version"] + 1, f"{function} took {uri} to {row['version']}")
        change = (before["status"], row["status"])
        if function == "turn":
            holds(change[1] == "pending" and change[0] not in {"deleted", "empty"}, f"a turn made {uri} {change}")
            holds(row["cleared_ms"] == now_ms, f"a turn cleared {uri} at another time")
            self.model.docs[uri] = replace(doc, version=doc.version + 1, indexed_as=doc.version + 1, status="pending")
            return
        may = {"exchange": ("pending", "indexed"), "fail": ("pending", "failed")}
        holds(change == may.get(function), f"{function} made {uri} {change}")
        self.model.docs[uri] = replace(doc, version=doc.version + 1, status=row["status"])
        if function == "exchange":
            self._look_at_answer(uri, row)

    def _look_at_claim(self, function: str, who: str, uri: str, before: Row, row: Row, now_ms: int) -> None:
        """A claim is ended by its owner, by an answer or a clearing, or when its lease has run out: then it is told."""
        if before["owner"] is None or before["indexed_as"] != row["indexed_as"] or row["status"] == "indexed":
            return
        if (row["owner"], row["attempt"]) == (before["owner"], before["attempt"]):
            return
        if function in ENDS_CLAIMS:
            holds(before["owner"] == who, f"{who} ends with {function} the claim of {before['owner']} on {uri}")
            return
        holds(self.clock_jumped or before["lease_until_ms"] <= now_ms, f"{uri} was taken from {before['owner']} early")
        holds(row["crashes"] == before["crashes"] + 1, f"{uri} was taken from {before['owner']}, and no crash recorded")
        self.seen["takeover"] += 1

    def _look_at_answer(self, uri: str, row: Row) -> None:
        """An answer is one that a call gave about this very body, scope and set of questions."""
        call, cached = self._call_behind(row), json.loads(row["evaluation"])["cached"]
        about = (call.body, call.scope, call.fingerprint)
        holds(about == (row["body"], row["scope"], row["fingerprint"]), f"{uri} has the answer about {about}")
        own = (call.uri, call.indexed_as) == (uri, row["indexed_as"])
        holds(cached or own, f"{uri}@{row['indexed_as']} has the answer to {call.uri}@{call.indexed_as}")
        after_ms = self.rows[uri]["memo_after_ms"]
        is_new = after_ms is None or self.clock_jumped or call.started_ms >= after_ms
        holds(is_new, f"{uri} has an answer from before a forced reindex")
        self.seen["remembered" if cached else "answered"] += 1
        if not cached:
            self.paid.add(call.number)

    def _call_behind(self, row: Row) -> Call:
        said = json.loads(row["facets"])
        number = round(1_000_000 * (said.get("topic", {}).get("confidence") or 0))
        call = self.calls.get(number)
        if call is None or not call.valid:
            raise Broken(f"{row['uri']} has an answer that nobody gave: {said}")
        return call

    def jobs(self, jobs: dict[str, Row], items: list[Row]) -> None:
        """Look at jobs: few documents are dark at once, what has ended stays so, and forced answers are new."""
        for job_id, job in jobs.items():
            own = [item for item in items if item["job_id"] == job_id]
            active = job["state"] in {"queued", "running"}
            asked = sum(item["state"] == "asked" for item in own)
            holds(not active or asked <= self._unanswered_max, f"job {job_id} has {asked} documents dark")
            ended = self._ended.get(job_id)
            holds(ended in {None, job["state"]}, f"job {job_id} was {ended} and is {job['state']}")
            turned = [item["uri"] for item in own if self._was(item) == "waiting" and item["state"] == "asked"]
            holds(not (ended and turned), f"job {job_id} is {ended} and gives a turn to {turned}")
            if not active and not ended:
                self._ended[job_id] = job["state"]
                self.seen[f"job {job['state']}"] += 1
                self.seen["job canceled with items waiting"] += any(item["state"] == "waiting" for item in own)
            if job["state"] == "succeeded" and not ended:
                self._look_at_done(job, own)
        self._items = {(item["job_id"], item["uri"]): item["state"] for item in items}

    def _was(self, item: Row) -> str | None:
        return self._items.get((item["job_id"], item["uri"]))

    def _look_at_done(self, job: Row, items: list[Row]) -> None:
        for item in items:
            uri, row = item["uri"], self.rows[item["uri"]]
            holds(item["state"] not in {"waiting", "asked"}, f"{uri} of {job['id']} is {item['state']} at its end")
            if item["state"] == "reindexed" and row["indexed_as"] == item["indexed_as"] and job["mode"] == "force":
                early = self._call_behind(row).started_ms < job["created_ms"]
                holds(self.clock_jumped or not early, f"{uri} has an answer from before the forced {job['id']}")
