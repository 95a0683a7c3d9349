"""The option that runs one seed again."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--seed N`."""
    parser.addoption("--seed", type=int, default=None, help="run this one seed of the simulation")
