"""What these tests break: sites whose workers they start themselves, and rigs that stand on services of their own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import kafka_broker
import missing
import postgres_server
import pytest
import rig as rigs
import runtimes

LIMIT_S = 300
"""A shared rig's start counts for the test that comes first; machines in a soak are busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of this folder that has no limit of its own this one."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(params=runtimes.RUNTIMES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runtimes.Site]:
    """A place of each runtime, of the test's own."""
    folder = tmp_path_factory.mktemp("site")
    with runtimes.made(request.param, folder, request.getfixturevalue, clocked=True) as made:
        yield made


@pytest.fixture
async def case(site: runtimes.Site) -> AsyncIterator[runtimes.Case]:
    """An open pipeline that writes and reads, and neither applies (Kafka) nor answers."""
    async with runtimes.case(site) as made:
        yield made


@pytest.fixture(scope="session")
def kafka_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rigs.Rig]:
    """A rig of the Kafka runtime that tests share: starting one takes longer than most tests."""
    try:
        with rigs.kafka(tmp_path_factory.mktemp("rig")) as made:
            yield made
    except (kafka_broker.MissingKafka, postgres_server.MissingPostgres) as error:
        missing.skip_or_fail(str(error))


@pytest.fixture
def rig(kafka_rig: rigs.Rig) -> rigs.Rig:
    """The shared rig as a test finds it: nothing cut, nothing frozen, the plain configuration."""
    kafka_rig.restore()
    return kafka_rig


@pytest.fixture(scope="session")
def shared_local_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rigs.Rig]:
    """A rig of the local runtime that tests share."""
    with rigs.local(tmp_path_factory.mktemp("rig")) as made:
        yield made


@pytest.fixture(params=["local", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.postgres])])
def any_rig(request: pytest.FixtureRequest) -> rigs.Rig:
    """A rig of each runtime."""
    if request.param == "kafka":
        return request.getfixturevalue("rig")
    local = request.getfixturevalue("shared_local_rig")
    local.restore()
    return local
