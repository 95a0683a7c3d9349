"""From a chat completion to answers: what is taken, and above all what is not."""

import json
import math
from typing import Any

import pytest

from facetline.evaluators.chat import answers, question_codes
from facetline.evaluators.chat import reply as chat_reply
from facetline.evaluators.chat.logprobs import Token
from facetline.evaluators.chat.reply import Reply
from facetline.facets import questions
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.errors import EvaluationFailed, EvaluatorUnavailable, InvalidAnswer
from facetline.facets.questions import Question

QUESTIONS: dict[str, Question] = {
    "severity": questions.score(ask="?", levels=["cosmetic", "annoying", "blocked"]),
    "topic": questions.choice(ask="?", options={"billing": "", "Outage": "", "other": ""}),
    "urgent": questions.boolean(ask="?"),
}
"""In a reply: q0, q1 (A = Outage, B = billing, C = other) and q2."""
GOOD = {"q0": "2", "q1": "B", "q2": 0.25}


def token(text: str, chances: dict[str, float]) -> Token:
    """Return a token with the probabilities of what could have stood there."""
    top = [{"token": each, "logprob": math.log(chance)} for each, chance in chances.items()]
    return Token(text, {"token": text, "logprob": None, "top_logprobs": top})


def sheet(*, letters: bool = False, sure: bool = False) -> question_codes.Sheet:
    """Return the questions' sheet."""
    return question_codes.sheet_of(QUESTIONS, order=question_codes.fixed, letters=letters, sure=sure)


def said(text: str, **how: bool) -> dict[str, Any]:
    """Return the answers in a reply without token probabilities."""
    return answers.answers(Reply(text), sheet(**how))


def with_value(key: str, value: str) -> str:
    """Return a good reply in which one value is written as given."""
    return "{" + ", ".join(f'"{k}": {value if k == key else json.dumps(v)}' for k, v in GOOD.items()) + "}"


def completion(**choice: Any) -> dict[str, Any]:
    """Return a completion with one choice."""
    message = choice.pop("message", {"content": json.dumps(GOOD)})
    return {"choices": [{"message": message, "finish_reason": "stop", **choice}]}


def call(arguments: Any = "{}", name: str = "answer") -> dict[str, Any]:
    """Return a tool call."""
    return {"function": {"name": name, "arguments": arguments}}


def test_a_good_reply_answers_all_questions():
    """Codes become options and levels, a number the probability of yes; without tokens there is no confidence."""
    assert said(json.dumps(GOOD)) == {
        "severity": ScoreAnswer(score=2.0),
        "topic": ChoiceAnswer(choice="billing"),
        "urgent": BooleanAnswer(probability=0.25),
    }


@pytest.mark.parametrize(
    ("key", "value", "answer"),
    [
        ("q1", '"billing"', "billing"),
        ("q1", '" OUTAGE "', "Outage"),
        ("q1", '"c"', "other"),
        ("q0", "1", 1.0),
        ("q0", "1.5", 1.5),
        ("q0", '"0.5"', 0.5),
        ("q0", '" 2"', 2.0),
        ("q2", '"0.7"', 0.7),
        ("q2", "1e-2", 0.01),
        ("q2", "0", 0.0),
    ],
)
def test_what_can_mean_one_thing_only_is_taken(key: str, value: str, answer: Any):
    """An option's own key, other letters and white space around it, and numbers written as text."""
    found = said(with_value(key, value))[{"q0": "severity", "q1": "topic", "q2": "urgent"}[key]]

    assert {getattr(found, part, None) for part in ("choice", "score", "probability")} - {None} == {answer}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("q1", '"D"'),
        ("q1", '"refunds"'),
        ("q1", '"B: billing"'),
        ("q1", '"the answer is billing"'),
        ("q1", "1"),
        ("q1", "null"),
        ("q1", '["B"]'),
        ("q1", '""'),
        ("q0", "3"),
        ("q0", "-1"),
        ("q0", "9.2e124"),
        ("q0", '"Score: 2"'),
        ("q0", "true"),
        ("q0", '"2.5/3"'),
        ("q0", "NaN"),
        ("q0", '"NaN"'),
        ("q2", "1.01"),
        ("q2", "85"),
        ("q2", '"85%"'),
        ("q2", "1e999"),
        ("q2", "Infinity"),
        ("q2", "true"),
        ("q2", '"T"'),
        ("q2", "{}"),
        ("q2", "9" * 5000),
    ],
)
def test_what_is_no_answer_is_refused(key: str, value: str):
    """Nothing is searched for in a value, clamped, rescaled or replaced."""
    with pytest.raises(InvalidAnswer):
        said(with_value(key, value))


def test_a_text_that_could_mean_two_options_is_refused():
    """Other letters are no guess: keys that differ in case only are told apart exactly or not at all."""
    asked: dict[str, Question] = {"topic": questions.choice(ask="?", options={"Go": "", "go": "", "ß": "", "ss": ""})}
    lines = question_codes.sheet_of(asked, order=question_codes.fixed, letters=False, sure=False)

    assert answers.read('{"q0": "go"}', lines)["topic"].meaning == "go"
    for text in ("GO", " go", "SS"):
        with pytest.raises(InvalidAnswer, match="topic"):
            answers.read(json.dumps({"q0": text}), lines)


def test_a_code_in_the_other_case_is_its_own_code():
    """With more than 26 options "a" and "A" are two codes, and each is taken as it stands."""
    options = {f"option_{number:02}": "" for number in range(30)}
    lines = question_codes.sheet_of(
        {"t": questions.choice(ask="?", options=options)}, order=question_codes.fixed, letters=False, sure=False
    )

    assert answers.read('{"q0": "a"}', lines)["t"].meaning == "option_26"
    assert answers.read('{"q0": "A"}', lines)["t"].meaning == "option_00"
    with pytest.raises(InvalidAnswer):
        answers.read('{"q0": " a"}', lines)


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        "```\n{}```",
        "\n ```JSON  \n\n{}\n```  \n",
        "<think>A or B? {no}</think>\n{}",
        "<thinking>hm</thinking>```json\n{}\n```",
        "  {}\n",
    ],
)
def test_one_fence_and_one_block_of_thoughts_are_taken_off(text: str):
    """What models put around their JSON in spite of all instructions, as long as it is closed and nothing else."""
    assert said(text.replace("{}", json.dumps(GOOD))) == said(json.dumps(GOOD))


@pytest.mark.parametrize(
    "text",
    [
        "The answer: {}",
        "{}\nI chose billing because of the invoice.",
        "```json\n{}\n```\nDone.",
        "```json\n{}",
        "{} {}",
        "[{}]",
        "<think>{}",
        "<think>a</think> b </think>{}",
        "````\n{}\n````",
        "",
        "billing",
    ],
)
def test_prose_is_not_searched(text: str):
    """An object with words before or behind it, two of them, or half a fence are refused whole."""
    with pytest.raises(InvalidAnswer):
        said(text.replace("{}", json.dumps(GOOD)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"q0": "2", "q1": "B"}', "no q2 (question 'urgent')"),
        ('{"q0": "2", "q1": "B", "q2": 0.5, "q3": "A"}', "not asked for: 'q3'"),
        ('{"q0": "2", "q1": "B", "q2": 0.5, "why": ""}', "not asked for: 'why'"),
        ('{"q0": "2", "q1": "B", "q1": "A", "q2": 0.5}', "'q1' twice"),
        ('{"q0": "2", "q1": "B", "q2": 0.5,}', "not one JSON object"),
        ('{"q0": "2" "q1": "B", "q2": 0.5}', "not one JSON object"),
        ('{q0: "2"}', "not one JSON object"),
        ("{}", "no q0 (question 'severity'), q1 (question 'topic'), q2 (question 'urgent')"),
        ("[" * 100_000, "not one JSON object"),
        ('{"q0": ' + "[" * 100_000, "not one JSON object"),
        ('{"q0": "2", 3: 4}', "not one JSON object"),
        ("x" * (1024 * 1024 + 1), "characters"),
    ],
)
def test_the_object_has_exactly_the_keys(text: str, words: str):
    """A key missing, one too many or one twice: no answer of that reply is taken."""
    with pytest.raises(InvalidAnswer) as caught:
        said(text)

    assert words in caught.value.message


def test_an_opinion_is_the_confidence_where_it_was_asked_for():
    """Of choices and scores; a boolean's probability is its answer and no confidence in it."""
    found = said('{"q0": "2", "c0": 0.5, "q1": "B", "c1": "0.9", "q2": 0.25}', sure=True)

    assert [each.confidence for each in found.values()] == [0.5, 0.9, None]
    with pytest.raises(InvalidAnswer, match=r"number from 0 to 1, not 90"):
        said('{"q0": "2", "c0": 90, "q1": "B", "c1": 0.9, "q2": 0.25}', sure=True)


def spelled(score: str, choice: str, boolean: str, **chances: dict[str, float]) -> Reply:
    """Return a reply with its tokens; `chances` are those at each answer."""
    pieces = ['{"q0":"', score, '","q1":"', choice, '","q2":"', boolean, '"}']
    keys = {1: "q0", 3: "q1", 5: "q2"}
    tokens = [token(piece, chances.get(keys.get(place, ""), {piece: 1.0})) for place, piece in enumerate(pieces)]
    return Reply("".join(pieces), tokens)


def test_tokens_give_distributions_means_and_confidence():
    """A choice has its option's share, a score is the mean of its levels, a boolean the share of yes."""
    reply = spelled(
        "2", "B", "F", q0={"2": 0.6, "1": 0.2, "0": 0.2}, q1={"B": 0.8, "A": 0.1}, q2={"F": 0.75, "T": 0.25}
    )
    found = answers.answers(reply, sheet(letters=True))

    assert found["severity"].probabilities == {"0": 0.2, "1": 0.2, "2": 0.6}
    assert (found["severity"].score, found["severity"].confidence) == (pytest.approx(1.4), 0.6)
    assert found["topic"] == ChoiceAnswer(choice="billing", confidence=0.8)  # what the third option has is not known
    assert found["urgent"] == BooleanAnswer(probability=0.25)


def test_a_boolean_letter_without_its_probability_is_undecided():
    """A bare T, or one without that of F, is no probability: it is not made 1, the caller has to ask for a number."""
    text = '{"q0":"2","q1":"B","q2":"T"}'

    for reply in (Reply(text), spelled("2", "B", "T", q2={"T": 0.6}), Reply(text.replace('"T"', "true"))):
        with pytest.raises(answers.Undecided):
            answers.answers(reply, sheet(letters=True))


def test_a_label_in_place_of_a_code_has_no_share():
    """The probability of a label's first token is not the option's."""
    reply = spelled("2", "billing", "T", q1={"billing": 0.99})

    assert answers.answers(reply, sheet(letters=True))["topic"] == ChoiceAnswer(choice="billing")


def test_tokens_that_spell_another_reply_are_not_used():
    """Without the tokens of this very text there is no confidence, and the answer stands."""
    reply = Reply(json.dumps(GOOD), [token("B", {"B": 1.0})])

    assert answers.answers(reply, sheet())["topic"] == ChoiceAnswer(choice="billing")


def test_the_text_of_a_completion_is_its_only_choices():
    """Its tokens come with it."""
    logprobs = {"content": [{"token": "{}", "logprob": -math.inf, "top_logprobs": []}]}

    assert chat_reply.reply_of(completion(message={"content": "{}"}, logprobs=logprobs)) == Reply(
        "{}", [Token("{}", logprobs["content"][0])]
    )


def test_a_tool_call_is_read_without_its_tokens():
    """One call of the one tool has the answers; token probabilities are not those of its arguments."""
    message = {"content": None, "tool_calls": [call('{"q0": 1}')]}

    assert chat_reply.reply_of(completion(message=message, finish_reason="tool_calls", logprobs={})) == Reply(
        '{"q0": 1}'
    )


@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        ({"choices": []}, chat_reply.CutOff, "no choices"),
        ({"choices": None}, chat_reply.CutOff, "no choices"),
        ({}, chat_reply.CutOff, "no choices"),
        (completion(finish_reason="length"), chat_reply.CutOff, "cut off"),
        (completion(finish_reason="malformed"), InvalidAnswer, "'malformed'"),
        (completion(message={"tool_calls": [call(), call()]}), InvalidAnswer, "several tools"),
        (completion(message={"tool_calls": [call(name="search")]}), InvalidAnswer, "'search'"),
        (completion(message={"tool_calls": [call(None)]}), InvalidAnswer, "without arguments"),
        (completion(message={"tool_calls": "answer"}), InvalidAnswer, "several tools"),
        (completion(message={"content": [{"text": "{}"}]}), InvalidAnswer, "not text but list"),
    ],
)
def test_a_completion_without_an_answer_is_refused(response: Any, error: type[InvalidAnswer], words: str):
    """Cut off, ended otherwise, or with other calls than the one asked for: no part of it is read."""
    with pytest.raises(error, match=words):
        chat_reply.reply_of(response)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (completion(message={"content": None, "refusal": "I can't help with that."}), "refused"),
        (completion(message={"content": json.dumps(GOOD), "refusal": "No."}), "refused"),
        (completion(finish_reason="content_filter"), "content_filter"),
        (completion(message={"content": None}, finish_reason="content_filter"), "content_filter"),
    ],
)
def test_a_refusal_is_the_documents_own(response: Any, reason: str):
    """Refused and filtered are reasons of their own, also when an answer came along."""
    with pytest.raises(EvaluationFailed) as caught:
        chat_reply.reply_of(response)

    assert caught.value.reason == reason


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_empty_reply_is_worth_another_try(content: Any):
    """Nothing said and nothing wrong passes when asked again: once, because it is paid for."""
    with pytest.raises(EvaluatorUnavailable, match="empty") as caught:
        chat_reply.reply_of(completion(message={"content": content}))

    assert (caught.value.reason, caught.value.tries_max) == ("invalid_answer", 2)
