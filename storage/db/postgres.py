"""PostgreSQL connections whose every wait has a bound, also on a network that is silent.

A server's `statement_timeout` ends nothing when its answer never arrives, and TCP keepalives do not help behind a proxy
that acknowledges what it does not deliver. So the client watches its own waits: the driver wakes up ten times a second,
and a wait beyond its bound closes the connection. What was asked then counts as a lost connection: its outcome is
unknown, and the transaction is run again.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV
from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

CONNECT_S = 5.0
"""How long one attempt to connect may take, and the check of a pooled connection, by default."""
STATEMENT_S = 30.0
"""How long one statement may take, its wait for locks included, by default."""
ANSWER_MARGIN_S = 5.0
"""How much later than the server the client gives up: where the network works, the server's own limit comes first."""
IDLE_MAX_MS = 20_000
"""How long PostgreSQL waits within a transaction for its next statement; then it ends the connection.

A process that was frozen there, or whose machine is gone, would keep its row locks for as long as that lasts. Nothing
of ours takes a second between two statements.
"""
NETWORK: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""libpq parameters that end a connection whose other end is gone; the same names in the URL win."""

_LIMITS = (
    "SELECT name, CAST(setting AS bigint), source FROM pg_settings"
    " WHERE name IN ('idle_in_transaction_session_timeout', 'statement_timeout')"
)


@dataclass
class Patience:
    """How long the connections of one store wait; shared by all of them, and cut short when the process stops."""

    connect_s: float = CONNECT_S
    statement_s: float = STATEMENT_S
    margin_s: float = ANSWER_MARGIN_S
    hurried_at_s: float | None = None
    hurried_s: float = 0.0

    def hurry(self, limit_s: float) -> None:
        """From now on no wait lasts longer than this; those that have begun have as long from now on."""
        self.hurried_at_s, self.hurried_s = self.hurried_at_s or time.monotonic(), limit_s

    def until_s(self, began_s: float, limit_s: float) -> float:
        """Return until when (monotonic seconds) something that began then may last."""
        until_s = began_s + limit_s
        if self.hurried_at_s is None:
            return until_s
        return min(until_s, max(began_s, self.hurried_at_s) + self.hurried_s)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server does not answer in time."""

    patience: Patience = Patience()
    limit_s: float = CONNECT_S
    statement_s: float = STATEMENT_S + ANSWER_MARGIN_S

    def wait(self, gen: Generator[Any, Any, RV], *args: Any, **kwargs: Any) -> RV:
        """Run one exchange with the server.

        Raises:
            OperationalError: there was no answer within the bound. Whether the server did it is unknown.
        """
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, RV]) -> Generator[Any, Any, RV]:
        began_s = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if time.monotonic() > self.patience.until_s(began_s, self.limit_s):
                    waited_s = time.monotonic() - began_s
                    self.close()
                    raise psycopg.OperationalError(
                        f"PostgreSQL did not answer within {waited_s:.0f} s; the connection was closed"
                    )
                wanted = gen.send(ready)
        except StopIteration as done:
            result: RV = done.value
            return result


def make_engine(url: sa.URL, patience: Patience, *, pool_size: int) -> Engine:
    """Make an engine of bounded connections; libpq parameters in the URL's query win over the defaults here."""
    engine = sa.create_engine(url, pool_size=pool_size, max_overflow=0, pool_pre_ping=True)

    def connect(
        _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], named: dict[str, Any]
    ) -> DBAPIConnection:
        given = {**NETWORK, "connect_timeout": max(1, round(patience.connect_s)), **named}
        made = BoundedConnection.connect(*arguments, **given)
        made.patience = patience
        made.limit_s = patience.connect_s
        return made  # type: ignore[return-value]  # psycopg's own type is narrower than SQLAlchemy's protocol

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", _bound_session)
    event.listen(engine, "checkout", _lent)
    event.listen(engine, "checkin", _returned)
    return engine


def take_time(connection: sa.Connection, limit_s: float) -> None:
    """Let the statements of this transaction take longer: what brings a large store up to date."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, BoundedConnection)  # noqa: S101 (made above)
    connection.execute(sa.text(f"SET LOCAL statement_timeout = {round(limit_s * 1000)}"))
    driver.limit_s = limit_s + driver.patience.margin_s


def _bound_session(connection: Any, _entry: ConnectionPoolEntry) -> None:
    """Let the server end slow statements and idle transactions.

    A lower limit that the server, the database or the role has is kept, and any that the URL's `options` give.
    """
    connection.autocommit = True  # or it would be undone with the first transaction that is
    ours = {
        "idle_in_transaction_session_timeout": IDLE_MAX_MS,
        "statement_timeout": round(connection.patience.statement_s * 1000),
    }
    cursor = connection.cursor()
    cursor.execute(_LIMITS)
    for name, setting, source in cursor.fetchall():
        if source != "client" and not 1 <= setting <= ours[name]:
            cursor.execute("SELECT set_config(%s, %s, false)", (name, str(ours[name])))
        elif name == "statement_timeout":
            ours[name] = setting
    cursor.close()
    connection.autocommit = False
    # 0 in the URL: the server has no limit then; ours, which the network needs, stays that of the setting.
    statement_s = ours["statement_timeout"] / 1000 or connection.patience.statement_s
    connection.statement_s = statement_s + connection.patience.margin_s


def _lent(connection: Any, _entry: ConnectionPoolEntry, _proxy: object) -> None:
    connection.limit_s = connection.statement_s


def _returned(connection: Any, _entry: ConnectionPoolEntry) -> None:
    if connection is not None:  # None: it was lost
        connection.limit_s = connection.patience.connect_s
