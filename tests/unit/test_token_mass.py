"""From token probabilities to shares of the codes: prototypes of every shape that providers send."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from facetline.evaluators.chat import logprobs
from facetline.evaluators.chat.logprobs import Token

CODES = ("A", "B", "C")


def token(text: str, chances: dict[str, float]) -> Token:
    """Return a token with the probabilities of what could have stood there."""
    top = [{"token": each, "logprob": math.log(chance)} for each, chance in chances.items()]
    return Token(text, {"token": text, "logprob": None, "top_logprobs": top})


def told(*tokens: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """Return log-probabilities as litellm has them; a token's own probability is the first of its alternatives."""
    content = []
    for text, chances in tokens:
        top = [{"token": each, "logprob": math.log(chance)} for each, chance in chances.items()]
        content.append({"token": text, "logprob": top[0]["logprob"] if top else 0.0, "top_logprobs": top})
    return {"content": content}


def shares(text: str, tokens: list[Token], codes: tuple[str, ...] = CODES, chosen: str = "A") -> Any:
    """Return the shares at the chosen code's place in `text`."""
    start = logprobs.start_of(tokens, text)
    return None if start is None else logprobs.shares(tokens, start + text.index(chosen), codes=codes, chosen=chosen)


CLEAN = [('{"q0":"', {}), ("A", {"A": 0.84, "B": 0.16}), ('"}', {})]
PREFIXED = [('{"q0"', {}), (':"A', {':"A': 0.6, ':"B': 0.3, ': "': 0.05}), ('"}', {})]
SUFFIXED = [('{"q0": "', {}), ('A"', {'A"': 0.5, "A": 0.3, 'B"': 0.1, "B": 0.1}), ("}", {})]


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ('{"q0":"A"}', CLEAN, {"A": 0.84, "B": 0.16}),
        ('{"q0":"A"}', PREFIXED, {"A": 0.666667, "B": 0.333333}),
        ('{"q0": "A"}', SUFFIXED, {"A": 0.8, "B": 0.2}),
    ],
    ids=["clean", "prefix merged", "suffix merged"],
)
def test_structural_characters_may_share_a_token(text: str, tokens: list[Any], expected: dict[str, float]):
    """What stands before and behind a code within its token is taken off; pieces of one code are added up."""
    found = shares(text, logprobs.tokens_of(told(*tokens)), codes=("A", "B"))

    assert found.by_code == expected
    assert found.chosen == expected["A"]


def test_all_codes_seen_is_a_distribution():
    """Shares of all codes, of their common mass, are given where each was among the alternatives."""
    tokens = logprobs.tokens_of(told(("A", {"A": 0.6, "B": 0.1, "C": 0.1, "I": 0.2})))

    assert shares("A", tokens).by_code == {"A": 0.75, "B": 0.125, "C": 0.125}


def test_a_code_out_of_sight_leaves_no_distribution():
    """Where an unseen code could have more than one in a hundred, only what the chosen one has for sure is given."""
    unsure = shares("A", logprobs.tokens_of(told(("A", {"A": 0.6, "B": 0.2}))))
    sure = shares("A", logprobs.tokens_of(told(("A", {"A": 0.992}))))

    assert (unsure.by_code, unsure.chosen) == (None, 0.6)
    assert (sure.by_code, sure.chosen) == ({"A": 1.0, "B": 0.0, "C": 0.0}, 1.0)


def test_a_token_without_alternatives_is_not_certain():
    """A server that tells a token's own probability alone makes no answer look surer than that."""
    told_ = {"content": [{"token": "A", "logprob": math.log(0.51), "top_logprobs": []}]}

    assert shares("A", logprobs.tokens_of(told_)) == logprobs.Shares(0.51, None)


@pytest.mark.parametrize(
    "chances",
    [{"A": 0.3, "B": 0.1, "C": 0.05, "The": 0.5}, {"A": 0.2, "B": 0.7, "C": 0.1}, {"The": 0.9}, {"A": 1.0, "B": 0.5}],
    ids=["little mass", "another is likelier", "no code", "more than one"],
)
def test_a_forced_or_impossible_code_has_no_share(chances: dict[str, float]):
    """Under half of the mass on codes, another code ahead, or a mass over one: then nothing is said at all."""
    tokens = [token("A", chances)]

    assert shares("A", tokens) is None


def test_a_code_within_a_word_is_not_the_code():
    """An alternative counts when it is the code, or closes its quote; not when it goes on."""
    found = shares("A", [token("A", {"A": 0.5, "Apple": 0.4, "B": 0.05, "C": 0.05})])

    assert found.by_code == {"A": 0.833333, "B": 0.083333, "C": 0.083333}


def test_half_of_a_code_is_no_code():
    """Codes of two letters that come as two tokens have no share."""
    tokens = [token("A", {"A": 1.0}), token("B", {"B": 1.0})]

    assert shares("AB", tokens, codes=("AB", "AC"), chosen="AB") is None
    assert shares("AB", [token("AB", {"AB": 1.0})], codes=("AB", "AC"), chosen="AB").chosen == 1.0


def test_another_beginning_is_no_alternative():
    """Alternatives that do not begin with the same structure are left out."""
    found = shares('"A', [token('"A', {'"A': 0.8, " B": 0.2})], codes=("A", "B"))

    assert found.by_code is None


@pytest.mark.parametrize("bad", [None, -math.inf, math.nan, math.inf, -9999.0, 0.5, "-0.1", True])
def test_what_is_no_probability_is_left_out(bad: Any):
    """Null, NaN, infinities, -9999 and positive values are dropped with their alternative alone."""
    top = [{"token": "A", "logprob": math.log(0.9)}, {"token": "B", "logprob": bad}]
    tokens = logprobs.tokens_of({"content": [{"token": "A", "logprob": math.log(0.9), "top_logprobs": top}]})

    assert [each.chances() for each in tokens] == [{"A": pytest.approx(0.9)}]


@pytest.mark.parametrize(
    "told_", [None, {}, {"content": None}, {"content": 3}, {"content": [None]}, {"content": [{"token": None}]}]
)
def test_no_tokens_is_an_answer_too(told_: Any):
    """Models that were asked for probabilities and give none, or half of them, have no tokens."""
    assert logprobs.tokens_of(told_) == []


def test_objects_are_read_as_mappings_are():
    """Both forms are in what litellm returns."""
    told_ = SimpleNamespace(content=[SimpleNamespace(token="A", logprob=0.0, top_logprobs=None)])

    assert [each.chances() for each in logprobs.tokens_of(told_)] == [{"A": 1.0}]


@pytest.mark.parametrize(
    ("spelled", "text", "start"),
    [
        (["\n", '{"q', '"}'], '{"q"}', 1),
        (['{"q"}', "<|eot|>"], '{"q"}', 0),
        (['{"q"}'], ' {"q"}\n', -1),
        (['{"q'], '{"q"}', None),
        (["call(", '{"q"}'], '{"q"}', None),
        ([], '{"q"}', None),
        (["x"], "  ", None),
    ],
)
def test_tokens_must_spell_the_reply(spelled: list[str], text: str, start: int | None):
    """White space around and an end mark make no difference; tokens of something else are of no use."""
    assert logprobs.start_of([token(each, {}) for each in spelled], text) == start


def test_a_place_beyond_the_tokens_has_no_share():
    """Tokens that end early say nothing about what follows."""
    assert logprobs.shares([token("A", {"A": 1.0})], 1, codes=CODES, chosen="A") is None
