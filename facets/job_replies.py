"""Types of the replies about reindex jobs, shared by the node, the HTTP API, the client and the page (docs/api.md)."""

from typing import Literal, TypedDict


class JobReply(TypedDict):
    """A job; `progress` has `total`, `done` and the numbers of documents by item state.

    `reindexed` and `failed` are the first names of such documents: keys, in a scoped collection uris.
    """

    id: str
    collection: str
    scope: str | None
    mode: str
    filter: str | None
    state: str
    progress: dict[str, int]
    reindexed: list[str]
    failed: list[str]


class JobPlan(TypedDict):
    """Estimate of a job; `tokens` and `cost_usd` are None if unknown."""

    dry_run: Literal[True]
    documents: int
    calls: int
    tokens: int | None
    cost_usd: float | None


class JobItem(TypedDict):
    """One document of a job."""

    uri: str
    status: str
    reason: str | None


class JobItemsPage(TypedDict):
    """A page of a job's documents."""

    items: list[JobItem]
    next_cursor: str | None
