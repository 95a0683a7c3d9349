"""The server of a data folder: the lock that it holds, and searches of other commands through its views.

The lock is the operating system's on a file there with the server's address and a secret of this run. It ends with its
process, however that ends: the file counts only while it is locked. Who can read the secret could open the store as
well; to the server it is the token of local commands. The file is its owner's alone.

A command leaves to the server the side chain, and the views that a search goes through. Everything else works on the
store itself, which any number of processes may do at once, so results are the same with a server and without one.
"""

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetline.facets import errors, private_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from facetline.facets.search.selection import Selection
    from facetline.storage.db.engine import Store

NAME = "serve.lock"
WAIT_MS = 30_000
"""How long the server may take to reach the present state of the store; it is a fraction of a second behind."""
MADE_BY_THE_API = ("links", "next_url")
"""Members of a reply that only have a meaning over HTTP."""
SECRET_BYTES = 32
FILE_BYTES_MAX = 4_096
TRIES = 20
TRY_S = 0.05
"""Who only looks whether the lock is held holds it as well, for less than a millisecond: a server asks again, for a
second in all, before it says that another one has the folder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A server: where it answers, its secret, the store that it serves, and its process's id."""

    url: str
    secret: str = field(repr=False)
    store_id: str
    pid: int


class DataLock:
    """A lock that this process holds. Made by `locked`."""

    def __init__(self, descriptor: int) -> None:
        self.secret = secrets.token_urlsafe(SECRET_BYTES)
        self._descriptor = descriptor

    def publish(self, url: str, store_id: str) -> None:
        """Write down where this process answers, for commands on the same store to find."""
        text = json.dumps({"url": url, "secret": self.secret, "store_id": store_id, "pid": os.getpid()})
        self._write(text.encode())

    def withdraw(self) -> None:
        """Take it back: commands no longer come here; the lock stays held."""
        self._write(b"")

    def _write(self, content: bytes) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[DataLock]:
    """Hold a data folder's lock while the body runs; the folder is made if absent. Blocks for a second at most.

    Raises:
        Conflict: another process serves this folder; the message says where.
        StoreUnavailable: the folder cannot be used.
    """
    try:
        private_files.make_folder(folder)
        descriptor = private_files.open_private(folder / NAME, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise folder_unusable(folder, error) from error
    try:
        if not any(_taken(descriptor, again) for again in range(TRIES)):
            raise errors.Conflict(_said(folder, _read(descriptor)))
        os.fchmod(descriptor, 0o600)
        lock = DataLock(descriptor)
        lock.withdraw()  # what a killed process left
        try:
            yield lock
        finally:
            lock.withdraw()
    finally:
        os.close(descriptor)


def holder(folder: Path) -> Holder | None:
    """Return who serves a data folder; None when the lock is free, or nothing is published yet."""
    try:
        descriptor = private_files.open_private(folder / NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # it was free; closing releases it again
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, again: int) -> bool:
    if again:
        time.sleep(TRY_S)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(descriptor: int) -> Holder | None:
    try:
        data = json.loads(os.pread(descriptor, FILE_BYTES_MAX, 0))
        return Holder(str(data["url"]), str(data["secret"]), str(data["store_id"]), int(data["pid"]))
    except (ValueError, KeyError, TypeError, OSError):
        return None


def _said(folder: Path, found: Holder | None) -> str:
    if found is None:
        return f"another process is about to serve {folder}; wait for it, or give another --folder"
    return f"{folder} is served already, at {found.url} (process {found.pid}); use that, or stop it first"


def folder_unusable(folder: Path, error: OSError) -> errors.StoreUnavailable:
    """Return the error for a data folder that cannot be made or written."""
    why = error.strerror or str(error)
    if error.filename not in {None, str(folder)}:
        why = f"{error.filename}: {why}"
    return errors.StoreUnavailable(
        f"the data folder {folder} cannot be used: {why}; name one that can be written (--folder, or data_folder in"
        " FACETLINE_DATA_FOLDER or [settings])"
    )


async def search(server: Holder, store: "Store", selection: "Selection") -> dict[str, Any] | None:
    """Search through a server's views, over everything committed before the call; None when it does not answer.

    Raises:
        InvalidQuery: the selection names what does not exist.
    """
    from facetline.facets import tokens
    from facetline.facets.client.async_client import AsyncClient  # httpx is slow to import
    from facetline.storage import feed

    while await store.write(feed.number) >= feed.NUMBERED_MAX:
        pass
    now = tokens.encode(tokens.FeedToken(store.store_id, await store.read(feed.end)))
    given: Mapping[str, Any] = selection.model_dump(exclude={"collection", "facets"}, exclude_defaults=True)
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    with contextlib.suppress(errors.ServerUnavailable, errors.NotCaughtUp, errors.StoreUnavailable):
        async with AsyncClient(server.url, token=server.secret, remembers=False) as client:
            reply = await client.search(
                selection.collection, selection.facets, **options, at_least=[now], wait_ms=WAIT_MS
            )
        return {name: value for name, value in reply.items() if name not in MADE_BY_THE_API}
    return None
