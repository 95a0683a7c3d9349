"""The PostgreSQL that other tests stand on: a real server, an empty database for each test.

Method: plain psycopg against the fixtures, nothing of the product.
"""

import postgres_server
import psycopg
import pytest

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_database_of_its_own(new_postgres_url: str, turn: int) -> None:
    """A table made by one test is not there for the next one."""
    with psycopg.connect(postgres_server.libpq(new_postgres_url)) as connection:
        connection.execute("CREATE TABLE mine (turn int)")
        connection.execute("INSERT INTO mine VALUES (%s)", [turn])
        rows = connection.execute("SELECT turn FROM mine").fetchall()

    assert rows == [(turn,)]


def test_server_is_recent_and_takes_unicode(new_postgres_url: str) -> None:
    """The server is PostgreSQL 15 or later and its databases are UTF-8."""
    with psycopg.connect(postgres_server.libpq(new_postgres_url)) as connection:
        version = connection.info.server_version
        encoding = connection.execute("SHOW server_encoding").fetchone()

    assert version >= postgres_server.MAJOR_MIN * 10_000
    assert encoding == ("UTF8",)
