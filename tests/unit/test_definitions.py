"""Definitions: what a fingerprint depends on, and which collection a uri belongs to."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from facetline.facets import collections, definitions, documents
from facetline.facets.collections import define_collection
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.errors import InvalidDefinition, InvalidEvent
from facetline.facets.questions import Question, boolean, choice, score

QUESTIONS: Mapping[str, Question] = {
    "topic": choice(ask="About?", options={"billing": "Charges", "other": "None of these"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["cosmetic", "annoying"]),
}
IDENTITY: Mapping[str, Any] = {
    "kind": "embedded",
    "model": "minilm",
    "parameters": {"temperature": 0.05, "windows": 8},
    "version": "1",
    "validator": "1",
}

PINNED = "c1633a9511c04c54220613a9e951224b61ac16bf503d8f1c3cd80e17b6c5d920"


def define(name: str = "tickets", pattern: str = "tickets/*", **more: Any) -> Definition:
    """Return the definition of a small collection."""
    collection = define_collection(
        **{"name": name, "pattern": pattern, "evaluator": "triage", "questions": QUESTIONS, **more}
    )
    return collections.definition_of(
        collection, evaluator_name="triage", kind="embedded", model="minilm", identity=IDENTITY
    )


def test_definition_of_a_collection() -> None:
    """A definition is the collection's plain data with its evaluator's name and its fingerprint."""
    definition = define(scoped=True, state={"title": "string"})

    assert definition.pattern == "tickets/*"
    assert definition.scoped
    assert definition.questions == QUESTIONS
    assert (definition.evaluator, definition.kind, definition.model) == ("triage", "embedded", "minilm")
    assert definition.fingerprint == definitions.fingerprint(QUESTIONS, IDENTITY)
    assert definition.check_state({"title": "x"}) == {"title": "x"}


def test_definition_read_back_from_json() -> None:
    """A definition is read back from its JSON text and from parsed JSON alike."""
    definition = define()
    text = definition.model_dump_json()

    assert Definition.model_validate_json(text) == definition
    assert Definition.model_validate(json.loads(text)) == definition
    assert list(Definition.model_validate_json(text).questions) == list(QUESTIONS)


def test_a_definition_of_before_there_were_embeddings_is_read() -> None:
    """What a store holds needs no `embedding`; without one none is written, for processes of older versions."""
    kept = json.loads(define().model_dump_json())

    assert "embedding" not in kept
    assert Definition.model_validate(kept) == define()


def test_an_embedding_is_kept() -> None:
    """Whole, and changed with any of its parts."""
    embedding = definitions.Embedding(
        embedder="small", kind="embedded", model="minilm", fingerprint="ab", min_similarity=0.5
    )
    definition = define().model_copy(update={"embedding": embedding})

    assert Definition.model_validate_json(definition.model_dump_json()) == definition
    assert definition != define()


def test_fingerprint_is_pinned() -> None:
    """A release that changed every fingerprint would make every document outdated: only on purpose."""
    assert definitions.fingerprint(QUESTIONS, IDENTITY) == PINNED


CHANGED_QUESTIONS: list[dict[str, Question]] = [
    {"topic": choice(ask="What about?", options={"billing": "Charges", "other": "None of these"})},
    {"topic": choice(ask="About?", options={"billing": "Charges and refunds", "other": "None of these"})},
    {"topic": choice(ask="About?", options={"billings": "Charges", "other": "None of these"})},
    {"topic": choice(ask="About?", options={"billing": "None of these", "other": "Charges"})},
    {"topic": choice(ask="About?", options={"billing": "Charges", "other": "None of these", "outage": ""})},
    {"urgent": choice(ask="Today?", options={"yes": "", "no": ""})},
    {"severity": score(ask="How bad?", levels=["annoying", "cosmetic"])},
    {"severity": score(ask="How bad?", levels=["cosmetic", "annoying", "blocked"])},
    {"more": boolean(ask="More?")},
]


@pytest.mark.parametrize("changes", CHANGED_QUESTIONS)
def test_fingerprint_depends_on_questions(changes: dict[str, Question]) -> None:
    """Whatever a model is asked is part of the fingerprint, the order of levels too."""
    changed = definitions.fingerprint({**QUESTIONS, **changes}, IDENTITY)

    assert changed != definitions.fingerprint(QUESTIONS, IDENTITY)


def test_fingerprint_depends_on_question_ids() -> None:
    """A renamed question is another question."""
    renamed = {"subject" if name == "topic" else name: question for name, question in QUESTIONS.items()}

    assert definitions.fingerprint(renamed, IDENTITY) != definitions.fingerprint(QUESTIONS, IDENTITY)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "chat"},
        {"model": "minilm-2"},
        {"parameters": {"temperature": 0.06, "windows": 8}},
        {"parameters": {"temperature": 0.05}},
        {"version": "2"},
        {"validator": "2"},
    ],
)
def test_fingerprint_depends_on_the_evaluator(changes: dict[str, Any]) -> None:
    """Kind, model, every parameter, the evaluator's and the validator's version are part of the fingerprint."""
    changed = definitions.fingerprint(QUESTIONS, {**IDENTITY, **changes})

    assert changed != definitions.fingerprint(QUESTIONS, IDENTITY)


def test_fingerprint_depends_on_nothing_else() -> None:
    """Names, pattern, scoping, visibility and state may change without a document becoming outdated."""
    changed = define("notes", "notes/**", scoped=True, llm_readable=True, state={"title": "string"}, evaluator="other")

    assert changed.fingerprint == define().fingerprint


@pytest.mark.parametrize(
    "identity",
    [
        {**IDENTITY, "name": "triage"},
        {**IDENTITY, "api_base": "http://127.0.0.1"},
        {key: value for key, value in IDENTITY.items() if key != "validator"},
        {**IDENTITY, "parameters": {"temperature": float("nan")}},
    ],
)
def test_fingerprint_of_something_else_refused(identity: dict[str, Any]) -> None:
    """An identity with a name or an address in it, or without a part, never becomes a fingerprint."""
    with pytest.raises(ValueError, match=r"identity has|not JSON compliant"):
        definitions.fingerprint(QUESTIONS, identity)


ACTIVE = Definitions(
    [
        define("tickets", "tickets/*"),
        define("notes", "notes/*", scoped=True),
        define("pages", "docs/eng/**"),
        define("sales", "docs/sales/2026/*"),
    ]
)


@pytest.mark.parametrize(
    ("uri", "name", "key"),
    [
        ("tickets/t1", "tickets", "t1"),
        ("tickets/docs", "tickets", "docs"),
        ("@alice/notes/n1", "notes", "n1"),
        ("docs/eng/a", "pages", "a"),
        ("docs/eng/a/b/c", "pages", "a/b/c"),
        ("docs/eng/tickets/t1", "pages", "tickets/t1"),
        ("docs/sales/2026/q1", "sales", "q1"),
    ],
)
def test_a_uri_is_located_in_the_collection_that_fits(uri: str, name: str, key: str) -> None:
    """A uri belongs to the one collection whose pattern fits, and the key is what its wildcard matched."""
    definition, found = ACTIVE.locate(documents.parse_uri(uri))

    assert (definition.name, found) == (name, key)
    assert definition is ACTIVE.by_name[name]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            "ticket/t1",
            "no collection has a pattern that fits; there are tickets/* (collection 'tickets'), @SCOPE/notes/*",
        ),
        ("ticket/t1", "@SCOPE/notes/* (collection 'notes'), docs/eng/** (collection 'pages')"),
        ("tickets/2026/t1", "for keys with slashes, end the pattern in '**'"),
        ("tickets", "no collection has a pattern that fits"),
        ("docs/eng", "no collection has a pattern that fits"),
        ("docs/sales/2026/q1/x", "no collection has a pattern that fits"),
        ("notes/n1", "collection 'notes' is scoped; write '@SCOPE/notes/n1'"),
        ("@alice/tickets/t1", "collection 'tickets' has no scopes; write 'tickets/t1'"),
        ("@alice/docs/eng/a/b", "collection 'pages' has no scopes; write 'docs/eng/a/b'"),
    ],
)
def test_a_uri_without_a_fitting_collection_is_refused(uri: str, expected: str) -> None:
    """A uri that belongs to no collection, or lacks or has a scope, is refused with what would fit."""
    with pytest.raises(InvalidEvent) as refusal:
        ACTIVE.locate(documents.parse_uri(uri))

    assert refusal.value.reason == documents.EventReason.UNKNOWN_COLLECTION
    assert expected in refusal.value.message


def test_every_uri_is_refused_without_collections() -> None:
    """Before anything is defined every uri is refused with what to do."""
    with pytest.raises(InvalidEvent, match="no collection is defined yet"):
        Definitions([]).locate(documents.parse_uri("tickets/t1"))


def test_locate_refusal_is_bounded() -> None:
    """However many collections there are, the message names a few of them and how many more."""
    many = Definitions(define(f"c{number}", f"c{number}/*") for number in range(50))
    with pytest.raises(InvalidEvent, match="and 30 more") as refusal:
        many.locate(documents.parse_uri("x/" + "y" * 500))

    assert len(refusal.value.message) < 2000


def test_definitions_never_ambiguous() -> None:
    """Active definitions that share a name or a uri are refused rather than resolved by luck."""
    with pytest.raises(InvalidDefinition) as refusal:
        Definitions([define(), define(), define("everything", "**")])

    assert any("there are two of that name" in problem for problem in refusal.value.problems)
    assert any("'**' overlaps 'tickets/*'" in problem for problem in refusal.value.problems)


def test_definitions_do_not_change() -> None:
    """A set of definitions that somebody holds stays what it was."""
    with pytest.raises(TypeError):
        ACTIVE.by_name["more"] = define()  # type: ignore[index]


def test_locate_does_not_scan() -> None:
    """With hundreds of collections a uri is still found within microseconds: it is looked up, not searched for."""
    many = Definitions(define(f"c{number}", f"c{number}/**") for number in range(300))
    uri = documents.parse_uri("c299/a/b/c")
    start = time.process_time()
    for _ in range(2000):
        many.locate(uri)
    took_s = (time.process_time() - start) / 2000

    assert took_s < 20e-6
