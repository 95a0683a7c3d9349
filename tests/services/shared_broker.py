"""One Kafka node for all test workers of a run: starting one takes seven seconds of a core, and each takes a twentieth
of one for as long as it runs.

Whoever comes first starts it, whoever leaves last stops it; a file beside it counts them.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka_broker


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Have the node of `folder` running; yields its bootstrap address.

    Raises:
        MissingKafka: it cannot be run here.
    """
    folder.mkdir(exist_ok=True)
    node = kafka_broker.Broker(folder / "node")
    with _users(folder) as users:
        address = folder / "address"
        if users.count == 0:
            node.folder.mkdir(exist_ok=True)
            address.write_text(node.start())
        node.bootstrap = address.read_text()
        users.count += 1
    try:
        yield node.bootstrap
    finally:
        with _users(folder) as users:
            users.count -= 1
            if users.count == 0:
                node.stop()


class _Users:
    """How many use the node now."""

    def __init__(self, count: int) -> None:
        self.count = count


@contextmanager
def _users(folder: Path) -> Iterator[_Users]:
    """Hold the count: nobody else starts or stops the node meanwhile."""
    with (folder / "users").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        users = _Users(int(file.read() or 0))
        yield users
        file.seek(0)
        file.truncate()
        file.write(str(users.count))
