"""What runs in a worker process, as far as it has been started: what its health and its metrics are read from."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from facetline.streams.kafka import topics

if TYPE_CHECKING:
    from facetline.storage.db.engine import Store
    from facetline.streams.kafka.consumer import FaustWorker
    from facetline.streams.kafka.publisher import Publisher
    from facetline.streams.kafka.write_worker import WriteWorker
    from facetline.streams.pipeline import BackgroundWork
    from facetline.streams.project import Project
    from facetline.streams.settings import Settings


@dataclass
class Members:
    """The parts of one worker; None is what has not been started yet.

    `partitions` is the number of all partitions of the documents topic. `waits_for` says what the start waits for.
    `address` is where its health is served, None when nowhere.
    """

    settings: "Settings"
    project: "Project"
    store: "Store | None" = None
    partitions: int | None = None
    address: tuple[str, int] | None = None
    work: "BackgroundWork | None" = None
    writer: "WriteWorker | None" = None
    consumer: "FaustWorker | None" = None
    publisher: "Publisher | None" = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    waits_for: str | None = None
    stopping: bool = False

    @property
    def topics(self) -> topics.TopicNames:
        """The names of the topics."""
        return topics.topic_names(self.settings.kafka.topic_prefix)

    @property
    def dead(self) -> list[str]:
        """The names of tasks that have ended although nothing is stopping."""
        if self.stopping:
            return []
        started = [*self.tasks, *(self.work.tasks if self.work is not None else ())]
        return [task.get_name() for task in started if task.done()]
