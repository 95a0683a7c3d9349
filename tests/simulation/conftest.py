"""Which seeds of the simulation run: 500 by default, others by options."""

import os
import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the options of the simulation; its folder must be named on the command line for them."""
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, help="run this one seed again")
    group.addoption("--seeds", type=int, help="run so many seeds instead of 500")
    group.addoption("--first-seed", type=int, help="begin with this seed (default: 0; with --minutes: the clock)")
    group.addoption("--minutes", type=float, help="run fresh seeds for so long")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the first fresh seed once, for all test workers: they inherit the environment."""
    if config.getoption("--minutes", default=None) and config.getoption("--first-seed") is None:
        os.environ.setdefault("FACETLINE_FIRST_SEED", str(int(time.time()) * 100))
