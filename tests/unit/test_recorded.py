"""Recorded answers: found by key or body, given as they were written, and a damaged file named to the line."""

import json
from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators import validation
from facetline.evaluators.recorded.evaluator import Recorded
from facetline.facets import answers, questions
from facetline.facets.errors import EvaluationFailed, InvalidAnswer, InvalidDefinition

ASKED = {
    "topic": questions.choice(ask="?", options={"billing": "", "outage": ""}),
    "urgent": questions.boolean(ask="?"),
    "anger": questions.score(ask="?", levels=["calm", "annoyed", "furious"]),
}
VALUES: dict[str, Any] = {
    "topic": {
        "type": "choice",
        "choice": "billing",
        "confidence": 0.93,
        "probabilities": {"billing": 0.97, "outage": 0.03},
    },
    "urgent": {"type": "boolean", "value": True, "probability": 0.83, "confidence": 0.83},
    "anger": {"type": "score", "score": 1.4, "level": "annoyed", "confidence": None},
}
TOPIC: dict[str, Any] = {"topic": {"type": "choice", "choice": "outage", "confidence": None}}


def recording(folder: Path, *lines: Any) -> Path:
    """Write lines (objects, or text as it is) to a file."""
    path = folder / "answers.ndjson"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


async def ask(evaluator: Recorded, body: str, key: str = "k", asked: Any = ASKED) -> Any:
    """Evaluate a body."""
    return await evaluator.evaluate(body, asked, key=key, deadline_s=1)


async def test_facet_values_come_back_as_the_answers_that_they_show(tmp_path: Path):
    """What people see of an answer, written down and read again, is shown the same."""
    evaluator = Recorded(recording(tmp_path, {"body": "charged twice", "answers": VALUES}))

    said = await ask(evaluator, "charged twice")

    validation.check_evaluated(ASKED, said)
    assert answers.facet_values(ASKED, said.answers) == {name: VALUES[name] for name in sorted(VALUES)}
    assert (said.model, said.confidence_source) == ("recorded", "recorded")


async def test_a_key_is_more_particular_than_a_body(tmp_path: Path):
    """A line about the document's key is preferred to one about its body; both are found."""
    lines = {"body": "same", "answers": VALUES}, {"key": "t1", "answers": TOPIC}
    evaluator = Recorded(recording(tmp_path, *lines, ""))

    assert (await ask(evaluator, "same", "t1")).answers["topic"].choice == "outage"
    assert (await ask(evaluator, "same", "t2")).answers["topic"].choice == "billing"


@pytest.mark.parametrize("body", ["Same", "same ", "", "\ud800"])
async def test_no_line_means_no_answer(body: str, tmp_path: Path):
    """A body that differs in anything fails with a reason that names the file; nothing is asked elsewhere."""
    evaluator = Recorded(recording(tmp_path, {"body": "same", "answers": VALUES}))

    with pytest.raises(EvaluationFailed, match=r"answers\.ndjson has no answers for key 'k'") as caught:
        await ask(evaluator, body)
    assert caught.value.reason == "evaluator_error"


async def test_the_source_of_confidence_is_the_lines_own_or_the_tables(tmp_path: Path):
    """A line may name its source; an answer set without confidences has none."""
    lines = [
        {"key": "a", "answers": VALUES, "confidence_source": "logprobs"},
        {"key": "b", "answers": VALUES},
        {"key": "c", "answers": TOPIC, "confidence_source": "logprobs"},
    ]
    evaluator = Recorded(recording(tmp_path, *lines), confidence_source="experts")

    assert [(await ask(evaluator, "", key)).confidence_source for key in "abc"] == ["logprobs", "experts", None]


async def test_recorded_answers_are_not_above_validation(tmp_path: Path):
    """An option that is no longer declared, and a level that is not the score's, are refused like any model's."""
    changed = {**VALUES, "anger": {"type": "score", "score": 1.6, "level": "annoyed", "confidence": None}}
    evaluator = Recorded(
        recording(tmp_path, {"key": "a", "answers": changed}, {"key": "b", "answers": {"topic": VALUES["topic"]}})
    )
    renamed = {"topic": questions.choice(ask="?", options={"money": "", "outage": ""})}

    with pytest.raises(InvalidAnswer, match=r"score 1\.6 is level 'furious', not 'annoyed'"):
        await ask(evaluator, "", "a")
    with pytest.raises(InvalidAnswer, match="'billing' is none of its options"):
        validation.check_evaluated(renamed, await ask(evaluator, "", "b", renamed))


def test_the_identity_is_the_content(tmp_path: Path):
    """Any change of the file is another evaluator; its name and place are not."""
    first = Recorded(recording(tmp_path, {"key": "a", "answers": TOPIC})).identity
    (tmp_path / "elsewhere").mkdir()
    same = Recorded(recording(tmp_path / "elsewhere", {"key": "a", "answers": TOPIC})).identity
    other = Recorded(recording(tmp_path, {"key": "b", "answers": TOPIC})).identity

    assert first == same
    assert first != other


def choice(**parts: Any) -> dict[str, Any]:
    """Return a line whose answer to `topic` has other parts."""
    return {"key": "a", "answers": {"topic": {**TOPIC["topic"], **parts}}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not one JSON object"),
        ("[1]", "is not a JSON object"),
        ("[" * 100_000, "is not one JSON object"),
        ({"answers": TOPIC}, 'either "body" or "key"'),
        ({"body": "b", "key": "k", "answers": TOPIC}, 'either "body" or "key"'),
        ({"boddy": "b", "answers": TOPIC}, "unknown key 'boddy' (did you mean 'body'?)"),
        ({"key": 7, "answers": TOPIC}, '"key" must be text'),
        ({"body": "", "answers": TOPIC}, '"body" must be text that is not empty'),
        ({"key": "a"}, '"answers" must be an object'),
        ({"key": "a", "answers": {"topic": "billing"}}, "the answer to 'topic': write a facet value"),
        ({"key": "a", "answers": {"topic": {"choice": "billing"}}}, "the answer to 'topic'"),
        (choice(type="guess"), "the answer to 'topic'"),
        (choice(level="annoyed"), "level: Extra inputs"),
        (choice(choice=3), "choice"),
        (choice(confidence="0.9"), "confidence"),
        (choice(confidence=True), "confidence"),
        (choice(probabilities={"billing": "1"}), "probabilities.billing"),
        (
            '{"key": "a", "answers": {"topic": {"type": "choice", "choice": "a", "confidence": NaN}}}',
            "NaN is no number",
        ),
        (
            {"key": "a", "answers": {"u": {"type": "boolean", "value": True, "probability": 0.2}}},
            '"value" must be true',
        ),
        ({"key": "a", "answers": TOPIC, "confidence_source": ""}, '"confidence_source" must be text'),
        ({"key": "before", "answers": TOPIC}, "an earlier line is about the same document"),
        ({"body": "before", "answers": VALUES}, "an earlier line is about the same document"),
    ],
)
def test_a_damaged_line_is_named(line: Any, message: str, tmp_path: Path):
    """The message names the file, the line and the mend."""
    sound = {"key": "before", "answers": TOPIC}, {"body": "before", "answers": TOPIC}

    with pytest.raises(InvalidDefinition) as caught:
        Recorded(recording(tmp_path, *sound, line))
    assert f"{tmp_path / 'answers.ndjson'}, line 3: " in caught.value.message
    assert message in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    """No file, a folder, or not UTF-8: the message names it."""
    (tmp_path / "latin.ndjson").write_bytes('{"key": "ä"}'.encode("latin-1"))

    for name, message in (("none.ndjson", "No such file"), (".", "it is a folder"), ("latin.ndjson", "is not UTF-8")):
        with pytest.raises(InvalidDefinition, match=message) as caught:
            Recorded(tmp_path / name)
        assert str(tmp_path / name) in caught.value.message


async def test_a_look_up_does_not_depend_on_the_files_size(tmp_path: Path):
    """Among 20,000 lines the first and the last are found alike, without reading the file again."""
    path = recording(tmp_path, *({"body": f"body {number}", "answers": TOPIC} for number in range(20_000)))
    evaluator = Recorded(path)
    path.unlink()

    for number in (0, 19_999):
        assert (await ask(evaluator, f"body {number}")).answers["topic"].choice == "outage"
    await evaluator.close()
    await evaluator.close()
