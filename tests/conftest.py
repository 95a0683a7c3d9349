"""Fixtures for every test: real services where a test asks for them, and no way off this machine."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import kafka_broker
import kafka_container
import loopback
import made_stores
import missing
import postgres_server
import pytest
import shared_broker
import stored
import structlog
from hypothesis import HealthCheck, settings

from facetline.storage.db import engine

# No time limit on one example: on a busy machine that would fail for no fault of the code. pytest's limit holds.
settings.register_profile("facetline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("facetline")
structlog.configure()  # as it is; else the first pipeline that a test opens would have only warnings logged


@pytest.fixture(scope="session", autouse=True)
def _only_loopback() -> Iterator[None]:
    with loopback.only_loopback():
        yield


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap address of a real Kafka that all tests share: take topics and groups from `topic_prefix`."""
    given = os.environ.get(kafka_container.ADDRESS_VARIABLE)
    if given:
        yield given
        return
    try:
        image = kafka_container.usable_image()
    except kafka_container.NoContainer as error:
        if kafka_container.demanded():
            pytest.fail(f"{kafka_container.IMAGE_VARIABLE} asks for a container: {error}", pytrace=False)
        try:
            with shared_broker.running(_of_the_run(tmp_path_factory) / "kafka-of-all") as address:
                yield address
        except kafka_broker.MissingKafka as error:
            missing.skip_or_fail(f"{error}; or set FACETLINE_TEST_KAFKA")
    else:
        with kafka_container.running(image) as address:
            yield address


def _of_the_run(factory: pytest.TempPathFactory) -> Path:
    """A folder that all test workers of a run share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line which Kafka the tests shared, and why it was no container."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    if any("kafka" in getattr(each, "keywords", ()) for each in reports):
        terminalreporter.write_line(f"Kafka: {kafka_container.choice()}")


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_broker.Broker]:
    """A running Kafka node of the test's own, to be stopped, killed, paused and started again."""
    node = _started(tmp_path_factory.mktemp("broker"))
    yield node
    node.stop()


def _started(folder: Path) -> kafka_broker.Broker:
    node = kafka_broker.Broker(folder)
    try:
        node.start()
    except kafka_broker.MissingKafka as error:
        missing.skip_or_fail(f"{error}; or set FACETLINE_TEST_KAFKA")
    return node


@pytest.fixture
def topic_prefix() -> str:
    """What this test's topics and groups begin with; no other test has it."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def postgres_admin_url() -> Iterator[str]:
    """SQLAlchemy URL of a real PostgreSQL server's maintenance database, with the right to make databases."""
    given = os.environ.get("FACETLINE_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    try:
        server = postgres_server.Server()
    except postgres_server.MissingPostgres as error:
        missing.skip_or_fail(str(error))
    try:
        server.start()
        yield server.admin_url
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_template(postgres_admin_url: str) -> str:
    """Name of a database that holds an empty store, to be copied."""
    name = f"t{uuid.uuid4().hex}"
    made_stores.make(postgres_server.create_database(postgres_admin_url, name))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that holds an empty store, to be copied."""
    return made_stores.sqlite_template(tmp_path_factory.mktemp("template") / "store.sqlite")


@pytest.fixture
def postgres_url(postgres_admin_url: str, postgres_template: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty store of the test's own in PostgreSQL."""
    name = f"t{uuid.uuid4().hex}"
    yield made_stores.postgres_copy(postgres_admin_url, postgres_template, name)
    postgres_server.drop_database(postgres_admin_url, name)


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """SQLAlchemy URL of an empty store of the test's own in a SQLite file."""
    return made_stores.sqlite_copy(sqlite_template, tmp_path / "store.sqlite")


@pytest.fixture
def new_postgres_url(postgres_admin_url: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty PostgreSQL database of the test's own."""
    name = f"t{uuid.uuid4().hex}"
    yield postgres_server.create_database(postgres_admin_url, name)
    postgres_server.drop_database(postgres_admin_url, name)


@pytest.fixture
def new_sqlite_url(tmp_path: Path) -> str:
    """SQLAlchemy URL of a SQLite file that does not exist yet, in the test's own folder."""
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=BOTH)
def store_url(request: pytest.FixtureRequest) -> str:
    """SQLAlchemy URL of an empty store; a test that asks for it runs once on each of the two databases."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=BOTH)
def new_store_url(request: pytest.FixtureRequest) -> str:
    """SQLAlchemy URL of a store that nobody has opened yet, on each of the two databases."""
    return str(request.getfixturevalue(f"new_{request.param}_url"))


@pytest.fixture
def clock() -> stored.Clock:
    """What is added to the clock of `store`."""
    return stored.Clock()


@pytest.fixture
async def store(store_url: str, clock: stored.Clock, request: pytest.FixtureRequest) -> AsyncIterator[engine.Store]:
    """An open store in which the collections of the mark `collections` are active, else none.

    A file that needs more begins with this one (`async def store(store: engine.Store)`); one that needs a single
    database overrides `store_url`.
    """
    marked = request.node.get_closest_marker("collections")
    async with stored.opened(store_url, clock) as opened:
        if marked is not None:
            await opened.write(stored.defined, *marked.args)
        yield opened
