"""What evaluators are tested against: the loopback model server, and no connection left behind."""

from collections.abc import AsyncIterator, Iterator

import model_server
import pytest

from facetline.evaluators.litellm_adapter import client


@pytest.fixture(scope="session")
def model_server_of_all() -> Iterator[model_server.Server]:
    """One server for all tests."""
    with model_server.serving() as made:
        yield made


@pytest.fixture
def server(model_server_of_all: model_server.Server, monkeypatch: pytest.MonkeyPatch) -> model_server.Server:
    """The model server with nothing scripted or counted, and a key for it."""
    monkeypatch.setenv(model_server.VARIABLE, model_server.KEY)
    model_server_of_all.forget()
    return model_server_of_all


@pytest.fixture
async def model_clients_closed() -> AsyncIterator[None]:
    """Leave no connection of litellm's behind the test's loop."""
    yield
    await client.close()
