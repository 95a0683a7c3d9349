"""docs/evaluators.md shows what is so: its figures, its tables for facetline.toml, its lines and its own evaluator."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators import factory, validation
from facetline.evaluators.contract import Evaluator
from facetline.evaluators.embedded import calibration
from facetline.facets import questions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "evaluators.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_reliability_table_is_the_shipped_calibration():
    """Every bin, the temperature, the accuracy, the error and the source that answers carry are on the page."""
    known = calibration.stored()
    rows = [
        f"| {low:.1f} to {low + 0.1:.1f} | {each.answers} | {each.confidence:.3f} | {each.right:.3f} |"
        for each in known.reliability
        for low in [each.at_least]
    ]

    assert "\n".join(rows) in PAGE
    assert f"**{known.temperature:g}**" in PAGE
    assert f"**{known.accuracy:.1%} right, expected calibration error {known.ece:.3f}**".replace("%", " %") in PAGE
    source = f"softmax t={known.temperature:g}, fitted on Banking77 (n={known.fitted_on}), ECE {known.ece:.3f} there"
    assert f"`{source}`" in PAGE


def test_the_tables_for_facetline_toml_are_taken(tmp_path: Path):
    """Each table on the page makes an evaluator, as it stands and with each line that is commented out."""
    (tmp_path / "answers.ndjson").write_text("".join(blocks("json")), encoding="utf-8")
    (recording,) = blocks("json")

    assert len([json.loads(line) for line in recording.splitlines()]) == 2
    for block in blocks("toml"):
        for table in tomllib.loads(block)["evaluators"].values():
            factory.evaluator_from_table("e", table, folder=tmp_path)
        for extra in re.findall(r"^# (\w+ = \S+)", block, re.MULTILINE):
            (table,) = tomllib.loads(f"{block}\n{extra}")["evaluators"].values()
            factory.evaluator_from_table("e", table, folder=tmp_path)


async def test_the_evaluator_on_the_page_works():
    """It has the contract's shape, and its answers pass the validator."""
    (source,) = blocks("python")
    made: dict[str, Any] = {}
    exec(source, made)  # noqa: S102 (the page's own code is what is tested)
    evaluator = made["Keywords"]()
    asked = {"topic": questions.choice(ask="?", options={"billing": "", "outage": "", "other": ""})}

    said = [await evaluator.evaluate(body, asked, key="k", deadline_s=1) for body in ("An OUTAGE again", "Hello")]
    assert isinstance(evaluator, Evaluator)
    for each in said:
        validation.check_evaluated(asked, each)
    assert [each.answers["topic"].choice for each in said] == ["outage", "other"]


@pytest.mark.parametrize("kind", factory.MAKERS)
def test_every_kind_and_key_is_on_the_page(kind: str):
    """What a table may say can be looked up."""
    keys = factory.MAKERS[kind][0]

    assert f"`{kind}`" in PAGE
    assert all(key in PAGE for key in keys)
