"""Limits of an evaluator that is a Python object stand in a table named after its collection."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from facetline.facets import errors
from facetline.streams import project
from facetline.streams.settings import Settings

MODULE = """
from fake_evaluator import FakeEvaluator
from facetline.facets.collections import define_collection
from facetline.facets.questions import choice

topic = choice(ask="About?", options={"billing": "Charges", "other": "None of these"})
tickets = define_collection(name="tickets", pattern="tickets/*", evaluator=FakeEvaluator(), questions={"topic": topic})
"""


class Configured:
    """A folder with a module of collections; `load` reads a configuration file with these tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"collections_{uuid.uuid4().hex}"
        (folder / f"{self.module}.py").write_text(MODULE)

    def load(self, tables: str) -> project.Project:
        """Load the project."""
        path = self.folder / "facetline.toml"
        path.write_text(f'collections = "{self.module}:tickets"\n{tables}')
        return project.load_project(Settings(config=path))


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    """A configuration whose module is forgotten afterwards."""
    path = list(sys.path)
    made = Configured(tmp_path)
    yield made
    sys.path[:] = path
    sys.modules.pop(made.module, None)


def test_limits_of_a_python_evaluator(configured: Configured):
    """A table without a kind, named after the collection, sets the limits of its evaluator."""
    loaded = configured.load("[evaluators.tickets]\nconcurrency = 3\ncall_s = 5\n")

    assert (loaded.limits["tickets"].concurrency, loaded.limits["tickets"].call_s) == (3, 5)


def test_limits_of_an_unknown_evaluator_are_refused(configured: Configured):
    """Limits that belong to no evaluator are refused: somebody believes in them."""
    with pytest.raises(errors.InvalidDefinition, match="evaluator 'ticket' has limits but no kind"):
        configured.load("[evaluators.ticket]\nconcurrency = 3\n")


def test_two_evaluators_of_one_name(configured: Configured):
    """A table with a kind does not silently replace the object that the collection brings."""
    with pytest.raises(errors.InvalidDefinition, match=r"rename that table"):
        configured.load('[evaluators.tickets]\nkind = "embedded"\n')


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_usd_per_day = 0", "max_usd_per_day is 0; write a number above zero"),
        ('max_usd_per_day = "5"', "max_usd_per_day is '5'; write a number above zero"),
        ("tokens_per_minute = nan", "tokens_per_minute is nan; write a number above zero"),
        ("call_s = inf", "call_s is inf; write a number above zero"),
        ("tokens_per_minute = true", "tokens_per_minute is True; write a number above zero"),
        ("tokens_per_minute = 0.5", "tokens_per_minute: must be a whole number"),
        ("max_usd = 5", "unknown key 'max_usd' (did you mean 'max_usd_per_day'?)"),
        ("token_per_minute = 5", "unknown key 'token_per_minute' (did you mean 'tokens_per_minute'?)"),
    ],
)
def test_limits_that_are_none(configured: Configured, line: str, words: str):
    """A limit that is no number above zero, or that is misspelled, is refused by name."""
    with pytest.raises(errors.InvalidDefinition) as refused:
        configured.load(f"[evaluators.tickets]\n{line}\n")

    assert f"evaluator 'tickets': {words}" in str(refused.value)


MANY = """
[evaluators.model]
kind = "chat"
modle = "openai/gpt-4.1-mini"
concurency = 3
call_s = -4
[evaluators.other]
kind = "embeded"
requests_per_minut = 4
[collections.tickets]
pattern = "tickets/*"
evaluator = "modle"
questions.topic = { type = "boolean", aks = "Is it urgent?" }
"""


def test_a_misspelt_key_hides_nothing(tmp_path: Path):
    """Everything that is wrong with a file is said at once, whatever else is wrong with the same table."""
    (tmp_path / "facetline.toml").write_text(MANY)

    with pytest.raises(errors.InvalidDefinition) as refused:
        project.load_project(Settings(config=tmp_path / "facetline.toml"))

    said = " ".join(refused.value.problems)
    for word in ("'modle'", "'concurency'", "call_s is -4", "openai/gpt", "'embeded'", "'requests_per_minut'", "'aks'"):
        assert word in said
    assert "evaluator 'modle' is not defined" in said
