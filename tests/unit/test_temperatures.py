"""Fitted temperatures beside the configuration file: kept, read, part of the identity, never mixed up."""

from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators import factory
from facetline.evaluators.embedded import calibration, evaluator
from facetline.evaluators.embedded.calibration import Calibration
from facetline.evaluators.quality import temperatures
from facetline.facets.errors import InvalidDefinition


def fit(**changes: Any) -> Calibration:
    """A calibration of one's own."""
    own = {"temperature": 0.123, "source": "our tickets", "fitted_on": 200, "ece": 0.04}
    return calibration.stored().model_copy(update={**own, **changes})


def made(folder: Path, **table: Any) -> evaluator.Embedded:
    """The evaluator `local` of a project in a folder."""
    found = factory.evaluator_from_table("local", {"kind": "embedded", **table}, folder=folder)
    assert isinstance(found, evaluator.Embedded)
    return found


def test_what_is_written_is_read(tmp_path: Path):
    """Fits of several evaluators live in one file; a new one takes the place of the old."""
    temperatures.write(tmp_path, {"local": fit(), "other": fit()})
    temperatures.write(tmp_path, {"local": fit(temperature=0.2)})

    assert temperatures.read(tmp_path) == {"local": fit(temperature=0.2), "other": fit()}
    assert [path.name for path in tmp_path.iterdir()] == [temperatures.FILE]


def test_a_fit_is_in_force_and_part_of_the_identity(tmp_path: Path):
    """The evaluator of that name, and no other, answers with the fitted temperature, so older answers are outdated."""
    before = made(tmp_path).identity
    temperatures.write(tmp_path, {"local": fit()})

    assert made(tmp_path).identity.parameters == {**before.parameters, "temperature": 0.123}
    assert factory.evaluator_from_table("other", {"kind": "embedded"}, folder=tmp_path).identity == before


def test_a_fit_says_where_it_comes_from(tmp_path: Path):
    """Every confidence names the texts behind it."""
    temperatures.write(tmp_path, {"local": fit()})

    assert made(tmp_path)._source == "softmax t=0.123, fitted on our tickets (n=200), ECE 0.040 there"


def test_confidence_off_gives_none_even_when_fitted(tmp_path: Path):
    """Who wants no confidence gets none, fitted or not."""
    temperatures.write(tmp_path, {"local": fit()})

    assert made(tmp_path, confidence="off").identity.parameters["temperature"] == "off"


@pytest.mark.parametrize(
    ("kept", "table", "message"),
    [
        (fit(), {"temperature": 0.3}, "set here and was fitted in facetline.temperatures.json; delete it in one"),
        (fit(model="older@1"), {}, "fitted for model 'older@1'"),
    ],
)
def test_what_contradicts_is_refused(kept: Calibration, table: dict[str, Any], message: str, tmp_path: Path):
    """A temperature in both places, or one of another model, is no guess of ours."""
    temperatures.write(tmp_path, {"local": kept})

    with pytest.raises(InvalidDefinition, match=message):
        made(tmp_path, **table)


@pytest.mark.parametrize("text", ["{", "[]", '{"local": {"temperature": 1}}', b"\xff"])
def test_a_damaged_file_is_named(text: str | bytes, tmp_path: Path):
    """The error says which file, and the way out."""
    path = tmp_path / temperatures.FILE
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(InvalidDefinition, match=r"facetline\.temperatures\.json is damaged .* delete the file"):
        made(tmp_path)
