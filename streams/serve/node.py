"""The node over a running pipeline: the backend of the API, the page and the agents' tools (`facets.backend`).

Searches read views that are kept current in the background, and not the store; documents, events and jobs come from the
store. Each method first checks the caller: rights, then visibility. Definitions and credentials are as new as the last
refresh of the views, a fraction of a second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from facetline.streams.serve.documents import DocumentNode
from facetline.streams.serve.jobs import JobNode
from facetline.streams.serve.search import SearchNode
from facetline.streams.serve.sql import Statements, lent
from facetline.streams.serve.status import StatusNode, observer_of
from facetline.streams.views import exports as exporting
from facetline.streams.views.live_views import LiveFollower, LiveViews

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

log = structlog.get_logger(__name__)

VIEWS = "views"
SQL_FOLDER = "sql"
"""In the data folder: snapshots for SQL statements."""


class PipelineNode(DocumentNode, SearchNode, JobNode, StatusNode):
    """Serves an open pipeline, in four parts over one `NodeBase`. Created by `open_node`."""


def _log_failure(task: "asyncio.Task[None]") -> None:
    """Log that the views are no longer updated (`/livez` fails from now on), or that exports ended."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        event = "views_ended" if task.get_name() == VIEWS else "exports_ended"
        log.error(event, error=type(error).__name__)  # a message may quote what a document holds


@asynccontextmanager
async def open_node(pipeline: "Pipeline", *, loopback: bool = True, secret: str = "") -> AsyncIterator[PipelineNode]:
    """Serve an open pipeline while the body runs: its views are kept current until then.

    Raises:
        StoreUnavailable: the store cannot be seen now.
    """
    folder = (pipeline.settings.data_folder / SQL_FOLDER).resolve()
    exports = pipeline.settings.export_folder
    views = LiveViews(pipeline.store, exports=[folder, *([exports.absolute()] if exports else [])])
    statements = Statements(pipeline.store, views, folder)
    pipeline.follow_by(lambda name: LiveFollower(views, pipeline.store, name))
    node = PipelineNode(pipeline, views, statements, loopback=loopback, secret=secret)
    node.observer = observer_of(pipeline)
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    try:
        await views.look()
        following = asyncio.create_task(views.run(stop), name=VIEWS)
        following.add_done_callback(_log_failure)
        tasks.add(following)
        node.followed_by(following)
        if exports is not None:
            every_s = pipeline.settings.export_every_s
            again = exporting.export_every(lambda: lent(views, agents=False), exports.absolute(), every_s, stop)
            exporting_ = asyncio.create_task(again, name="exports")
            exporting_.add_done_callback(_log_failure)
            tasks.add(exporting_)
        yield node
    finally:
        if node.observer is not None:
            await node.observer.close()
        await statements.close()
        stop.set()
        views.wake()
        if tasks:
            await asyncio.wait(tasks)
        await views.close()
