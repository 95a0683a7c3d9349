"""A real PostgreSQL server for tests: Debian's (or the one on the path) in a temporary folder, never as root."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

MAJOR_MIN = 15
START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
# Sorts as people do ("a" before "B"), as most installed servers do: an order by bytes must be asked for to be had.
LOCALE = ("--locale-provider=icu", "--icu-locale=en-US", "--locale=C")


class MissingPostgres(Exception):
    """PostgreSQL cannot be run here; the message says what to install."""


class Server:
    """One server with a data folder of its own, reached by a unix socket in it: no port that could be taken.

    `syncs`: it waits for the disk at each commit, as a server that may lose its power must. Crashes of its processes
    lose nothing either way.
    """

    def __init__(self, *, syncs: bool = False) -> None:
        self._syncs = syncs
        self._bin = programs()
        self._as_user = _unprivileged()
        # Not below pytest's own folder, which the user postgres may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix="facetline-pg-"))
        if self._as_user:
            shutil.chown(self.folder, self._as_user["user"], self._as_user["group"])
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def admin_url(self) -> str:
        """SQLAlchemy URL of the maintenance database."""
        return url_of(f"postgresql+psycopg://postgres@/postgres?host={quote(str(self.folder), safe='')}", "postgres")

    def start(self) -> None:
        """Make the cluster, start it and wait until it takes connections."""
        initdb = [
            self._bin / "initdb",
            "-D",
            self.folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, capture_output=True, timeout=START_LIMIT_S, cwd="/", **self._as_user)
        self.run()

    def run(self) -> None:
        """Start the server on the cluster that is there, after `crash` too, and wait until it takes connections."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "max_connections": "100",
            "shared_buffers": "64MB",
        }
        if not self._syncs:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._bin / "postgres", "-D", self.folder / "data", *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as_user)
        self._wait()

    def crash(self) -> None:
        """End the server at once, as a kill would: no checkpoint, recovery at the next `run`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown: its children go as well
        self._process.wait(STOP_LIMIT_S)

    def freeze(self) -> None:
        """Let all its processes stand still: connections stay open and nothing is answered until `thaw`."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        """Return the server's process and its children, which are its connections."""
        assert self._process is not None
        main = self._process.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def stop(self) -> None:
        """Stop the server, breaking off what is connected, and remove its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                psycopg.connect(libpq(self.admin_url)).close()
            except psycopg.OperationalError as error:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()}") from error
                time.sleep(0.05)
            else:
                return


def create_database(admin_url: str, name: str, template: str = "template1") -> str:
    """Make a database, an empty one unless a template is named, and return its SQLAlchemy URL."""
    with psycopg.connect(libpq(admin_url), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')  # type: ignore[arg-type]
    return url_of(admin_url, name)


def drop_database(admin_url: str, name: str) -> None:
    """Remove a database, breaking off what is still connected to it."""
    with psycopg.connect(libpq(admin_url), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[arg-type]


def limit_idling(url: str, limit_ms: int) -> None:
    """Have the server end transactions that stand still, on connections that are made to this database from now on."""
    with psycopg.connect(libpq(url), autocommit=True) as connection:
        change = f'ALTER DATABASE "{connection.info.dbname}" SET idle_in_transaction_session_timeout = {limit_ms}'
        connection.execute(change)  # type: ignore[arg-type]


def url_of(url: str, database: str) -> str:
    """The same server's URL for another database, for SQLAlchemy with psycopg 3 whatever driver it named."""
    url = re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql+psycopg:", url)
    return re.sub(r"^(\w[\w+]*://[^/?]*)/?[^?]*", rf"\1/{database}", url)


def libpq(url: str) -> str:
    """A SQLAlchemy URL as libpq reads it: without the driver's name."""
    return re.sub(r"^postgresql\+\w+:", "postgresql:", url)


def programs() -> Path:
    """The newest server program's folder, Debian's first."""
    debian = {
        int(path.parts[-2]): path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parts[-2].isdigit()
    }
    for major in sorted(debian, reverse=True):
        if major >= MAJOR_MIN and (debian[major] / "initdb").exists():
            return debian[major]
    found = shutil.which("initdb")
    if found and _major(found) >= MAJOR_MIN:
        return Path(found).parent
    raise MissingPostgres(
        f"needs PostgreSQL {MAJOR_MIN} or later: install it (Debian: postgresql, macOS: brew install postgresql@17)"
        " or set FACETLINE_TEST_POSTGRES_URL"
    )


def _major(program: str) -> int:
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=10).stdout
    number = re.search(r"(\d+)", said)
    return int(number[1]) if number else 0


def _unprivileged() -> dict[str, Any]:
    """How to start a process as the user postgres when we are root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError as error:
        raise MissingPostgres("PostgreSQL refuses to run as root, and there is no user postgres") from error
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
