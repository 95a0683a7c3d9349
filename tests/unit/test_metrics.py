"""Metrics: named as Prometheus wants it, histograms as its own library counts, lag whatever has become of the log."""

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest

from facetline.storage import store_stats
from facetline.streams.histogram import Histogram
from facetline.streams.kafka import topics
from facetline.streams.kafka.broker_clock import WINDOW_S, BrokerClock
from facetline.streams.kafka.log_reader import Bounds
from facetline.streams.monitor import metrics
from facetline.streams.monitor.observer import StatusSnapshot
from facetline.streams.serve import metrics as node_metrics

UNITS = ("_seconds", "_records", "_usd", "_documents", "_events")


@pytest.mark.parametrize(
    "metric", [*metrics.CATALOGUE.values(), *node_metrics.SERVED.values()], ids=lambda metric: metric.name
)
def test_names_say_what_they_are(metric: metrics.Metric):
    """A prefix that says whose it is, `_total` for counters alone, labels of few values, and a sentence."""
    assert re.fullmatch(r"facetline_(store|worker|serve)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind != "histogram" or metric.name.endswith(UNITS)
    assert not {"uri", "id", "key", "scope"} & set(metric.labels)
    assert metric.says.endswith(".")


def test_a_histogram_counts_as_the_library_does():
    """The same observations give the same buckets, count and sum."""
    bounds = (0.1, 1.0, 10.0)
    ours, theirs = Histogram(bounds), prometheus_client.Histogram("h", "h", registry=None, buckets=bounds)
    for value in (0.0, 0.1, 0.10001, 1.0, 9.9, 10.0, 10.1, 1e9):
        ours.observe(value)
        theirs.observe(value)
    (family,) = theirs.collect()
    buckets = [(sample.labels["le"], sample.value) for sample in family.samples if sample.name == "h_bucket"]
    sums = {sample.name: sample.value for sample in family.samples if sample.name in {"h_count", "h_sum"}}

    assert ours.buckets() == buckets
    assert {"h_count": ours.count, "h_sum": ours.sum} == sums


@pytest.mark.parametrize(
    ("at", "bounds", "lag"),
    [
        (7, Bounds(0, 10), 3),
        (10, Bounds(0, 10), 0),
        (None, Bounds(4, 10), 6),  # never seen: it begins where the log does
        (2, Bounds(4, 10), 6),  # its beginning was deleted
        (50, Bounds(0, 10), 10),  # the topic was made anew
    ],
)
def test_lag_is_what_is_still_to_be_applied(at: int | None, bounds: Bounds, lag: int):
    """Never negative, also where position and log do not go together."""
    seen = StatusSnapshot(glance({} if at is None else {3: at}), {3: bounds}, None, None)
    made = list(metrics.page(members(), seen))

    (sample,) = [sample for family in made for sample in family.samples if sample.name == metrics.LAG]
    assert (sample.labels["partition"], sample.value) == ("3", lag)


def test_without_store_and_broker_the_page_says_so():
    """What is not known is left out, not shown as 0."""
    made = metrics.page(members(), StatusSnapshot(None, None, "away", "away"))
    samples = {sample.name: sample.value for family in made for sample in family.samples}

    assert samples == {metrics.STORE_UP: 0, metrics.BROKER_UP: 0, metrics.BUILD: 1}


def test_a_broker_ahead_of_us_is_known_for_a_while():
    """The largest difference counts; delays prove nothing; a proof is forgotten after some minutes."""
    now_s = [1_000.0]
    clock = BrokerClock(lambda: now_s[0])
    nothing = clock.ahead_s
    clock.note(1_002.5)
    clock.note(995.0)
    known = clock.ahead_s
    now_s[0] += WINDOW_S + 1
    forgotten = clock.ahead_s
    clock.note(now_s[0] - 0.1)

    assert (nothing, known, forgotten) == (None, 2.5, None)
    assert clock.ahead_s == pytest.approx(-0.1)


def glance(next_offsets: Mapping[int, int]) -> store_stats.StoreSummary:
    """Return what a store says that holds nothing but positions."""
    return store_stats.StoreSummary("s", 0, {}, {}, {}, next_offsets, 0, None, 0, {})


def members() -> Any:
    """Return a worker of which nothing has been started."""
    project = SimpleNamespace(definitions=[])
    parts = dict.fromkeys(("writer", "work", "consumer", "publisher"))
    settings = SimpleNamespace(runtime="kafka")
    return SimpleNamespace(topics=topics.topic_names("t"), project=project, settings=settings, **parts)
