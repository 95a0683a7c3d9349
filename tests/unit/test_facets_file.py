"""Files of expected facets: read as they were written, and a difference told so that a person sees what changed."""

from typing import Any

import pytest

from facetline.streams.files import expected_facets


def document(topic: str | None = "billing", confidence: float | None = 0.93, **more: Any) -> dict[str, Any]:
    """A document with an answer, or (None) without any."""
    facets = None if topic is None else {"topic": {"type": "choice", "choice": topic, "confidence": confidence}}
    return {"status": "indexed", "reason": None, "facets": facets, **more}


def test_what_is_written_is_read_back():
    """Every document comes back, sorted by uri, one line each."""
    found = {"b/ä": document(), "a/1": document(None, status="failed", reason="refused")}
    text = expected_facets.encode(found)

    assert text == (
        '{"uri": "a/1", "status": "failed", "reason": "refused"}\n'
        '{"uri": "b/ä", "status": "indexed", "facets":'
        ' {"topic": {"type": "choice", "choice": "billing", "confidence": 0.93}}}\n'
    )
    assert expected_facets.decode(text) == found


@pytest.mark.parametrize("line", ["{", "[]", '{"status": "indexed"}', '{"uri": "a", "topic": "billing"}'])
def test_a_damaged_line_is_named(line: str):
    """What is no document is refused by its line."""
    with pytest.raises(expected_facets.InvalidFacetsFile, match="line 2"):
        expected_facets.decode('{"uri": "a/1"}\n' + line)


SURE = document()["facets"]["topic"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "t/1: is not there; expected indexed topic=billing (confidence 0.93)"),
        (
            {"t/1": document(), "t/2": document("outage", None)},
            "t/2: was not expected; got indexed topic=outage",
        ),
        (
            {"t/1": document("outage", 0.61)},
            "t/1: topic: expected billing (confidence 0.93), got outage (confidence 0.61)",
        ),
        (
            {"t/1": document(None, status="failed")},
            "t/1: status: expected indexed, got failed; topic: expected billing (confidence 0.93), got nothing",
        ),
        (
            {"t/1": document(facets={"topic": {**SURE, "probabilities": {"billing": 1.0}}})},
            't/1: topic: probabilities expected null, got {"billing": 1.0}',
        ),
        (
            {"t/1": document(facets={"topic": SURE, "urgent": {"type": "boolean", "value": True, "probability": 0.8}})},
            "t/1: urgent: expected nothing, got True",
        ),
    ],
)
def test_a_difference_is_told_by_document_and_question(found: dict[str, Any], said: str):
    """The line names the document, the question, what was expected and what came."""
    assert expected_facets.differences({"t/1": document()}, found) == [said]


def test_equal_documents_do_not_differ():
    """Nothing is told when all is as expected."""
    assert expected_facets.differences({"t/1": document()}, {"t/1": document()}) == []
