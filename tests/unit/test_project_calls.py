"""Which calls a project makes: live ones, or those of a file, by two settings and without a change of its own file."""

from pathlib import Path

import pytest

from facetline.evaluators import call_file
from facetline.evaluators.embedded import evaluator as embedded
from facetline.evaluators.recorded import evaluator as recorded
from facetline.facets.errors import InvalidSettings
from facetline.streams import project
from facetline.streams.project import Project
from facetline.streams.settings import load_settings

CONFIG = """
[evaluators.small]
kind = "embedded"
requests_per_minute = 5
max_usd_per_day = 1.0
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"
[collections.tickets]
pattern = "tickets/*"
evaluator = "small"
[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Anything else" }
"""


def load(folder: Path, calls: str) -> Project:
    """Load the project of a folder with that setting."""
    (folder / "facetline.toml").write_text(CONFIG)
    (folder / "answers.ndjson").touch()
    given = {"config": folder / "facetline.toml", "calls": calls, "calls_file": folder / "calls.ndjson"}
    return project.load_project(load_settings(**given))


def test_live_evaluators_stand_as_they_are(tmp_path: Path):
    """Without the setting there is nothing between pipeline and evaluator, and no file is looked for."""
    loaded = load(tmp_path, "live")

    assert isinstance(loaded.evaluators["small"], embedded.Embedded)


@pytest.mark.parametrize("calls", ["record", "replay"])
def test_definitions_are_those_of_live_evaluators(tmp_path: Path, calls: str):
    """With recorded calls every fingerprint is what it was, so answers compare equal; `recorded` needs no recording."""
    (tmp_path / "calls.ndjson").touch()
    live, loaded = load(tmp_path, "live"), load(tmp_path, calls)

    assert loaded.definitions == live.definitions
    assert isinstance(loaded.evaluators["small"], call_file.FromFile)
    assert isinstance(loaded.evaluators["fixed"], recorded.Recorded)


def test_a_replay_is_not_held_up_by_a_providers_limits(tmp_path: Path):
    """Limits of requests, tokens and money are for live calls, also while recording; a replay has none."""
    (tmp_path / "calls.ndjson").touch()
    limits = load(tmp_path, "replay").limits["small"]

    assert (limits.requests_per_minute, limits.tokens_per_minute, limits.max_usd_per_day) == (None, None, None)
    assert load(tmp_path, "record").limits == load(tmp_path, "live").limits


def test_a_replay_without_a_file_is_refused(tmp_path: Path):
    """No command begins with a file that is not there, and the way to make it is said."""
    with pytest.raises(InvalidSettings, match=r"calls\.ndjson; make it with FACETLINE_CALLS=record"):
        load(tmp_path, "replay")
