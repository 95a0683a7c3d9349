"""Recorded embeddings in place of an embedder: recorded once, replayed without it, text by text.

Method: a real embedder with a counter is wrapped; what it was asked is counted, the file is looked at as a reviewer
would.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators.call_file import CallFile, FromFile, Mode
from facetline.evaluators.embedded.evaluator import Embedded as EmbeddedEvaluator
from facetline.evaluators.embedder_call_file import EmbedderFromFile
from facetline.evaluators.embedders import recordings
from facetline.evaluators.embedders.contract import Embedded, Embedder, EmbedderIdentity, Purpose, Vectors
from facetline.evaluators.recorded.recordings import InvalidRecording
from facetline.evaluators.recorded.recordings import read as read_calls
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable
from facetline.facets.questions import choice

TEXTS = ("The parcel is late.", "Größe 42?", "Hello")


class Counted:
    """Vectors by a text's length; some texts go wrong in their own ways."""

    name, kind, model, fingerprint, max_batch, min_similarity, is_free = (
        "big",
        "hosted",
        "openai/x",
        "ab",
        9,
        0.5,
        False,
    )
    identity = EmbedderIdentity("hosted", "openai/x")

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.closed = 0

    def vectors(self, text: str) -> Vectors:
        """Two windows."""
        return Vectors(2, 2, bytes([len(text), 200, 1, 2]), bytes(range(8)))

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Answer, or fail, and count."""
        self.asked.append(list(texts))
        if "refuse" in texts:
            raise EvaluationFailed("content_filter", "Not by me; ask at https://model.example.org/v1?key=1")
        if "later" in texts:
            raise EvaluatorUnavailable("busy")
        dropped = {index: 7 for index, text in enumerate(texts) if text == "Hello"}
        return Embedded([self.vectors(text) for text in texts], "x-2026", {"input_tokens": 12}, 0.01, dropped)

    async def close(self) -> None:
        """Count."""
        self.closed += 1


def wrapped(folder: Path, mode: Mode, live: Counted) -> EmbedderFromFile:
    """An embedder on the folder's file, as a new process has it."""
    return EmbedderFromFile(live, CallFile(folder / "calls.ndjson", mode))


async def embed(embedder: Embedder, *texts: str, purpose: Purpose = "passage") -> Embedded:
    """Embed texts."""
    return await embedder.embed(texts, purpose=purpose, deadline_s=5)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The file's lines."""
    return [json.loads(line) for line in (folder / "calls.ndjson").read_text(encoding="utf-8").splitlines()]


async def test_what_was_recorded_is_replayed(tmp_path: Path):
    """The same vectors, in any batch, without a call; they cost nothing again."""
    live = Counted()
    recorded = await embed(wrapped(tmp_path, "record", live), *TEXTS)
    replayed = await embed(wrapped(tmp_path, "replay", live), *TEXTS[::-1])
    (one,) = (await embed(wrapped(tmp_path, "replay", live), TEXTS[1])).vectors

    assert recorded == Embedded([live.vectors(text) for text in TEXTS], "x-2026", {"input_tokens": 12}, 0.01, {2: 7})
    assert replayed == Embedded(recorded.vectors[::-1], "x-2026", None, 0.0, {0: 7})
    assert one == recorded.vectors[1]
    assert live.asked == [list(TEXTS)]


async def test_only_what_is_missing_is_asked_for(tmp_path: Path):
    """Also in one process, and of a text that stands twice in a call."""
    live = Counted()
    embedder = wrapped(tmp_path, "record", live)
    await embed(embedder, TEXTS[0])
    found = await embed(embedder, TEXTS[1], TEXTS[0], TEXTS[1])

    assert live.asked == [[TEXTS[0]], [TEXTS[1]]]
    assert found.vectors == [live.vectors(text) for text in (TEXTS[1], TEXTS[0], TEXTS[1])]
    assert found.cost_usd == 0.01
    assert len(lines(tmp_path)) == 2


async def test_a_line_is_one_that_people_can_review(tmp_path: Path):
    """The text in plain words; no name of the embedder."""
    await embed(wrapped(tmp_path, "record", Counted()), TEXTS[1])

    assert "Größe 42?" in (tmp_path / "calls.ndjson").read_text(encoding="utf-8")
    (line,) = lines(tmp_path)
    assert list(line) == ["key", "text", "purpose", "embedder", "model", "vectors", "latency_ms"]
    assert line["embedder"] == {"kind": "hosted", "model": "openai/x", "fingerprint": "ab"}
    assert {name: line["vectors"][name] for name in ("dimensions", "windows")} == {"dimensions": 2, "windows": 2}


@pytest.mark.parametrize("change", ["purpose", "text", "fingerprint"])
async def test_what_was_not_recorded_is_never_asked_for(tmp_path: Path, change: str):
    """In a replay; the error says how many are missing and how to record them."""
    live = Counted()
    await embed(wrapped(tmp_path, "record", live), TEXTS[0])
    other = Counted()
    other.fingerprint = "cd" if change == "fingerprint" else "ab"
    texts = (TEXTS[0], TEXTS[1]) if change == "text" else (TEXTS[0],)
    with pytest.raises(EvaluationFailed) as caught:
        await embed(wrapped(tmp_path, "replay", other), *texts, purpose="query" if change == "purpose" else "passage")

    assert "has no vectors of hosted 'openai/x' for 1 of the texts; record them with FACETLINE_CALLS" in str(
        caught.value
    )
    assert other.asked == []


async def test_a_text_that_was_refused_is_refused_again(tmp_path: Path):
    """Alone; of a batch it is not known which text it was, and what passes by itself is not recorded."""
    live = Counted()
    embedder = wrapped(tmp_path, "record", live)
    for texts, error in ((("refuse", "a"), EvaluationFailed), (("later",), EvaluatorUnavailable)):
        with pytest.raises(error):
            await embed(embedder, *texts)
    assert not (tmp_path / "calls.ndjson").exists()
    with pytest.raises(EvaluationFailed):
        await embed(embedder, "refuse")
    with pytest.raises(EvaluationFailed, match="Not by me; ask at …") as caught:
        await embed(wrapped(tmp_path, "replay", live), "refuse")

    assert caught.value.reason == "content_filter"
    assert len(live.asked) == 3


async def test_one_file_holds_evaluations_and_embeddings(tmp_path: Path):
    """Each side passes over the other's lines, also after both have written."""
    asked = {"topic": choice(ask="About?", options={"billing": "Money", "other": "Else"})}
    file = CallFile(tmp_path / "calls.ndjson", "record")
    evaluator, embedder = FromFile(EmbeddedEvaluator(), file), EmbedderFromFile(Counted(), file)
    for text in TEXTS[:2]:
        await evaluator.evaluate(text, asked, key=text, deadline_s=60)
        await embed(embedder, text)

    assert [call.body for call in read_calls(tmp_path / "calls.ndjson").values()] == list(TEXTS[:2])
    assert [call.text for call in recordings.read(tmp_path / "calls.ndjson").values()] == list(TEXTS[:2])
    await evaluator.close()


async def test_nothing_is_paid_for_that_could_not_be_written(tmp_path: Path):
    """The folder is missing, which is known before the call."""
    live = Counted()
    with pytest.raises(EvaluatorMisconfigured, match="cannot be written"):
        await embed(wrapped(tmp_path / "nowhere", "record", live), TEXTS[0])

    assert live.asked == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": "Another text"}, "its text, purpose or fingerprint is not the one that was embedded"),
        ({"purpose": "other"}, "'purpose' is 'passage' or 'query'"),
        ({"vectors": {"dimensions": 2, "windows": 2, "data": "AAAA", "scales": "AAAAAAAAAAA="}}, "vectors are damaged"),
        ({"vectors": {"dimensions": 2, "windows": 2, "data": "#", "scales": ""}}, "vectors are damaged"),
        ({"vectors": {"dimensions": 2, "windows": 2, "data": 3, "scales": ""}}, "'data' is missing or of another type"),
        ({"vectors": None}, "'vectors' is missing or of another type"),
        ({"body": "x"}, "unknown member 'body'; an embedding has key, text"),
        ({"latency_ms": -1}, "'latency_ms' is from 0"),
    ],
)
async def test_damage_is_named(tmp_path: Path, change: dict[str, Any], words: str):
    """With the file and the line; nothing is answered from such a file."""
    await embed(wrapped(tmp_path, "record", Counted()), TEXTS[0])
    (line,) = lines(tmp_path)
    (tmp_path / "calls.ndjson").write_text(json.dumps({**line, **change}) + "\n", encoding="utf-8")

    with pytest.raises(InvalidRecording, match=r"calls\.ndjson, line 1: ") as caught:
        recordings.read(tmp_path / "calls.ndjson")
    assert words in str(caught.value)
    with pytest.raises(EvaluatorMisconfigured, match="recorded calls: "):
        await embed(wrapped(tmp_path, "replay", Counted()), TEXTS[0])


async def test_a_line_without_a_result_is_damaged(tmp_path: Path):
    """Neither vectors nor an error."""
    await embed(wrapped(tmp_path, "record", Counted()), TEXTS[0])
    (line,) = lines(tmp_path)
    del line["vectors"]
    (tmp_path / "calls.ndjson").write_text(json.dumps(line) + "\n", encoding="utf-8")

    with pytest.raises(InvalidRecording, match="neither vectors nor an error"):
        recordings.read(tmp_path / "calls.ndjson")


async def test_it_is_the_embedder_that_it_wraps(tmp_path: Path):
    """But that a replay costs nothing."""
    live = Counted()
    record, replay = wrapped(tmp_path, "record", live), wrapped(tmp_path, "replay", live)
    await record.close()

    assert isinstance(record, Embedder)
    same = ("name", "kind", "model", "identity", "fingerprint", "max_batch", "min_similarity")
    assert [getattr(record, name) for name in same] == [getattr(live, name) for name in same]
    assert (record.is_free, replay.is_free, live.closed) == (False, True, 1)
