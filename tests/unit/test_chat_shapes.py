"""How a model is asked, and what a refusal takes away: pure decisions about modes and requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from facetline.evaluators.chat import prompt, question_codes, request_modes
from facetline.evaluators.chat.request_modes import Mode
from facetline.evaluators.chat.settings import Settings, settings_from_table
from facetline.facets import questions
from facetline.facets.questions import Question

QUESTIONS: dict[str, Question] = {
    "topic": questions.choice(ask="?", options={f"option_{number}": "" for number in range(6)}),
    "urgent": questions.boolean(ask="?"),
}


class UnsupportedParamsError(Exception):
    """Named as litellm's own, which is raised before anything is sent."""


def refusal(words: str, status: int = 400, **more: Any) -> Exception:
    """Return a provider's error."""
    error = Exception(words)
    error.__dict__.update(status_code=status, message=words, **more)
    return error


def request(mode: Mode) -> dict[str, Any]:
    """Return the request in a mode, without its messages."""
    sheet = question_codes.sheet_of(QUESTIONS, order=question_codes.fixed, letters=mode.with_letters, sure=False)
    made = request_modes.request(mode, prompt.prompt_of(sheet), body="the body", nonce="7f3a")
    return {name: part for name, part in made.items() if name != "messages"}


def messages(mode: Mode) -> list[dict[str, str]]:
    """Return the messages in a mode."""
    sheet = question_codes.sheet_of(QUESTIONS, order=question_codes.fixed, letters=mode.with_letters, sure=False)
    made = request_modes.request(mode, prompt.prompt_of(sheet), body="the body", nonce="7f3a")
    return list(made["messages"])


def test_the_first_request_asks_for_all_that_helps():
    """A strict schema, token probabilities with room beyond the codes, temperature 0, and a bounded reply."""
    made = request(Mode())
    form = made.pop("response_format")

    assert made == {"max_tokens": 256 + 2 * 32, "temperature": 0.0, "logprobs": True, "top_logprobs": 11}
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    assert form["json_schema"]["schema"]["properties"]["q1"] == {"type": "string", "enum": ["F", "T"]}


def test_a_tool_is_forced_and_called_once():
    """Its call has no usable token probabilities, so none are asked for and booleans are numbers."""
    made = request(Mode(shape="tool"))

    assert set(made) == {"max_tokens", "temperature", "tools", "tool_choice", "parallel_tool_calls"}
    assert made["tool_choice"]["function"]["name"] == made["tools"][0]["function"]["name"]
    assert made["tools"][0]["function"]["parameters"]["properties"]["q1"] == {"type": "number"}
    assert "parallel_tool_calls" not in request(Mode(shape="tool", parallel=False))


def test_what_was_refused_is_left_out():
    """Each part of a request can go."""
    bare = Mode(shape="text", logprobs=None, temperature=None)

    assert request(bare) == {"max_tokens": 320}
    assert request(Mode(shape="json_object"))["response_format"] == {"type": "json_object"}
    assert request(Mode(thinking=True))["max_tokens"] == 320 + 4096
    assert request(Mode(tokens=99, thinking=True))["max_tokens"] == 99
    assert request(Mode(reasoning_effort="low"))["reasoning_effort"] == "low"
    assert [message["role"] for message in messages(bare)] == ["system", "user"]


def test_without_a_system_role_the_instructions_lead_the_message():
    """Models that know users only get one message, instructions first and the body still fenced."""
    (only,) = messages(Mode(system=False))
    place = only["content"].index

    assert only["role"] == "user"
    assert place("You answer fixed questions") < place("===== 7f3a =====") < place("the body")


def test_more_options_than_alternatives_ask_for_the_most():
    """No provider gives more than 20."""
    many: dict[str, Question] = {"t": questions.choice(ask="?", options={f"o{number}": "" for number in range(40)})}
    sheet = question_codes.sheet_of(many, order=question_codes.fixed, letters=True, sure=False)
    made = request_modes.request(Mode(), prompt.prompt_of(sheet), body="b", nonce="n")

    assert made["top_logprobs"] == 20
    assert request(Mode(logprobs=3))["top_logprobs"] == 3


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ("logprobs are not supported with reasoning models", "logprobs"),
        ("Logprobs is not supported for the current model.", "logprobs"),
        ("m only supports logprobs, top_p when reasoning_effort resolves to 'none'", "logprobs"),
        ("m doesn't support temperature=0 while reasoning is active", "temperature"),
        ("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", "shape"),
        ("This response_format type is unavailable now", "shape"),
        ("The specified schema produces a constraint that has too many states for serving.", "shape"),
        ("Failed to generate JSON. Please adjust your prompt. code: json_validate_failed", "shape"),
        ("guided decoding is disabled", "shape"),
        ("System role not supported", "system"),
        ("Developer instruction is not enabled for models/gemma-3", "system"),
    ],
)
def test_a_refusal_names_its_part(words: str, part: str):
    """Words of providers and of litellm point at the one part that has to go."""
    assert request_modes.refused_part(refusal(words), Mode()) == part


@pytest.mark.parametrize(
    ("mode", "words", "part"),
    [
        (Mode(shape="tool"), "tool_choice is not supported", "shape"),
        (Mode(shape="tool"), "does not support parameters: ['parallel_tool_calls']", "parallel"),
        (Mode(shape="tool"), "response_format is not supported", None),
        (Mode(shape="json_object"), "response_format json_object needs another model", "shape"),
        (Mode(shape="text"), "tools and response_format are not supported", "shape"),
        (Mode(shape="text"), "Something else", None),
        (Mode(temperature=None), "temperature is not supported", None),
        (Mode(logprobs=None), "logprobs are not supported", None),
        (Mode(reasoning_effort="low"), "reasoning_effort 'low' is not supported", "reasoning_effort"),
        (Mode(thinking=True), "max_tokens is too large: 4416. At most 4096 completion tokens.", "thinking"),
        (Mode(), "max_tokens is too large", None),
        (Mode(), "Your request was rejected.", None),
    ],
)
def test_only_what_was_asked_for_can_be_refused(mode: Mode, words: str, part: str | None):
    """A refusal of something that is not in the request is about something else."""
    assert request_modes.refused_part(refusal(words), mode) == part


@pytest.mark.parametrize("status", [401, 402, 403, 408, 413, 429, 500, 502, 503, 529])
def test_other_troubles_are_no_refusals(status: int):
    """Keys, quotas, rates and outages are never answered by asking for less, whatever their words."""
    assert request_modes.refused_part(refusal("logprobs, temperature, response_format", status), Mode()) is None


def test_a_missing_model_is_no_refusal():
    """A 404 is one only where a router says that none of its endpoints takes a parameter; a model's name is no word."""
    gone = refusal("The model `json-tool-1` does not exist", 404)
    routed = refusal("No endpoints found that support the provided 'response_format' value", 404)
    named = refusal("openai/json-tool-1 cannot do that", model="openai/json-tool-1")

    assert request_modes.refused_part(gone, Mode()) is None
    assert request_modes.refused_part(routed, Mode()) == "shape"
    assert request_modes.refused_part(named, Mode(shape="tool")) is None


def test_broken_probabilities_are_a_refusal_of_them():
    """A server that cannot write minus infinity says so with a 500: ask it without."""
    error = refusal("Out of range float values are not JSON compliant", 500)

    assert request_modes.refused_part(error, Mode()) == "logprobs"
    assert request_modes.refused_part(error, Mode(logprobs=None)) is None


def test_litellm_refuses_before_anything_is_sent():
    """Its own error needs no status, and the error's parameter counts as its first word."""
    error = UnsupportedParamsError("openai does not support parameters: ['temperature'], for model=x")

    assert request_modes.before_sending(error)
    assert request_modes.refused_part(error, Mode()) == "temperature"
    assert not request_modes.before_sending(refusal("temperature"))
    assert request_modes.refused_part(refusal("not supported", param="response_format"), Mode()) == "shape"
    assert request_modes.refused_part(None, Mode()) is None


def test_shapes_go_down_to_text_and_no_further():
    """Schema, tool, JSON, text; then there is no way left to ask."""
    mode: Mode | None = Mode()
    shapes = []
    while mode is not None:
        shapes.append(mode.shape)
        mode = request_modes.without(mode, "shape")

    assert shapes == ["schema", "tool", "json_object", "text"]


@pytest.mark.parametrize("part", ["logprobs", "temperature", "reasoning_effort", "parallel", "system", "thinking"])
def test_a_part_goes_once(part: str):
    """What was taken away cannot be refused again, so that a document is asked about a bounded number of times."""
    before = Mode(shape="tool" if part == "parallel" else "schema", reasoning_effort="low", thinking=True)
    less = request_modes.without(before, part)

    assert less is not None
    assert part in request_modes._parts(before)
    assert part not in request_modes._parts(less)


def test_what_the_table_sets_is_not_taken_away():
    """A refusal of something that the user set by name is the user's to mend."""
    settings = Settings(output="tool", logprobs=5, temperature=0.5, reasoning_effort="low")

    for part in ("shape", "logprobs", "temperature", "reasoning_effort"):
        assert request_modes.without(settings.first_mode, part) is None
    assert request_modes.without(settings.first_mode, "parallel") is not None


def test_room_for_thoughts_is_given_once():
    """More tokens come after a reply that was cut off, not twice, not where they were refused or the table says."""
    more = request_modes.with_more_tokens(Mode())

    assert more == Mode(thinking=True)
    assert [request_modes.with_more_tokens(mode) for mode in (more, Mode(thinking=False), Mode(tokens=50))] == [
        None
    ] * 3


def made(**table: Any) -> Settings:
    """Return the settings in a table without mistakes."""
    problems: list[str] = []
    settings = settings_from_table(table, problems)
    assert problems == []
    return settings


def test_the_table_decides_the_first_mode():
    """What is set by name is sent as it is; without a confidence from tokens no token probabilities are asked for."""
    assert made().first_mode == Mode()
    assert made(logprobs=5, output="json_object").first_mode.logprobs == 5
    assert made(output="json_object").first_mode.shape == "json_object"
    for table in ({"confidence": "off"}, {"confidence": "verbal"}, {"logprobs": "off"}):
        assert made(**table).first_mode.logprobs is None
    assert made(temperature=1, max_output_tokens=500).first_mode.temperature == 1
    assert made(max_output_tokens=500).first_mode.tokens == 500


def test_every_setting_is_part_of_the_identity():
    """A change of any of them changes what answers depend on."""
    changed = [
        made(output="text"),
        made(logprobs="off"),
        made(logprobs=5),
        made(confidence="verbal"),
        made(option_order="permuted"),
        made(option_order="permuted", seed=2),
        made(max_output_tokens=500),
        made(reasoning_effort="low"),
        made(temperature=0),
        made(instructions="Be strict."),
    ]

    assert len({str(sorted(each.parameters.items(), key=str)) for each in [made(), *changed]}) == len(changed) + 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"output": "xml"}, "output is one of 'auto', 'schema', 'tool', 'json_object', 'text', not 'xml'"),
        ({"output": ["auto"]}, "output is one of"),
        ({"logprobs": 0}, "logprobs is 'auto', 'off' or a number from 1 to 20, not 0"),
        ({"logprobs": 21}, "not 21"),
        ({"logprobs": True}, "not True"),
        ({"confidence": "high"}, "confidence is one of 'logprobs', 'verbal', 'off'"),
        ({"option_order": "random"}, "option_order is one of 'fixed', 'permuted'"),
        ({"seed": 1}, "add option_order = 'permuted'"),
        ({"seed": -1, "option_order": "permuted"}, "seed is a whole number, 0 or more, not -1"),
        ({"max_output_tokens": 4}, "max_output_tokens is a number from 16 to 65536, not 4"),
        ({"max_output_tokens": 1.5}, "not 1.5"),
        ({"reasoning_effort": "much"}, "reasoning_effort is one of"),
        ({"temperature": 2.1}, "temperature is a number from 0 to 2, not 2.1"),
        ({"temperature": float("nan")}, "not nan"),
        ({"temperature": "0"}, "not '0'"),
        ({"instructions": " "}, "not blank"),
        ({"instructions": "x" * 8001}, "at most 8000 characters"),
        ({"instructions": 3}, "instructions are text"),
        ({"confidence": "logprobs", "logprobs": "off"}, "logprobs is 'off'; delete one of them"),
        ({"confidence": "verbal", "logprobs": 5}, "confidence = 'verbal'; delete one of them"),
        ({"output": "tool", "logprobs": 5}, "a tool call has no usable logprobs"),
    ],
)
def test_a_mistake_in_the_table_is_named(table: dict[str, Any], words: str):
    """Each mistake is refused with the key and what would be right."""
    problems: list[str] = []
    settings_from_table(table, problems)

    assert len(problems) == 1
    assert words in problems[0]


def test_errors_without_words_are_no_refusals():
    """Whatever is raised below litellm is judged elsewhere."""
    assert request_modes.refused_part(OSError("logprobs"), Mode()) is None
    assert request_modes.refused_part(refusal("", model=SimpleNamespace()), Mode()) is None
