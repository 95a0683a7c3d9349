"""A worker's metrics: which there are, and the page of a moment.

Two kinds, with different prefixes so that they are not added up by mistake. `facetline_store_…` is read from the store
(lag: and from the log); every worker of a store shows the same, so take one of them (`max`). `facetline_worker_…` is
what this process has done since it started; add them up over workers (`sum`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from prometheus_client import metrics_core, process_collector

from facetline.facets.documents import Status
from facetline.storage import counters, store_stats
from facetline.streams.classify.circuit_breaker import Breaker
from facetline.streams.classify.side_chain import SideChain
from facetline.streams.histogram import Histogram
from facetline.streams.kafka import write_worker
from facetline.streams.monitor.observer import StatusSnapshot
from facetline.streams.monitor.worker_state import Members

Kind = Literal["gauge", "counter", "histogram"]

DISCARDED = {
    "answer": "answers_discarded",
    "failure": "failures_discarded",
    "retry": "retries_discarded",
    "release": "releases_discarded",
}
"""The store's tallies of what came too late, by what it was."""
BREAKER_STATES = ("closed", "half_open", "open")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as it is documented. `says` is its HELP text."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str


CATALOGUE: dict[str, Metric] = {}


def declare(name: str, kind: Kind, says: str, *labels: str, catalogue: dict[str, Metric] = CATALOGUE) -> str:
    """Put a metric into a catalogue; return its name."""
    catalogue[name] = Metric(name, kind, labels, says)
    return name


STORE_UP = declare("facetline_worker_store_up", "gauge", "1 when the store answered within two seconds.")
BROKER_UP = declare("facetline_worker_broker_up", "gauge", "1 when the broker answered within two seconds.")
STORE_INFO = declare("facetline_store_info", "gauge", "Always 1; says which store it is.", "store_id")
DOCUMENTS = declare(
    "facetline_store_documents",
    "gauge",
    "Documents by status; deleted ones are kept as guards.",
    "collection",
    "status",
)
PENDING = declare(
    "facetline_store_pending_documents",
    "gauge",
    "Documents that wait for their answers: due now, due later (retries), or claimed, which means asked about now.",
    "collection",
    "state",
)
OLDEST = declare(
    "facetline_store_oldest_pending_seconds",
    "gauge",
    "How long the document that has been pending longest has waited since it was cleared; 0 when none waits.",
    "collection",
)
COUNTED = declare(
    "facetline_worker_counted_seconds",
    "gauge",
    "How old what is shown is: documents, pending (with unnumbered changes and unsent letters), dead_letters, or glance"
    " for all else of the store.",
    "count",
)
DISCARDED_TOTAL = declare(
    "facetline_store_discarded_total",
    "counter",
    "Results discarded because the document changed during the call.",
    "result",
)
CLOCK_CORRECTIONS = declare(
    "facetline_store_clock_corrections_total",
    "counter",
    "Documents that were due, or leased, further ahead than any wait, because the store's clock went back.",
)
CRASHES = declare(
    "facetline_store_crashes_total",
    "counter",
    "Claims whose holder died or was stopped in mid-call; each may have cost one call more.",
)
DUPLICATES = declare(
    "facetline_store_duplicate_events_total",
    "counter",
    "Events whose id had been settled before, found again at another place of the log; they changed nothing.",
)
MISPLACED = declare(
    "facetline_store_misplaced_keys_total",
    "counter",
    "Records on another partition than murmur2 of their key says: their producer breaks the order per document.",
)
LETTERS = declare("facetline_store_dead_letters", "gauge", "Open dead letters, by reason.", "reason")
UNSENT = declare(
    "facetline_store_unsent_dead_letters", "gauge", "Dead letters that their topic does not have as they now are."
)
LAG = declare(
    "facetline_store_lag_records",
    "gauge",
    "Offsets between the store's position and the end of the log: what is still to be applied.",
    "topic",
    "partition",
)
FEED_END = declare("facetline_store_feed_end", "gauge", "The highest number that the feed has given.")
UNNUMBERED = declare(
    "facetline_store_unnumbered_changes", "gauge", "Changed documents that have no place in the feed yet."
)
FEED_LAG = declare(
    "facetline_store_feed_lag",
    "gauge",
    "Numbers of the feed that have not been published yet; a document that changed twice counts twice.",
    "topic",
)
SET_ASIDE = declare(
    "facetline_store_set_aside_records", "gauge", "Records that Kafka did not take; each is tried again alone.", "topic"
)
SPENT = declare(
    "facetline_store_cost_usd_total",
    "counter",
    "What calls have cost, of those whose cost is known: answers, answers that came too late, and failures.",
    "collection",
    "evaluator",
)
PAID_CALLS = declare(
    "facetline_store_calls_total",
    "counter",
    "Calls in the ledger: answered, with reported usage, or interrupted.",
    "collection",
    "evaluator",
)
UNPRICED = declare(
    "facetline_store_unpriced_calls_total",
    "counter",
    "Calls in the ledger without a reported cost; the cost leaves them out.",
    "collection",
    "evaluator",
)
SPENT_TOKENS = declare(
    "facetline_store_tokens_total",
    "counter",
    "Tokens that calls have used up, as they reported them: input or output.",
    "collection",
    "evaluator",
    "kind",
)
SPENT_TODAY = declare(
    "facetline_store_cost_today_usd",
    "gauge",
    "Cost of the calls of this UTC day, over all collections and workers; starts at 0 at midnight.",
    "evaluator",
)
JOBS = declare("facetline_store_jobs", "gauge", "Reindex jobs that are not over.", "state")

BUILD = declare("facetline_worker_info", "gauge", "Always 1; says which version this process runs.", "version")
EVENTS = declare(
    "facetline_worker_events_total",
    "counter",
    "Events settled by this process: applied, unchanged, duplicate, or rejected for a reason.",
    "outcome",
    "reason",
)
REDELIVERED = declare(
    "facetline_worker_redelivered_records_total",
    "counter",
    "Records that Kafka delivered again below the store's position; they were skipped.",
)
REREAD = declare(
    "facetline_worker_reread_records_total",
    "counter",
    "Records read from the log itself: they did not come in order, or not at all, or after a pause.",
)
INCARNATIONS = declare(
    "facetline_worker_topics_made_anew_total", "counter", "Partitions found to be another log than before."
)
BATCH_EVENTS = declare("facetline_worker_batch_events", "histogram", "Events of one transaction.")
BATCH_SECONDS = declare(
    "facetline_worker_batch_duration_seconds", "histogram", "How long the transaction of a batch took, retries and all."
)
PARTITIONS = declare(
    "facetline_worker_partitions", "gauge", "Partitions of the documents topic that are this process's."
)
WAITING = declare(
    "facetline_worker_waiting", "gauge", "1 while a part waits for the store or the broker; /readyz says why.", "part"
)
CALL_SECONDS = declare(
    "facetline_worker_call_duration_seconds",
    "histogram",
    "How long calls took; their count is the calls made that are over.",
    "evaluator",
)
ENDED = declare(
    "facetline_worker_claims_ended_total",
    "counter",
    "Claims that are over, by what the store made of the result: stored, failed or retried for a reason, released"
    " (cut off at a stop, or never asked), or discarded as past.",
    "evaluator",
    "outcome",
    "reason",
)
REMEMBERED = declare(
    "facetline_worker_remembered_total",
    "counter",
    "Documents answered from the answer cache, without a call.",
    "evaluator",
)
TOKENS = declare(
    "facetline_worker_tokens_total",
    "counter",
    "Tokens as the evaluator reported them: input or output.",
    "evaluator",
    "kind",
)
COST = declare("facetline_worker_cost_usd_total", "counter", "Cost as the evaluator reported it.", "evaluator")
IN_FLIGHT = declare("facetline_worker_calls_in_flight", "gauge", "Calls under way.", "evaluator")
SLOTS = declare(
    "facetline_worker_call_slots",
    "gauge",
    "Calls at once that are allowed: the setting, less what refusals for rate taught.",
    "evaluator",
)
BREAKER = declare(
    "facetline_worker_breaker_state",
    "gauge",
    "1 for the state that the evaluator's breaker is in: closed, open, or half_open while it probes.",
    "evaluator",
    "state",
)
OPENINGS = declare("facetline_worker_breaker_openings_total", "counter", "How often the breaker opened.", "evaluator")
USD_LIMIT = declare(
    "facetline_worker_cost_limit_usd", "gauge", "`max_usd_per_day`, of evaluators that have one.", "evaluator"
)
LIMIT_REACHED = declare(
    "facetline_worker_cost_limit_reached",
    "gauge",
    "1 while no call is made because the day's limit is reached, of evaluators that have one.",
    "evaluator",
)
MISCONFIGURED = declare(
    "facetline_worker_evaluator_misconfigured",
    "gauge",
    "1 while the breaker is not closed because of a key, a quota or a setting that must be fixed.",
    "evaluator",
)
ACTIVE = declare(
    "facetline_worker_definition_active",
    "gauge",
    "1 when this process's definition is the active one; with 0 it makes no calls for the collection.",
    "collection",
)
PUBLISHER = declare("facetline_worker_publisher", "gauge", "1 in the one process that was elected to publish.")
PUBLISHED = declare("facetline_worker_published_records_total", "counter", "Records sent to the facets topic.")


class Page:
    """The samples of one moment, by family. What has no sample is left out."""

    def __init__(self, catalogue: Mapping[str, Metric] = CATALOGUE) -> None:
        self._catalogue = catalogue
        self._families: dict[str, metrics_core.Metric] = {}

    def __iter__(self) -> Iterator[metrics_core.Metric]:
        return iter(self._families.values())

    def collect(self) -> Iterator[metrics_core.Metric]:
        """Return the families: the interface of a collector."""
        yield from self
        yield from process_collector.ProcessCollector(registry=None).collect()

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add a gauge's or a counter's sample."""
        metric = self._catalogue[name]
        family = self._family(metric)
        total = "_total" if metric.kind == "counter" else ""
        family.add_sample(name.removesuffix("_total") + total, _checked(metric, labels), value)

    def add_histogram(self, name: str, histogram: Histogram, **labels: str) -> None:
        """Add a histogram."""
        metric = self._catalogue[name]
        family = self._family(metric)
        assert isinstance(family, metrics_core.HistogramMetricFamily)  # noqa: S101 (what the catalogue says)
        given = _checked(metric, labels)
        family.add_metric([given[label] for label in metric.labels], histogram.buckets(), histogram.sum)

    def _family(self, metric: Metric) -> metrics_core.Metric:
        if metric.name not in self._families:
            kinds: dict[Kind, Callable[..., metrics_core.Metric]] = {
                "gauge": metrics_core.GaugeMetricFamily,
                "counter": metrics_core.CounterMetricFamily,
                "histogram": metrics_core.HistogramMetricFamily,
            }
            self._families[metric.name] = kinds[metric.kind](metric.name, metric.says, labels=metric.labels)
        return self._families[metric.name]


def page(members: Members, seen: StatusSnapshot) -> Page:
    """Return what there is to say now."""
    made = Page()
    fill(made, members, seen)
    return made


def fill(made: Page, members: Members, seen: StatusSnapshot) -> None:
    """Add what there is to say now to a page; what is about Kafka only where there is one."""
    made.add(STORE_UP, seen.glance is not None)
    if members.settings.runtime == "kafka":
        made.add(BROKER_UP, seen.bounds is not None)
    _of_store(made, members, seen)
    _of_lag(made, members, seen)
    made.add(BUILD, 1, version=metadata.version("facetline"))
    if members.writer is not None:
        _of_writer(made, members.writer.stats)
    if members.work is not None:
        _of_chain(made, members.work.side_chain)
    _of_parts(made, members)


def _of_store(made: Page, members: Members, seen: StatusSnapshot) -> None:
    glance = seen.glance
    if glance is None:
        return
    made.add(STORE_INFO, 1, store_id=glance.store_id)
    for name in glance.fingerprints:
        oldest_ms = glance.oldest_ms.get(name)
        made.add(
            OLDEST, 0 if oldest_ms is None else store_stats.age_ms(glance.now_ms, oldest_ms) / 1000, collection=name
        )
    for result, tally in DISCARDED.items():
        made.add(DISCARDED_TOTAL, glance.tallies.get(tally, 0), result=result)
    made.add(CLOCK_CORRECTIONS, glance.tallies.get(counters.CLOCK_CORRECTIONS, 0))
    made.add(CRASHES, glance.tallies.get(counters.CRASHES, 0))
    made.add(DUPLICATES, glance.tallies.get(counters.DUPLICATES, 0))
    made.add(MISPLACED, glance.tallies.get(write_worker.MISPLACED, 0))
    made.add(FEED_END, glance.feed_end)
    if members.settings.runtime == "kafka":
        made.add(FEED_LAG, glance.feed_end - (glance.published or 0), topic=members.topics.facets)
        made.add(SET_ASIDE, glance.set_aside, topic=members.topics.facets)
    for state in ("queued", "running"):
        made.add(JOBS, glance.jobs.get(state, 0), state=state)
    for definition in members.project.definitions:
        is_active = glance.fingerprints.get(definition.name) == definition.fingerprint
        made.add(ACTIVE, is_active, collection=definition.name)
    _of_ledger(made, glance)
    _of_counts(made, glance.fingerprints, seen)


def _of_ledger(made: Page, glance: store_stats.StoreSummary) -> None:
    for (collection, evaluator), spent in sorted(glance.spent.items()):
        labels = {"collection": collection, "evaluator": evaluator}
        made.add(SPENT, spent.cost_usd, **labels)
        made.add(PAID_CALLS, spent.calls, **labels)
        made.add(UNPRICED, spent.unpriced_calls, **labels)
        made.add(SPENT_TOKENS, spent.input_tokens, **labels, kind="input")
        made.add(SPENT_TOKENS, spent.output_tokens, **labels, kind="output")
    for evaluator, spent in sorted(glance.spent_today.items()):
        made.add(SPENT_TODAY, spent.cost_usd, evaluator=evaluator)


def _of_counts(made: Page, collections: Iterable[str], seen: StatusSnapshot) -> None:
    if seen.waiting is not None:
        states = {"due": seen.waiting.due, "later": seen.waiting.later, "claimed": seen.waiting.claimed}
        for name in collections:
            for state, counts in states.items():
                made.add(PENDING, counts.get(name, 0), collection=name, state=state)
        made.add(UNNUMBERED, seen.waiting.unnumbered)
        made.add(UNSENT, seen.waiting.unsent)
    if seen.documents is not None:
        for name in collections:
            for status in Status:
                made.add(DOCUMENTS, seen.documents.get(name, {}).get(status, 0), collection=name, status=status.value)
    for reason, count in (seen.letters or {}).items():
        made.add(LETTERS, count, reason=reason)
    for name, age_s in (seen.counted_s or {}).items():
        made.add(COUNTED, age_s, count=name)


def _of_lag(made: Page, members: Members, seen: StatusSnapshot) -> None:
    if seen.glance is None or seen.bounds is None:
        return
    for partition, bounds in sorted(seen.bounds.items()):
        at = seen.glance.next_offsets.get(partition, bounds.first)
        # A position outside of the log: it was created again, or its beginning was deleted; all that it has is to come.
        behind = bounds.end - (at if bounds.first <= at <= bounds.end else bounds.first)
        made.add(LAG, behind, topic=members.topics.documents, partition=str(partition))


def _of_writer(made: Page, stats: write_worker.Stats) -> None:
    made.add(EVENTS, stats.applied, outcome="applied", reason="")
    made.add(EVENTS, stats.unchanged - stats.duplicates, outcome="unchanged", reason="")
    made.add(EVENTS, stats.duplicates, outcome="duplicate", reason="")
    for reason, count in sorted(stats.rejected_for.items()):
        made.add(EVENTS, count, outcome="rejected", reason=reason)
    made.add(REDELIVERED, stats.redelivered)
    made.add(REREAD, stats.reread)
    made.add(INCARNATIONS, stats.incarnations)
    made.add_histogram(BATCH_EVENTS, stats.batch_events)
    made.add_histogram(BATCH_SECONDS, stats.batch_seconds)


def _of_chain(made: Page, chain: SideChain) -> None:
    """Add what a process's side chain has done."""
    stats = chain.stats
    for lane in chain.lanes:
        if lane.name in stats.call_seconds:
            made.add_histogram(CALL_SECONDS, stats.call_seconds[lane.name], evaluator=lane.name)
        made.add(REMEMBERED, stats.remembered_by[lane.name], evaluator=lane.name)
        made.add(COST, stats.cost_usd.get(lane.name, 0.0), evaluator=lane.name)
        made.add(IN_FLIGHT, lane.limiter.in_flight, evaluator=lane.name)
        made.add(SLOTS, lane.limiter.at_once, evaluator=lane.name)
        made.add(MISCONFIGURED, lane.name in stats.misconfigured, evaluator=lane.name)
        if lane.limits.max_usd_per_day is not None:
            made.add(USD_LIMIT, lane.limits.max_usd_per_day, evaluator=lane.name)
            made.add(LIMIT_REACHED, lane.is_spent, evaluator=lane.name)
        _of_breaker(made, lane.name, lane.breaker)
    for (name, outcome, reason), count in sorted(stats.ended.items()):
        made.add(ENDED, count, evaluator=name, outcome=outcome, reason=reason)
    for (name, kind), count in sorted(stats.tokens.items()):
        made.add(TOKENS, count, evaluator=name, kind=kind)


def _of_breaker(made: Page, name: str, breaker: Breaker) -> None:
    for state in BREAKER_STATES:
        made.add(BREAKER, breaker.state == state, evaluator=name, state=state)
    made.add(OPENINGS, breaker.openings, evaluator=name)


def _of_parts(made: Page, members: Members) -> None:
    if members.consumer is not None:
        made.add(PARTITIONS, len(members.consumer.partitions or ()))
        made.add(WAITING, members.consumer.waiting is not None, part="consumer")
    if members.publisher is not None:
        made.add(WAITING, members.publisher.waiting is not None, part="publisher")
        made.add(PUBLISHER, members.publisher.position is not None)
        made.add(PUBLISHED, members.publisher.sent)


def _checked(metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
    assert tuple(labels) == metric.labels, (metric.name, labels)  # noqa: S101 (what the catalogue says)
    return dict(labels)
