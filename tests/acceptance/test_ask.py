"""Searching by a sentence: one call, told before it is made, and only when it is asked for."""

import json

import pytest
from commands import Place
from folder_evaluator import Script
from served import ServedPlace, Server

from facetline.facets import errors
from facetline.streams.local import open_local

MODULE = """
from pathlib import Path
from folder_evaluator import FolderEvaluator
from facetline.facets.collections import define_collection
from facetline.facets.questions import choice

evaluator = FolderEvaluator(Path(__file__).parent / "script")
questions = {
    "topic": choice(ask="About?", options={"billing": "Money", "outage": "Down"}),
    "status": choice(ask="Open?", options={"open": "Not solved", "closed": "Solved"}),
}
collections = [define_collection(name="tickets", pattern="tickets/*", evaluator=evaluator, questions=questions)]
"""
"""The evaluator takes the option that is a word of the text, else the last one: in a sentence, that it says nothing."""
BODIES = {"t1": "billing open", "t2": "billing closed", "t3": "outage open"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Place:
    """A folder with three answered documents; tests read them only."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "asked_collections.py").write_text(MODULE)
    (folder / "facetline.toml").write_text('collections = "asked_collections:collections"\n')
    Script(folder / "script")
    made = ServedPlace(folder, server)
    lines = "".join(json.dumps({"key": key, "body": body}) + "\n" for key, body in BODIES.items())
    assert made.run("import", "-", "--collection", "tickets", stdin=lines).code == 0
    return made


def test_a_sentence_becomes_a_search(place: Place):
    """What it was taken for is shown beside the hits, and that it costs a call; exactly one call is made."""
    script = Script(place.folder / "script")
    before = len(script.calls())
    ended = place.run("search", "tickets", "--ask", "anything about billing that is still open", "--json")

    assert ended.code == 0, ended.err
    assert ended.json["keys"] == ["t1"]
    assert ended.json["asked"]["facets"] == {
        "status": {"value": "open", "confidence": 0.9},
        "topic": {"value": "billing", "confidence": 0.9},
    }
    assert len(script.calls()) == before + 1
    assert "--ask makes one call to evaluator 'tickets' (folder-1), which may cost money" in ended.err
    assert "understood as: " in ended.err
    assert "topic=billing 0.90" in ended.err


def test_without_ask_nobody_is_asked(place: Place):
    """It is never on by default."""
    script = Script(place.folder / "script")
    before = len(script.calls())
    ended = place.run("search", "tickets", "topic=billing", "--json")

    assert sorted(ended.json["keys"]) == ["t1", "t2"]
    assert "asked" not in ended.json
    assert len(script.calls()) == before


def test_what_is_named_goes_before_the_sentence(place: Place):
    """An answer that was given by name is what is searched for; the sentence adds the others."""
    ended = place.run("search", "tickets", "status=closed", "--ask", "open billing", "--json")

    assert ended.json["keys"] == ["t2"]


def test_a_sentence_about_nothing_finds_nothing(place: Place):
    """Rather than all documents the reader gets an error that says what to do; with something named it searches."""
    alone = place.run("search", "tickets", "--ask", "good morning")
    named = place.run("search", "tickets", "topic=outage", "--ask", "good morning", "--json")

    assert (alone.code, alone.out) == (2, "")
    assert "found nothing in the sentence that the questions ask" in alone.err
    assert named.json["keys"] == ["t3"]


def test_an_evaluator_that_fails_is_told_and_nothing_is_searched(place: Place):
    """Exit code 1 with its words; one call."""
    script = Script(place.folder / "script")
    script.on("no")
    before = len(script.calls())
    ended = place.run("search", "tickets", "--ask", "billing fail=no")

    assert (ended.code, ended.out) == (1, "")
    assert "told to refuse" in ended.err
    assert len(script.calls()) == before + 1


async def test_the_same_in_python(place: Place):
    """`search(ask=…)` and `ask` in a program; asking needs the evaluator's own configuration."""
    config, folder = place.folder / "facetline.toml", place.folder / ".facetline"
    async with open_local(config=config, folder=folder, classify=False) as pipeline:
        reply = await pipeline.search("tickets", {"topic": "billing"}, ask="closed", limit=5)
        understood = await pipeline.ask("tickets", "an open outage")
        pipeline.project = None
        with pytest.raises(errors.InvalidSettings, match="pass --config"):
            await pipeline.ask("tickets", "open")

    assert reply["keys"] == ["t2"]
    assert {name: each.value for name, each in understood.taken.items()} == {"topic": "outage", "status": "open"}
