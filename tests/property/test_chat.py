"""Goal: whatever a chat model says, what gets through is an answer within the questions' domain.

Method: draw question sets, and replies from near misses to arbitrary text, with arbitrary token probabilities; read
them, and put what is read through the validator that stands before the store.
"""

import itertools
import json
import math
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st

from facetline.evaluators import validation
from facetline.evaluators.chat import answers as chat_answers
from facetline.evaluators.chat import logprobs, prompt, question_codes
from facetline.evaluators.chat import reply as chat_reply
from facetline.evaluators.chat.reply import Reply
from facetline.facets import questions
from facetline.facets.errors import PipelineError

names = st.text("abcABC12 ", min_size=1, max_size=3)
asked = st.dictionaries(
    names,
    st.one_of(
        st.dictionaries(names, st.just(""), min_size=2, max_size=30).map(
            lambda found: questions.choice(ask="?", options=found)
        ),
        st.lists(st.text(max_size=3), min_size=2, max_size=10).map(
            lambda found: questions.score(ask="?", levels=found)
        ),
        st.just(questions.boolean(ask="?")),
    ),
    min_size=1,
    max_size=3,
)
flags = st.booleans()
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
fractions = st.floats(0, 1)
numbers = st.one_of(st.floats(-1, 11), st.integers(-1, 11), fractions.map(str), st.integers(-1, 11).map(str))
any_logprob = st.one_of(st.floats(-4, 0), st.floats(-4, 0), st.floats(), st.sampled_from([None, -9999.0, "-1"]))
rarely = st.integers(0, 19).map(lambda drawn: drawn == 0)


@st.composite
def values(draw: st.DrawFn, line: question_codes.Line) -> Any:
    """Draw something that a model may answer on a line, most of it right."""
    names_and_codes = st.sampled_from([*line.codes, *line.codes.values()] or ["T"])
    if not draw(rarely):
        return draw(st.sampled_from(list(line.codes)) if line.codes else fractions)
    spoilt = names_and_codes.flatmap(lambda text: st.sampled_from([text.swapcase(), f" {text}", f"{text}.", text * 2]))
    return draw(st.one_of(names_and_codes, numbers, spoilt, any_json))


@st.composite
def near_misses(draw: st.DrawFn, sheet: question_codes.Sheet) -> str:
    """Draw an object that has nearly the keys and values that were asked for."""
    found = {line.key: draw(values(line)) for line in sheet}
    found |= {line.sure_key: draw(any_json if draw(rarely) else fractions) for line in sheet if line.sure_key}
    if draw(rarely):
        found.pop(draw(st.sampled_from(sorted(found))))
    if draw(rarely):
        found[draw(st.text(max_size=2))] = draw(any_json)
    text = json.dumps(found)
    spoilt = st.sampled_from([f"```json\n{text}\n```", f"<think>x</think>{text}", f"So: {text}", text[:-1], text * 2])
    return draw(spoilt) if draw(rarely) else text


@st.composite
def tokens_of(draw: st.DrawFn, text: str) -> list[dict[str, Any]]:
    """Draw tokens that spell a text, with alternatives that look alike and any log-probabilities."""
    cuts = draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12))
    quotes = {place + side for place in range(1, len(text) - 1) if text[place] == '"' for side in (0, 1)}
    places = [0, *sorted(cuts if draw(rarely) else quotes), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    return [
        {"token": piece, "logprob": draw(any_logprob), "top_logprobs": draw(alternatives(piece))} for piece in pieces
    ]


@st.composite
def alternatives(draw: st.DrawFn, piece: str) -> list[dict[str, Any]]:
    """Draw alternatives of a token: itself, and itself with another last letter, some with their true weights."""
    others = [piece, *(f"{piece[:-1]}{letter}" for letter in "ABCTF012"), "x"]
    if draw(rarely):
        return draw(st.lists(st.fixed_dictionaries({"token": st.sampled_from(others), "logprob": any_logprob})))
    weights = draw(st.lists(st.integers(1, 99), min_size=2, max_size=len(others)))
    weights[0] *= 9
    shares = [math.log(weight / sum(weights)) for weight in weights]
    return [{"token": token, "logprob": share} for token, share in zip(others, shares, strict=False)]


@given(asked, flags, flags, st.data())
def test_nothing_outside_the_domain_passes(
    found: dict[str, questions.Question], letters: bool, sure: bool, data: st.DataObject
):
    """A reply, whatever it is, is refused with a reason of ours or gives answers that the validator takes."""
    sheet = question_codes.sheet_of(found, order=question_codes.permuted(0, "k"), letters=letters, sure=sure)
    text = data.draw(any_json.map(json.dumps) | st.text(max_size=40) if data.draw(rarely) else near_misses(sheet))
    tokens = logprobs.tokens_of({"content": data.draw(tokens_of(text))})
    try:
        answers = chat_answers.answers(Reply(text, tokens), sheet)
    except (PipelineError, chat_answers.Undecided) as error:
        event(type(error).__name__)
        return
    kinds = {part for each in answers.values() for part in ("confidence", "probabilities") if getattr(each, part, None)}
    event(f"answered with {', '.join(sorted(kinds)) or 'no more'}")

    validation.check(found, answers, confidence_source="logprobs")


@given(asked, flags, st.data())
def test_a_good_reply_is_what_was_meant(found: dict[str, questions.Question], letters: bool, data: st.DataObject):
    """Codes drawn from the sheet come back as what they stand for, however the options are arranged."""
    order = question_codes.permuted(data.draw(st.integers(0, 5)), data.draw(names))
    sheet = question_codes.sheet_of(found, order=order, letters=letters, sure=False)
    codes = {line.key: data.draw(st.sampled_from(list(line.codes))) if line.codes else 0.5 for line in sheet}
    said = chat_answers.read(json.dumps(codes), sheet)

    for line in sheet:
        assert said[line.id].meaning == (line.codes[str(codes[line.key])] if line.codes else None)


completions = st.recursive(
    any_json,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "choices": st.lists(inner, max_size=2),
            "message": inner,
            "finish_reason": st.sampled_from(["stop", "length", "tool_calls", None, "x"]),
            "content": st.text(max_size=5),
            "refusal": st.none() | st.text(max_size=3),
            "tool_calls": st.lists(inner, max_size=2) | st.none(),
            "function": inner,
            "name": st.just("answer"),
            "arguments": st.text(max_size=4),
            "logprobs": inner,
        },
    ),
    max_leaves=10,
)


@given(st.one_of(completions, st.fixed_dictionaries({"choices": st.lists(completions, min_size=1, max_size=2)})))
def test_no_completion_breaks_the_reader(response: Any):
    """Whatever a server sends in place of a completion, it is text that answers or an error of ours."""
    try:
        reply = chat_reply.reply_of(response)
    except PipelineError:
        return

    assert reply.text.strip()


@given(st.text(), st.text("0123456789abcdef", min_size=16, max_size=16))
def test_no_body_gets_out_of_its_fence(body: str, nonce: str):
    """Whatever the body, the two lines with the marker enclose all of it and nothing else."""
    assume(nonce not in body)
    before, inside, after = prompt.fenced(body, nonce).split(f"\n===== {nonce} =====\n")

    assert inside == body
    assert before.endswith(f"===== {nonce} =====:")
    assert "\n" not in after
