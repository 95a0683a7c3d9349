"""A TCP proxy before PostgreSQL that cuts connections in the middle of a commit: before it arrives, or its answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

When = Literal["before", "after"]

CHUNK = 1 << 16
COMMIT = b"COMMIT\0"


class Proxy:
    """Passes on what comes; `cut` lets it break connections at commits."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._every = 0
        self._seen = 0
        self.cuts: dict[When, int] = {"before": 0, "after": 0}
        """How many connections were cut before their commit arrived, and how many before its answer did."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def cut(self, every: int) -> None:
        """From now on cut at each `every`th commit, in turn before and after; 0: at none."""
        with self._lock:
            self._every, self._seen = every, 0

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:  # the server is away: so are we
                client.close()
                server.close()
                continue
            _Connection(self, client, server)

    def judge(self, data: bytes) -> When | None:
        """Say whether this is a commit to be cut."""
        if COMMIT not in data:
            return None
        with self._lock:
            self._seen += 1
            if not self._every or self._seen % self._every:
                return None
            when: When = "before" if self._seen // self._every % 2 else "after"
            self.cuts[when] += 1
            return when


class _Connection:
    """One connection: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._doomed = False
        for work in (self._requests, self._answers):
            threading.Thread(target=self._until_closed, args=(work,), daemon=True).start()

    def _until_closed(self, work: "object") -> None:
        with suppress(OSError):
            work()  # type: ignore[operator]
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self) -> None:
        while data := self._client.recv(CHUNK):
            when = self._proxy.judge(data)
            if when == "before":
                return
            self._doomed = when == "after"
            self._server.sendall(data)

    def _answers(self) -> None:
        while data := self._server.recv(CHUNK):
            if self._doomed:  # committed, and nobody hears of it
                return
            self._client.sendall(data)


@contextmanager
def before(upstream: Path) -> Iterator[Proxy]:
    """A proxy before a server's unix socket."""
    proxy = Proxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
