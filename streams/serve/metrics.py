"""Metrics of a serving process: requests, searches, views, and its side chain.

`facetline_serve_…` are per process: aggregate counters with `sum`, gauges with `max`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata

from prometheus_client import exposition

from facetline.streams.histogram import Histogram
from facetline.streams.monitor import metrics
from facetline.streams.monitor.metrics import CATALOGUE, Metric, Page
from facetline.streams.monitor.observer import StatusSnapshot
from facetline.streams.monitor.worker_state import Members
from facetline.streams.views.live_views import LiveViews

SERVED: dict[str, Metric] = {}
"""Metrics of a serving process, in addition to a worker's."""
_declare = partial(metrics.declare, catalogue=SERVED)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets in seconds: a search over a million documents takes some ten milliseconds, waiting for a token seconds."""

BUILD = _declare("facetline_serve_info", "gauge", "Always 1; the label is the version of this process.", "version")
STORE_UP = _declare(
    "facetline_serve_store_up", "gauge", "1 if the last read of the store succeeded; searches continue without it."
)
REQUESTS = _declare(
    "facetline_serve_requests_total",
    "counter",
    "Answered requests by method, route template and status.",
    "method",
    "route",
    "status",
)
REQUEST_SECONDS = _declare(
    "facetline_serve_request_duration_seconds",
    "histogram",
    "Duration of requests until the end of their reply, including waits for tokens, writes and answers.",
    "route",
)
SEARCH_SECONDS = _declare(
    "facetline_serve_search_duration_seconds",
    "histogram",
    "Duration of reads of the views by kind (search, rows, counts, grep, glob, sql), without waits for tokens.",
    "kind",
)
VIEW_REACHED = _declare(
    "facetline_serve_view_position",
    "gauge",
    "Position in the feed up to which a collection's view is complete; 0 while it is built.",
    "collection",
)
VIEW_BEHIND = _declare(
    "facetline_serve_view_lag",
    "gauge",
    "Changes in the feed, of all collections, that a view has not applied yet.",
    "collection",
)
VIEW_AGE = _declare(
    "facetline_serve_view_age_seconds",
    "gauge",
    "Seconds since the views were last current with the store: the age of searches.",
)
VIEW_BUILT = _declare(
    "facetline_serve_view_built",
    "gauge",
    "1 if a collection can be searched; 0 while its view is built.",
    "collection",
)
DOCUMENTS = _declare("facetline_serve_documents", "gauge", "Documents in a view by status.", "collection", "status")


@dataclass
class Measures:
    """Counts since the start of this process."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    request_seconds: dict[str, Histogram] = field(default_factory=dict)
    search_seconds: dict[str, Histogram] = field(default_factory=dict)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a reply."""
        self.requests[method, route, status] += 1
        self.request_seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def search(self, kind: str, seconds: float) -> None:
        """Count a read of a view."""
        self.search_seconds.setdefault(kind, Histogram(SECONDS)).observe(seconds)


def page(
    views: LiveViews,
    measures: Measures,
    documents: Mapping[str, Mapping[str, int]],
    work: tuple[Members, StatusSnapshot] | None,
) -> Page:
    """Return the current metrics; `documents` are counts by collection and status.

    `work` has the worker's metrics if this process runs the side chain.
    """
    made = Page({**CATALOGUE, **SERVED})
    made.add(BUILD, 1, version=metadata.version("facetline"))
    made.add(STORE_UP, views.problem is None and views.looked_s is not None)
    for (method, route, status), count in sorted(measures.requests.items()):
        made.add(REQUESTS, count, method=method, route=route, status=str(status))
    for route, histogram in sorted(measures.request_seconds.items()):
        made.add_histogram(REQUEST_SECONDS, histogram, route=route)
    for kind, histogram in sorted(measures.search_seconds.items()):
        made.add_histogram(SEARCH_SECONDS, histogram, kind=kind)
    made.add(VIEW_AGE, views.age_s() or 0.0)
    for name in sorted(views.known.definitions.by_name):
        behind = views.behind(name)
        made.add(VIEW_BUILT, behind is not None, collection=name)
        made.add(VIEW_REACHED, 0 if behind is None else views.end - behind, collection=name)
        made.add(VIEW_BEHIND, views.end if behind is None else behind, collection=name)
        for status_, number in documents.get(name, {}).items():
            made.add(DOCUMENTS, number, collection=name, status=status_)
    if work is not None:
        metrics.fill(made, *work)
    return made


def rendered(made: Page, accept: str) -> tuple[bytes, str]:
    """Return a page in the format that the Accept header prefers, and its content type."""
    encode, content_type = exposition.choose_encoder(accept)
    return encode(made), content_type
