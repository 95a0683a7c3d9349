"""Kafka and PostgreSQL for benchmarks: those of the environment, or nodes of our own for as long as they are needed."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import kafka_broker
import postgres_server


class Missing(Exception):
    """A service is not installed; the message says what to install."""


@contextmanager
def kafka() -> Iterator[str]:
    """Bootstrap address of a real Kafka."""
    given = os.environ.get("FACETLINE_TEST_KAFKA")
    if given:
        yield given
        return
    with TemporaryDirectory() as folder:
        node = kafka_broker.Broker(Path(folder) / "kafka")
        try:
            node.start()
        except kafka_broker.MissingKafka as error:
            raise Missing(str(error)) from error
        try:
            yield node.bootstrap
        finally:
            node.stop()


@contextmanager
def postgres() -> Iterator[str]:
    """SQLAlchemy URL of a real PostgreSQL's maintenance database. It syncs its commits, as users' do."""
    given = os.environ.get("FACETLINE_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    try:
        server = postgres_server.Server(syncs=True)
    except postgres_server.MissingPostgres as error:
        raise Missing(str(error)) from error
    try:
        server.start()
        yield server.admin_url
    finally:
        server.stop()


@contextmanager
def database(admin_url: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty database."""
    name = f"b{uuid.uuid4().hex}"
    yield postgres_server.create_database(admin_url, name)
    postgres_server.drop_database(admin_url, name)
