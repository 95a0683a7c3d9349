"""A TCP proxy before PostgreSQL that cuts connections in the middle of a commit: before it arrives, or its answer.

It can also fall silent: bytes are taken and go nowhere, and no connection ends. That is what a firewall that forgot a
connection, or a failed machine behind a load balancer, looks like to a client.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

When = Literal["before", "after"]
Silence = Literal["both", "requests", "answers", "commit", "committed"]
"""What is swallowed: everything, one direction, or from a commit on: the commit itself, or only its answer."""

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
        self._silence: Silence | None = None
        self._silences = 0
        self.swallowed = 0
        """How many connections have fallen silent."""
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self, what: Silence, connections: int = 1_000_000) -> None:
        """From now on let so many connections fall silent, those that exist and new ones; they stay silent."""
        with self._lock:
            self._silence, self._silences = what, connections

    def speak(self) -> None:
        """Let no more connections fall silent."""
        with self._lock:
            self._silence = None

    def silence(self, data: bytes, *, request: bool) -> bool:
        """Say whether these bytes, and whatever its connection carries after them, go nowhere."""
        with self._lock:
            if self._silence is None or self._silences <= 0:
                return False
            if self._silence in {"commit", "committed"}:
                swallows = request and COMMIT in data
            else:
                swallows = self._silence in ("both", "requests" if request else "answers")
            self._silences -= swallows
            self.swallowed += swallows
            return swallows

    @property
    def passes_commits(self) -> bool:
        """Whether a commit that makes a connection silent still arrives."""
        return self._silence == "committed"

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
        self._silent = False
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
            if not self._silent and self._proxy.silence(data, request=True):
                self._silent = True
                if self._proxy.passes_commits:
                    self._server.sendall(data)
            if not self._silent:
                self._server.sendall(data)

    def _answers(self) -> None:
        while data := self._server.recv(CHUNK):
            if self._doomed:  # committed, and nobody hears of it
                return
            self._silent = self._silent or self._proxy.silence(data, request=False)
            if not self._silent:
                self._client.sendall(data)


@contextmanager
def before(upstream: Path) -> Iterator[Proxy]:
    """A proxy before a server's unix socket."""
    proxy = Proxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
