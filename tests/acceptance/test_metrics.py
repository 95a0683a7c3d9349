"""What a worker says of itself over HTTP and in its log equals what the store, the log and the evaluator know.

Method: one story for each database, with everything in it that is counted (a discarded answer, a duplicate, a crash, a
redelivery, rejected events, an open breaker), told by two worker processes of which the first is killed. The truth is
read by plain SQL and from Kafka; a page of metrics is compared with it while nothing moves.
"""

import asyncio
import json
import re
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka_topics
import pytest
import runtimes
import sqlalchemy as sa
from commands import Ended
from polling import eventually
from runtimes import ANSWERED_S, PARTITIONS, Case, Site
from worker_pages import ANY_PORT, Pages, Samples

from facetline.storage.db.engine import Tx
from facetline.streams.kafka import log_reader, topics
from facetline.streams.monitor import metrics
from facetline.streams.wire import codec
from facetline.streams.wire.codec import Message

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(240)]

# Said by nobody else: how long something took, how old it is, which version it is. What else is said about them
# is compared all the same: the number of batches, the events in them, the calls.
OWN = {
    *(f"{metrics.BATCH_EVENTS}_{part}" for part in ("bucket", "count")),
    *(f"{metrics.BATCH_SECONDS}_{part}" for part in ("bucket", "sum")),
    *(f"{metrics.CALL_SECONDS}_{part}" for part in ("bucket", "sum")),
    *(metrics.BUILD, metrics.COUNTED, metrics.REREAD),
}
COMPARED_APART = {metrics.OLDEST, metrics.PUBLISHED, f"{metrics.BATCH_SECONDS}_count"}


@pytest.fixture(params=["postgresql", "sqlite"])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A Kafka site with either database."""
    with runtimes.made("kafka", tmp_path_factory.mktemp("site"), request.getfixturevalue) as site:
        if request.param == "sqlite":
            del site.place.settings["FACETLINE_STORE_URL"]
        site.place.settings.update(ANY_PORT)
        site.define(concurrency=4, call_s=120, limits="max_usd_per_day = 1000")
        yield site


@pytest.fixture
async def case(watched: Site) -> AsyncIterator[Case]:
    """An open pipeline of that site."""
    async with runtimes.case(watched) as made:
        yield made


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what a sample is found by."""
    return name, frozenset(labels.items())


async def first_worker(case: Case, page: Pages) -> None:
    """Have everything happen that the first worker can tell."""
    sent = [case.message(f"t{number}", f"billing {number} usd0.25") for number in range(4)]
    sent += [
        case.message("twin", "billing 0 usd0.25"),
        codec.encode_write(case.uri("blank"), body=" ", state=None, source="test", event_id=uuid.uuid4().hex),
        case.message("refused", "fail=refuse"),
    ]
    sent.append(case.message("flaky", "outage away=flaky"))
    sent.append(sent[1])  # the same event at another place of the log
    sent.append(codec.encode_delete(case.uri("nobody"), source="test", event_id=uuid.uuid4().hex))
    sent.append(Message(case.uri("junk").encode(), b"{", ()))
    sent.append(Message(b"nowhere/1", b'{"body": "x"}', ()))
    sent.append(Message(b"nowhere/2", b'{"body": "x"}', ()))
    case.on("refuse")
    case.on("flaky")
    await case.produce(sent[0])
    await case.settled("t0")  # so that its twin is remembered
    await case.produce(*sent[1:])
    await case.called("flaky")
    case.off("flaky")
    case.on("late")
    await case.produce(case.message("raced", "outage hold=late"))
    await case.called("raced")
    await case.produce(case.message("raced", "billing again"))
    before = await case.tally("answers_discarded")
    await case.settled("raced")
    case.off("late")
    await case.discarded("answers_discarded", before)
    await case.settled("twin", "refused", "flaky", "blank", *(f"t{number}" for number in range(4)))
    case.on("crash")
    await case.produce(case.message("crashed", "billing hold=crash"))
    await case.called("crashed")
    await published(page)


async def published(page: Pages) -> None:
    """Wait until everything that changed has been sent."""

    async def look() -> bool:
        found = await page.samples()
        return [value for (name, _), value in found.items() if name in {metrics.FEED_LAG, metrics.UNNUMBERED}] == [0, 0]

    await eventually(look, deadline_s=ANSWERED_S, every_s=0.3, what="everything is published")


def leases_end(tx: Tx) -> None:
    """Let all leases end, as if their time had passed."""
    tx.execute(sa.text("UPDATE documents SET lease_until_ms = 1 WHERE owner IS NOT NULL"))
    tx.execute(sa.text("UPDATE publications SET lease_until_ms = 1"))


def numbers(tx: Tx, sql: str) -> dict[Any, Any]:
    """Return the rows of a query by their columns but the last, which is the value."""
    return {tuple(row)[:-1]: row[-1] for row in tx.execute(sa.text(sql))}


def truth(tx: Tx) -> dict[str, Any]:
    """Read all that the database knows of what is counted."""
    by_uri = {(row.uri, row.indexed_as): row for row in tx.execute(sa.text("SELECT * FROM documents"))}
    pending = [row for row in by_uri.values() if row.status == "pending"]
    return {
        "now_ms": tx.now_ms,
        "documents": Counter((row.collection, row.status) for row in by_uri.values()),
        "pending": Counter(
            (row.collection, "claimed" if row.owner else "due" if row.due_ms <= tx.now_ms else "later")
            for row in pending
        ),
        "oldest_ms": min((row.cleared_ms for row in pending), default=None),
        "failed": Counter(row.reason for row in by_uri.values() if row.status == "failed"),
        "indexed": {each for each, row in by_uri.items() if row.status == "indexed"},
        "remembered": {each for each, row in by_uri.items() if '"cached":true' in (row.evaluation or "")},
        "retries": sum(row.retries for row in by_uri.values()),
        "crashes": sum(row.crashes for row in by_uri.values()),
        "answers": [json.loads(row[0]) for row in tx.execute(sa.text("SELECT evaluation FROM memo"))],
        "tallies": {name: value for (name,), value in numbers(tx, "SELECT name, value FROM tallies").items()},
        "outcomes": numbers(tx, "SELECT outcome, coalesce(reason, ''), count(*) FROM outcomes GROUP BY 1, 2"),
        "letters": numbers(tx, "SELECT reason, count(*) FROM dead_letters GROUP BY 1"),
        "unsent": numbers(tx, "SELECT count(*) FROM dead_letters WHERE sent_ms IS NULL")[()],
        "positions": {
            at: value for (at,), value in numbers(tx, "SELECT partition, next_offset FROM positions").items()
        },
        "feed": numbers(tx, "SELECT feed_seq FROM store")[()],
        "unnumbered": sum(row.feed_seq is None for row in by_uri.values()),
        "published": numbers(tx, "SELECT feed_position FROM publications")[()],
        "aside": numbers(tx, "SELECT count(*) FROM set_aside")[()],
        "store_id": numbers(tx, "SELECT store_id FROM store")[()],
    }


async def known(case: Case) -> dict[str, Any]:
    """Return all that database and evaluator know."""
    return {**await case.pipeline.store.read(truth), "calls": len(case.site.script.calls())}


async def still(case: Case, page: Pages) -> tuple[Samples, dict[str, Any], int]:
    """Return a page, the truth of that moment and when it ended: nothing moved since the oldest count of the page."""
    seen: dict[str, Any] = {}
    since_s = 0.0

    async def look() -> tuple[Samples, dict[str, Any], int] | None:
        nonlocal seen, since_s
        before = await known(case)
        if {**before, "now_ms": 0} != seen:
            seen, since_s = {**before, "now_ms": 0}, time.monotonic()
        samples = await page.samples()
        quiet_s = time.monotonic() - since_s
        after = await known(case)
        oldest_s = max(value for (name, _), value in samples.items() if name == metrics.COUNTED)
        in_flight = sum(value for (name, _), value in samples.items() if name == metrics.IN_FLIGHT)
        told = in_flight == before["pending"]["tickets", "claimed"]  # no result is on its way to the store
        still_ = {**after, "now_ms": 0} == seen and oldest_s < quiet_s and told
        return (samples, before, after["now_ms"]) if still_ else None

    return await eventually(look, deadline_s=ANSWERED_S, every_s=0.3, what="nothing moves for a moment")


def of_store(found: Mapping[str, Any], names: topics.TopicNames, ends: Mapping[int, Any]) -> Samples:
    """Return what the metrics of the store must be, but for the oldest document's age."""
    tallies = found["tallies"]
    expected: Samples = {
        key(metrics.STORE_UP): 1,
        key(metrics.BROKER_UP): 1,
        key(metrics.STORE_INFO, store_id=found["store_id"]): 1,
        key(metrics.CRASHES): found["crashes"],
        key(metrics.DUPLICATES): tallies.get("duplicates", 0),
        key(metrics.MISPLACED): tallies.get("misplaced_keys", 0),
        key(metrics.CLOCK_CORRECTIONS): tallies.get("clock_corrections", 0),
        key(metrics.FEED_END): found["feed"],
        key(metrics.FEED_LAG, topic=names.facets): found["feed"] - found["published"],
        key(metrics.UNNUMBERED): found["unnumbered"],
        key(metrics.UNSENT): found["unsent"],
        key(metrics.SET_ASIDE, topic=names.facets): found["aside"],
        key(metrics.JOBS, state="queued"): 0,
        key(metrics.JOBS, state="running"): 0,
    }
    for partition, bounds in ends.items():
        at = found["positions"].get(partition, bounds.first)
        expected[key(metrics.LAG, topic=names.documents, partition=str(partition))] = bounds.end - at
    for (reason,), count in found["letters"].items():
        expected[key(metrics.LETTERS, reason=reason)] = count
    for result in ("answer", "failure", "retry", "release"):
        tally = {"answer": "answers", "failure": "failures", "retry": "retries", "release": "releases"}[result]
        expected[key(metrics.DISCARDED_TOTAL, result=result)] = tallies.get(f"{tally}_discarded", 0)
    expected |= of_ledger(found["answers"])
    for name in ("tickets", "notes"):
        for status in ("pending", "indexed", "failed", "empty", "deleted"):
            labels = {"collection": name, "status": status}
            expected[key(metrics.DOCUMENTS, **labels)] = found["documents"][name, status]
        for state in ("due", "later", "claimed"):
            labels = {"collection": name, "state": state}
            expected[key(metrics.PENDING, **labels)] = found["pending"][name, state]
    return expected


def of_ledger(answers: Sequence[Mapping[str, Any]]) -> Samples:
    """Return what the ledger must say: each answer was one call, and nothing else told what it used up."""
    labels = {"collection": "tickets", "evaluator": "tickets"}
    usd = sum(each["cost_usd"] or 0 for each in answers)
    return {
        key(metrics.SPENT, **labels): usd,
        key(metrics.SPENT_TODAY, evaluator="tickets"): usd,
        key(metrics.PAID_CALLS, **labels): len(answers),
        key(metrics.UNPRICED, **labels): sum(each["cost_usd"] is None for each in answers),
        key(metrics.SPENT_TOKENS, **labels, kind="input"): sum(each["usage"]["tokens"] for each in answers),
        key(metrics.SPENT_TOKENS, **labels, kind="output"): 0,
    }


def of_workers(found: Mapping[str, Any]) -> Samples:
    """Return what both workers together must have counted, but for the calls that their end cut off."""
    outcomes = found["outcomes"]
    stored = len(found["indexed"] - found["remembered"])
    evaluator = {"evaluator": "tickets"}
    expected: Samples = {
        key(metrics.EVENTS, outcome="duplicate", reason=""): found["tallies"]["duplicates"],
        key(metrics.ENDED, **evaluator, outcome="stored", reason=""): stored,
        key(metrics.ENDED, **evaluator, outcome="discarded", reason=""): found["tallies"]["answers_discarded"],
        key(metrics.REMEMBERED, **evaluator): len(found["remembered"]),
        key(metrics.TOKENS, **evaluator, kind="input"): sum(each["usage"]["tokens"] for each in found["answers"]),
        key(metrics.COST, **evaluator): sum(each["cost_usd"] or 0 for each in found["answers"]),
        key(f"{metrics.CALL_SECONDS}_count", **evaluator): found["calls"] - 1,  # one was never over
        key(f"{metrics.BATCH_EVENTS}_sum"): sum(found["positions"].values()),
        key(metrics.INCARNATIONS): 0,
    }
    for (outcome, reason), count in outcomes.items():
        expected[key(metrics.EVENTS, outcome=outcome, reason=reason)] = count
    for reason, count in found["failed"].items():
        expected[key(metrics.ENDED, **evaluator, outcome="failed", reason=reason)] = count
    expected[key(metrics.ENDED, **evaluator, outcome="retried", reason="unavailable")] = found["retries"]
    return expected


def of_one(found: Mapping[str, Any]) -> Samples:
    """Return what the second worker must say of itself: alone, with an open breaker, and nothing left to do."""
    evaluator = {"evaluator": "tickets"}
    return {
        key(metrics.REDELIVERED): sum(found["positions"].values()) - 4,  # all but what came to it first
        key(metrics.PARTITIONS): len(found["positions"]),
        key(metrics.WAITING, part="consumer"): 0,
        key(metrics.WAITING, part="publisher"): 0,
        key(metrics.PUBLISHER): 1,
        key(metrics.ACTIVE, collection="tickets"): 1,
        key(metrics.ACTIVE, collection="notes"): 1,
        key(metrics.IN_FLIGHT, **evaluator): found["pending"]["tickets", "claimed"],
        key(metrics.SLOTS, **evaluator): 4,
        key(metrics.OPENINGS, **evaluator): 1,
        key(metrics.MISCONFIGURED, **evaluator): 0,
        key(metrics.USD_LIMIT, **evaluator): 1000,
        key(metrics.LIMIT_REACHED, **evaluator): 0,
        key(metrics.BREAKER, **evaluator, state="open"): 1,
        key(metrics.BREAKER, **evaluator, state="closed"): 0,
        key(metrics.BREAKER, **evaluator, state="half_open"): 0,
    }


def taken(samples: Samples, wanted: Mapping[Any, float]) -> Samples:
    """Return the samples that are named in `wanted`, 0 where there is none."""
    return {each: samples.get(each, 0) for each in wanted}


def check_logs(case: Case, found: Mapping[str, Any], said: Sequence[Mapping[str, Any]]) -> None:
    """One line for each settled event and each settled document, with its place and identity, and never a body."""
    settled = [line for line in said if line["event"] == "event_settled"]
    documents = [line for line in said if line["event"] == "document_settled"]
    outcomes = Counter((line["outcome"], line["reason"] or "") for line in settled)

    duplicates = {("duplicate", ""): found["tallies"]["duplicates"]}
    assert outcomes == {**found["outcomes"], **duplicates}
    assert len({(line["partition"], line["offset"]) for line in settled}) == sum(found["positions"].values())
    answered = {(line["uri"], line["indexed_as"]) for line in documents if line["outcome"] == "stored"}
    assert answered == found["indexed"]
    assert {line["uri"] for line in documents if line["action"] == "remember"} == {case.uri("twin")}
    assert [line["reason"] for line in documents if line["outcome"] == "failed"] == ["refused"]
    assert len(documents) == len(answered) + 1
    assert f"#{case.scope}" not in "".join(map(json.dumps, said))


@dataclass(frozen=True)
class Told:
    """What both workers said, and what was true then; `lags` is from when the second one stood still."""

    of_first: Samples
    of_second: Samples
    found: Mapping[str, Any]
    after_ms: int
    bounds: Mapping[int, log_reader.Bounds]
    published: int
    ready: tuple[int, Any]
    lags: Mapping[str, float]
    behind: Mapping[str, float]
    alive: int
    said: Sequence[Mapping[str, Any]]
    doctor: Ended

    @property
    def both(self) -> Samples:
        """What both counted."""
        names = {*self.of_first, *self.of_second}
        return {each: self.of_first.get(each, 0) + self.of_second.get(each, 0) for each in names}


async def story(case: Case) -> Told:
    """Let two workers live through everything that is counted."""
    site, names = case.site, topics.topic_names(case.site.settings.kafka.topic_prefix)
    first, second, stand = Pages(site, 1), Pages(site, 2), site.folder / "stand"
    with site.worker() as worker:
        await first.ready()
        await first_worker(case, first)
        of_first, _, _ = await still(case, first)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    await case.pipeline.store.write(leases_end)
    anew = {"FACETLINE_KAFKA__GROUP_ID": f"{names.documents}.anew"}  # all is delivered again
    with site.worker(f"apply.before_commit=pause:{stand}", **anew):
        await second.ready()
        case.off("crash")
        await case.settled("crashed")
        case.on("gone")
        await case.produce(*(case.message(f"u{number}", f"other {number} away=gone") for number in range(4)))
        await eventually(lambda: "breaker_opened" in second.log.read_text(), deadline_s=ANSWERED_S)
        await published(second)
        of_second, found, after_ms = await still(case, second)
        said = [*first.lines(), *second.lines()]
        status, text = await second.get("/readyz")
        count = int(sum(each[key(metrics.PUBLISHED)] for each in (of_first, of_second)))
        sent = await kafka_topics.contents(site.settings.kafka, names.facets, count)
        bounds = await _bounds(site)
        there = {"FACETLINE_WORKER_HTTP": await second.address()}
        doctor = await asyncio.to_thread(site.place.run, "doctor", "--json", settings=there)
        stand.touch()
        await kafka_topics.fill(site.settings.kafka, [case.message(f"v{n}", f"billing {n}") for n in range(3)])
        lags = await eventually(lambda: _lagging(second, 3), deadline_s=ANSWERED_S, every_s=0.3)
        ends, at = await _bounds(site), (await known(case))["positions"]
        alive, _ = await second.get("/livez")
        stand.unlink()
    behind = {str(partition): each.end - at.get(partition, each.first) for partition, each in ends.items()}
    ready = (status, json.loads(text))
    return Told(of_first, of_second, found, after_ms, bounds, len(sent), ready, lags, behind, alive, said, doctor)


async def test_metrics_and_logs_equal_the_truth(case: Case, watched: Site):
    """Every metric equals what database, log and evaluator know, after all that is counted has happened."""
    told = await story(case)

    found, both = told.found, told.both
    names = topics.topic_names(watched.settings.kafka.topic_prefix)
    store, workers, one = of_store(found, names, told.bounds), of_workers(found), of_one(found)
    assert taken(told.of_second, store) == store
    assert taken(both, workers) == workers
    assert taken(told.of_second, one) == one
    assert both[key(metrics.PUBLISHED)] == told.published
    assert both[key(f"{metrics.BATCH_SECONDS}_count")] == both[key(f"{metrics.BATCH_EVENTS}_count")]
    check_oldest(told)
    compared = {name for name, _ in {*store, *workers, *one}} | {*COMPARED_APART, *OWN}
    assert {name for name, _ in both} <= compared
    assert {re.sub("_(bucket|sum|count)$", "", name) for name, _ in both} == set(metrics.CATALOGUE)
    assert (found["crashes"], found["tallies"]["answers_discarded"], found["tallies"]["duplicates"]) == (1, 1, 1)
    assert told.lags == told.behind
    assert (told.ready[0], told.ready[1]["status"], told.alive) == (200, "degraded", 200)
    assert [each["name"] for each in told.ready[1]["checks"]] == ["evaluators"]
    assert told.doctor.code == 0
    assert "is degraded: evaluators: " in told.doctor.lines[-1]["detail"]
    check_logs(case, found, told.said)


def check_oldest(told: Told) -> None:
    """The age of the oldest document is that of a moment while the page was made, less the age of the page's glance."""
    said_s = told.of_second[key(metrics.OLDEST, collection="tickets")]
    age = told.of_second[key(metrics.COUNTED, count="glance")]
    first_s = (told.found["now_ms"] - told.found["oldest_ms"]) / 1000
    last_s = (told.after_ms - told.found["oldest_ms"]) / 1000

    assert first_s - 1 <= said_s + age <= last_s + 1  # a glance is as old as its answer, and speaks of its beginning
    assert told.of_second[key(metrics.OLDEST, collection="notes")] == 0


async def _bounds(site: Site) -> dict[int, log_reader.Bounds]:
    ends = log_reader.KafkaLog(site.settings.kafka, topics.topic_names(site.settings.kafka.topic_prefix).documents)
    try:
        return await ends.all_bounds(range(PARTITIONS))
    finally:
        await ends.stop()


async def _lagging(page: Pages, records: int) -> dict[str, float] | None:
    samples = await page.samples()
    lags = {dict(labels)["partition"]: value for (name, labels), value in samples.items() if name == metrics.LAG}
    return lags if sum(lags.values()) == records else None
