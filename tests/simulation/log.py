"""A log of two partitions that may be made anew or cut at its start, and what each of its records meant.

Offsets may be missing (markers of transactions). What a record means is kept beside it, for the model: the model never
decodes bytes.
"""

from dataclasses import dataclass, field

from facetline.storage.log.events import Raw
from facetline.streams.kafka.log_reader import LogRecord, LogSlice

TOPIC = "documents"
PARTITIONS = (0, 1)


@dataclass(frozen=True)
class Intent:
    """What a record was sent to do. `bad` is the reason for which it must be rejected, if it must."""

    kind: str
    uri: str
    source: str
    id: str
    body: str | None = None
    state: str | None = None
    unless_equal: bool = False
    bad: str | None = None
    origin: tuple[int, int, int] | None = None
    settles: bool = True

    @property
    def content(self) -> tuple[object, ...]:
        """What makes two events with one id the same."""
        return (self.kind, self.uri, self.body, self.state)


@dataclass
class Partition:
    """One life of a partition."""

    incarnation: int
    first: int = 0
    end: int = 0
    records: dict[int, LogRecord] = field(default_factory=dict)
    intents: dict[int, Intent] = field(default_factory=dict)


class SimLog:
    """The log itself, without its faults in delivery."""

    def __init__(self) -> None:
        self.lives = {number: [Partition(1)] for number in PARTITIONS}
        self.down_until_s = dict.fromkeys(PARTITIONS, 0.0)

    def now(self, partition: int) -> Partition:
        """Return the partition as it is."""
        return self.lives[partition][-1]

    def append(self, partition: int, raw: Raw, intent: Intent) -> None:
        """Append a record."""
        life = self.now(partition)
        life.records[life.end] = LogRecord(partition, life.end, raw)
        life.intents[life.end] = intent
        life.end += 1

    def skip(self, partition: int) -> None:
        """Leave an offset without a record."""
        self.now(partition).end += 1

    def cut(self, partition: int, first: int) -> None:
        """Forget what stands below `first`."""
        life = self.now(partition)
        life.first = max(life.first, min(first, life.end))

    def remake(self, partition: int) -> None:
        """Delete the partition and make it anew."""
        lives = self.lives[partition]
        lives.append(Partition(len(lives) + 1))

    def slice(self, partition: int, start: int, end: int, records_max: int) -> LogSlice:
        """Return records of a range, as the `Log` protocol says."""
        life = self.now(partition)
        if start < life.first:
            return LogSlice((), start)  # gone: the bounds must be asked again
        found = []
        for offset in range(max(start, life.first), min(end, life.end)):
            if offset in life.records:
                if len(found) == records_max:
                    return LogSlice(tuple(found), offset)
                found.append(life.records[offset])
        return LogSlice(tuple(found), max(start, min(end, life.end)))
