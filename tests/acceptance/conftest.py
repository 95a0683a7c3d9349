"""The two runtimes with a worker at work, for all tests of a file; a process for commands, for all files."""

from collections.abc import AsyncIterator, Iterator

import pytest
import runtimes
import served


@pytest.fixture(scope="module", params=runtimes.RUNTIMES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runtimes.Site]:
    """A place of each runtime, shared by the tests of a file."""
    with runtimes.made(request.param, tmp_path_factory.mktemp("site"), request.getfixturevalue) as made:
        yield made


@pytest.fixture(scope="module")
def working(site: runtimes.Site) -> Iterator[runtimes.Site]:
    """A site where somebody applies and answers: a worker process, or (local) each test's own pipeline."""
    if not site.is_kafka:
        yield site
        return
    with site.worker():
        yield site


@pytest.fixture
async def case(working: runtimes.Site) -> AsyncIterator[runtimes.Case]:
    """An open pipeline and a scope of the test's own."""
    async with runtimes.case(working, classify=not working.is_kafka) as made:
        yield made


@pytest.fixture(scope="session")
def server() -> Iterator[served.Server]:
    """The process that runs the commands of most tests: they share its imports."""
    with served.serving() as made:
        yield made
