"""A state model that facetline.toml names is found beside the file, as the console script runs it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from facetline.facets.schema import states
from facetline.streams import project
from facetline.streams.settings import Settings

CONFIG = """
[evaluators.local]
kind = "embedded"

[collections.tickets]
pattern = "tickets/*"
evaluator = "local"
state_model = "shop_of_this_test:Order"

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Charges", other = "None of these" }
"""
MODULE = "from pydantic import BaseModel\n\nclass Order(BaseModel):\n    number: int | None = None\n"


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A configuration file with the module that it names in the same folder."""
    path = list(sys.path)
    (tmp_path / "shop_of_this_test.py").write_text(MODULE)
    (tmp_path / "facetline.toml").write_text(CONFIG)
    yield tmp_path / "facetline.toml"
    sys.path[:] = path
    sys.modules.pop("shop_of_this_test", None)


def test_state_model_beside_the_file(config: Path) -> None:
    """The model's fields become the collection's state."""
    loaded = project.load_project(Settings(config=config))

    assert states.column_types(loaded.definitions[0].state_schema) == {"number": "integer"}
