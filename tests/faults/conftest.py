"""The two runtimes without a worker: these tests start their own, to kill them."""

from collections.abc import AsyncIterator, Iterator

import pytest
import runtimes


@pytest.fixture(params=runtimes.RUNTIMES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runtimes.Site]:
    """A place of each runtime, of the test's own."""
    with runtimes.made(request.param, tmp_path_factory.mktemp("site"), request.getfixturevalue) as made:
        yield made


@pytest.fixture
async def case(site: runtimes.Site) -> AsyncIterator[runtimes.Case]:
    """An open pipeline that writes and reads, and neither applies (Kafka) nor answers."""
    async with runtimes.case(site) as made:
        yield made
