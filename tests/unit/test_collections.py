"""Collections: every refusal at definition, from Python and from facetline.toml, with its mend."""

import tomllib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from facetline.facets import collections
from facetline.facets.collections import collection_from_table, define_collection
from facetline.facets.errors import InvalidDefinition
from facetline.facets.questions import boolean, choice, score
from facetline.facets.schema import names, question_sets

TOPIC = choice(ask="About?", options={"billing": "Charges", "other": "None of these"})
TICKETS: Mapping[str, Any] = {
    "name": "tickets",
    "pattern": "tickets/*",
    "evaluator": "triage",
    "questions": {"topic": TOPIC},
}
TABLE = """
pattern = "tickets/*"
evaluator = "triage"
scoped = true
llm_readable = true
state = { title = "string", priority = "integer" }

[questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Charges", other = "None of these" }

[questions.urgent]
type = "boolean"
ask = "Today?"

[questions.severity]
type = "score"
ask = "How bad is it?"
levels = ["cosmetic", "annoying", "work is blocked"]
"""


class Ticket(BaseModel):
    """A state model."""

    title: str | None = None


def refusal_of(**changes: Any) -> tuple[str, ...]:
    """Return the problems that the tickets collection has with these changes."""
    with pytest.raises(InvalidDefinition) as refusal:
        define_collection(**{**TICKETS, **changes})
    return refusal.value.problems


def refusal_of_table(text: str, name: str = "tickets") -> tuple[str, ...]:
    """Return the problems of a table of facetline.toml."""
    with pytest.raises(InvalidDefinition) as refusal:
        collection_from_table(name, tomllib.loads(text))
    return refusal.value.problems


def evaluator(*question_types: str, options_max: int = 255, levels_max: int = 10) -> SimpleNamespace:
    """Return an object with the evaluator contract that is never called."""
    limits = SimpleNamespace(question_types=frozenset(question_types), options_max=options_max, levels_max=levels_max)
    return SimpleNamespace(kind="fake", identity=None, limits=limits, evaluate=None, close=None)


REFUSED: list[tuple[dict[str, Any], str]] = [
    # Pattern
    ({"pattern": "[topic]/notes"}, "pattern '[topic]/notes': a pattern has no parameters"),
    ({"pattern": "tickets"}, "pattern 'tickets': a pattern ends with a wildcard segment; write 'tickets/*'"),
    ({"pattern": "@alice/*"}, "pattern '@alice/*': a pattern does not start with '@'"),
    ({"pattern": 7}, "pattern 7: a pattern is text"),
    # Name
    ({"name": "Tickets"}, "a name is a small letter"),
    ({"name": "1tickets"}, "a name is a small letter"),
    ({"name": "tickets\n"}, "a name is a small letter"),
    ({"name": "t\u00efckets"}, "a name is a small letter"),
    ({"name": "tick-ets"}, "a name is a small letter"),
    ({"name": ""}, "a name is a small letter"),
    ({"name": None}, "a name is a small letter"),
    ({"name": "a" * 64}, "a name is a small letter, then up to 62"),
    ({"name": "table"}, "'table' is a reserved word of DuckDB"),
    ({"name": "left"}, "'left' is a reserved word of DuckDB"),
    *[({"name": name}, "the name is reserved for an address") for name in sorted(names.COLLECTION_RESERVED)],
    # Flags
    ({"scoped": "false"}, "scoped takes true or false, not 'false'"),
    ({"llm_readable": 1}, "llm_readable takes true or false, not 1"),
    # Keys
    ({"writable": True}, "'writable' is not taken: anybody with the right to write"),
    ({"read_only": True}, "'read_only' is not taken: anybody with the right to write"),
    ({"client": {}}, "'client' is not taken: clients write through the documents topic"),
    ({"react_to": []}, "'react_to' is not taken: there is no hook API: subscribe to the facets topic"),
    ({"hooks": []}, "'hooks' is not taken: there is no hook API: subscribe to the facets topic"),
    ({"questionss": {}}, "'questionss' is not taken (did you mean 'questions'?)"),
    ({"state_model": "a:B"}, "'state_model' is not taken: in Python the model itself is given: write state=Model"),
    # State
    ({"state": {"title": "text"}}, "state 'title': 'text' is no state type"),
    ({"state": {"order": "string"}}, "state 'order': 'order' is a reserved word of DuckDB"),
    ({"state": {"facets": "string"}}, "state 'facets': the name is reserved"),
    ({"state": "string"}, "state takes a type for each field or a pydantic model, not 'string'"),
    ({"state": Ticket()}, "state takes a type for each field or a pydantic model, not Ticket"),
    ({"state": dict}, "a state model is a pydantic model (a class)"),
    # Questions as a whole
    ({"questions": {}}, "no questions; declare at least one"),
    ({"questions": None}, "questions are a mapping of ids to questions"),
    ({"questions": [TOPIC]}, "questions are a mapping of ids to questions"),
    (
        {"questions": lambda _: {}},
        "questions are fixed when a collection is defined and cannot be computed per call",
    ),
    (
        {"questions": {"topic": lambda _: TOPIC}},
        "question 'topic': questions are fixed when a collection is defined",
    ),
    ({"questions": {"topic": "About?"}}, "question 'topic': is no question; make one with choice, boolean or score"),
    ({"questions": {"topic": {"type": "choice"}}}, "question 'topic': is no question"),
    ({"questions": {f"q{n}": TOPIC for n in range(129)}}, "129 questions, at most 128 are taken"),
    # Question ids
    ({"questions": {"Topic": TOPIC}}, "question 'Topic': a name is a small letter"),
    ({"questions": {"topic-1": TOPIC}}, "question 'topic-1': a name is a small letter"),
    ({"questions": {7: TOPIC}}, "question 7: a name is a small letter"),
    ({"questions": {"group": TOPIC}}, "question 'group': 'group' is a reserved word of DuckDB"),
    *[
        ({"questions": {name: TOPIC}}, f"question '{name}': the id is reserved")
        for name in sorted(names.QUESTION_RESERVED)
    ],
    ({"questions": {"doc_topic": TOPIC}}, "question 'doc_topic': an id must not start with 'doc_' or 'state_'"),
    ({"questions": {"state_topic": TOPIC}}, "question 'state_topic': an id must not start with 'doc_' or 'state_'"),
    *[
        ({"questions": {f"topic{ending}": TOPIC}}, f"question 'topic{ending}': an id must not end with")
        for ending in names.QUESTION_ENDINGS
    ],
    # Texts
    ({"questions": {"topic": boolean(ask=" ")}}, "question 'topic': ask is blank"),
    ({"questions": {"topic": boolean(ask="a\0b")}}, "question 'topic': ask holds a NUL"),
    ({"questions": {"topic": boolean(ask="x" * 4097)}}, "question 'topic': ask has 4097 bytes, at most 4096"),
    # Choices
    (
        {"questions": {"topic": choice(ask="?", options={"a": "A"})}},
        "question 'topic': a choice needs two options or more; add one",
    ),
    ({"questions": {"topic": choice(ask="?", options={})}}, "question 'topic': a choice needs two options or more"),
    (
        {"questions": {"topic": choice(ask="?", options={"Open": "A", "open": "B"})}},
        "question 'topic': options 'Open' and 'open' differ in case at most; rename one",
    ),
    (
        {"questions": {"topic": choice(ask="?", options={"stra\u00dfe": "A", "STRASSE": "B"})}},
        "differ in case at most",
    ),
    (
        {"questions": {"topic": choice(ask="?", options={"caf\u00e9": "A", "cafe\u0301": "B"})}},
        "differ in case at most",
    ),
    (
        {"questions": {"topic": choice(ask="?", options={"__missing__": "A", "b": "B"})}},
        "question 'topic': option '__missing__' is the value of documents without an answer",
    ),
    ({"questions": {"topic": choice(ask="?", options={"": "A", "b": "B"})}}, "option '' is blank"),
    (
        {"questions": {"topic": choice(ask="?", options={" a": "A", "b": "B"})}},
        "option ' a' starts or ends with blanks",
    ),
    ({"questions": {"topic": choice(ask="?", options={"a\tb": "A", "b": "B"})}}, "holds a control character"),
    ({"questions": {"topic": choice(ask="?", options={"a" * 256: "A", "b": "B"})}}, "has 256 bytes, at most 255"),
    (
        {"questions": {"topic": choice(ask="?", options={"a": "\0", "b": "B"})}},
        "the description of option 'a' holds a NUL",
    ),
    # Scores
    (
        {"questions": {"bad": score(ask="?", levels=["low"])}},
        "question 'bad': a score needs two levels or more, the lowest first; add one",
    ),
    ({"questions": {"bad": score(ask="?", levels=[])}}, "question 'bad': a score needs two levels or more"),
    ({"questions": {"bad": score(ask="?", levels=["low", "Low"])}}, "levels 'low' and 'Low' differ in case at most"),
    ({"questions": {"bad": score(ask="?", levels=["low", "low"])}}, "levels 'low' and 'low' differ in case at most"),
    ({"questions": {"bad": score(ask="?", levels=["low", ""])}}, "level '' is blank"),
    # Columns
    (
        {"questions": {"state": TOPIC}, "state": {"confidence": "number"}},
        "question 'state': its column state_confidence is that of state 'confidence'; rename one",
    ),
    # Evaluator
    ({"evaluator": " "}, "evaluator is blank"),
    ({"evaluator": 7}, "7 is not an evaluator, it has no kind, identity, limits, evaluate, close"),
    ({"evaluator": None}, "None is not an evaluator"),
    ({"evaluator": SimpleNamespace}, "SimpleNamespace is a class, not an evaluator; give an object of it"),
    (
        {"evaluator": evaluator("choice"), "questions": {"urgent": boolean(ask="?")}},
        "question 'urgent': evaluator 'fake' takes no boolean (it takes choice)",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED)
def test_an_invalid_collection_is_refused(changes: dict[str, Any], expected: str) -> None:
    """Every refusal names the collection and the mend, and is the only one where one thing is wrong."""
    problems = refusal_of(**changes)

    assert len(problems) == 1
    assert expected in problems[0]
    assert problems[0].startswith(f"collection {changes.get('name', 'tickets')!r:.80}: ")


REFUSED_TABLES: list[tuple[str, str, str]] = [
    ('pattern = "tickets/*"', 'pattern = "[topic]/notes"', "pattern '[topic]/notes': a pattern has no parameters"),
    ('pattern = "tickets/*"', "", 'pattern is missing; write pattern = "tickets/*"'),
    ('evaluator = "triage"', "", "evaluator is missing; write evaluator = "),
    ('evaluator = "triage"', "evaluator = 7", "7 is not an evaluator"),
    ("scoped = true", 'scoped = "yes"', "scoped takes true or false, not 'yes'"),
    ("scoped = true", "scopd = true", "'scopd' is not taken (did you mean 'scoped'?)"),
    ("scoped = true", 'name = "x"', "'name' is not taken: the table's own name is the collection's"),
    *[("scoped = true", f"{key} = true", f"'{key}' is not taken: ") for key in ("writable", "read_only", "client")],
    *[("scoped = true", f"{key} = true", "there is no hook API") for key in ("react_to", "hooks")],
    ('title = "string"', 'title = "text"', "state 'title': 'text' is no state type"),
    ('title = "string"', "title = 7", "state 'title': 7 is no state type"),
    ('state = { title = "string", priority = "integer" }', 'state = "string"', "state takes a type for each field"),
    ("scoped = true", 'state_model = "x:Y"', "state and state_model say the same thing twice; keep one"),
    (
        'state = { title = "string", priority = "integer" }',
        'state_model = "nowhere_at_all:Ticket"',
        "module nowhere_at_all cannot be imported",
    ),
    ("[questions.topic]", "[questions.Topic]", "question 'Topic': a name is a small letter"),
    ('type = "choice"', "", "question 'topic': type is missing; write choice, boolean or score"),
    ('type = "choice"', 'type = "choise"', "Unknown question type 'choise' (did you mean 'choice'?)"),
    ('type = "choice"', 'type = ["choice"]', "question 'topic': Unknown question type ['choice']"),
    ('ask = "About?"', "", "question 'topic': ask is missing; a choice has type, ask, options"),
    ('ask = "About?"', "ask = 7", "question 'topic': ask takes text"),
    ('ask = "About?"', 'ask = ""', "question 'topic': ask is blank"),
    ('ask = "Today?"', 'ask = "Today?"\noptions = {}', "question 'urgent': 'options' is not taken; a boolean has"),
    ('ask = "About?"', 'ask = "About?"\nasks = "x"', "'asks' is not taken (did you mean 'ask'?)"),
    ('billing = "Charges"', "billing = 7", "question 'topic': options take a table of keys with their descriptions"),
    (
        'options = { billing = "Charges", other = "None of these" }',
        'options = ["billing", "other"]',
        "question 'topic': options take a table of keys with their descriptions",
    ),
    ('billing = "Charges"', 'Other = "x"', "options 'Other' and 'other' differ in case"),
    ('levels = ["cosmetic", ', "levels = [7, ", "question 'severity': levels take a list of texts, the lowest first"),
    (
        'levels = ["cosmetic", "annoying", "work is blocked"]',
        'levels = "cosmetic"',
        "question 'severity': levels take a list of texts",
    ),
    (
        'levels = ["cosmetic", "annoying", "work is blocked"]',
        'levels = ["cosmetic"]',
        "question 'severity': a score needs two levels or more",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), REFUSED_TABLES)
def test_an_invalid_collection_table_is_refused(old: str, new: str, expected: str) -> None:
    """facetline.toml is refused what Python is, and what only a file can get wrong."""
    assert old in TABLE
    problems = refusal_of_table(TABLE.replace(old, new, 1))

    assert any(expected in problem for problem in problems)
    assert all(problem.startswith("collection 'tickets': ") for problem in problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('pattern = "a/*"\nevaluator = "x"', "questions is missing; write a [collections.NAME.questions.ID] table"),
        ('pattern = "a/*"\nevaluator = "x"\nquestions = {}', "no questions; declare at least one"),
        ('pattern = "a/*"\nevaluator = "x"\nquestions = "?"', "questions are tables"),
        ('pattern = "a/*"\nevaluator = "x"\nquestions = { topic = "?" }', "question 'topic': takes a table"),
    ],
)
def test_table_without_questions(text: str, expected: str) -> None:
    """A table without readable questions is refused for that alone."""
    problems = refusal_of_table(text)

    assert len(problems) == 1
    assert expected in problems[0]


def test_table_is_no_table() -> None:
    """A collection that is a single value in facetline.toml is refused, not crashed on."""
    with pytest.raises(InvalidDefinition, match="collection 'tickets': takes a table"):
        collection_from_table("tickets", "tickets/*")  # type: ignore[arg-type]


def test_all_problems_at_once() -> None:
    """Whoever mends a definition sees everything that is wrong with it in one go."""
    problems = refusal_of(
        name="answers",
        pattern="tickets",
        evaluator="",
        scoped=1,
        hooks=[],
        state={"title": "text", "facets": "string"},
        questions={"limit": boolean(ask=""), "topic": choice(ask="?", options={"a": "A"})},
    )

    assert len(problems) == 10


def test_table_all_problems_at_once() -> None:
    """An unreadable question hides neither the other questions' problems nor the collection's."""
    text = TABLE.replace("tickets/*", "tickets").replace("questions.topic", "questions.limit")
    problems = refusal_of_table(text.replace('"choice"', '"choise"').replace('"cosmetic", "annoying", ', ""))

    assert len(problems) == 4


def test_table_and_python_agree() -> None:
    """The same collection from facetline.toml and from Python is the same value."""
    from_python = define_collection(
        name="tickets",
        pattern="tickets/*",
        evaluator="triage",
        scoped=True,
        llm_readable=True,
        state={"title": "string", "priority": "integer"},
        questions={
            "topic": TOPIC,
            "urgent": boolean(ask="Today?"),
            "severity": score(ask="How bad is it?", levels=["cosmetic", "annoying", "work is blocked"]),
        },
    )

    assert collection_from_table("tickets", tomllib.loads(TABLE)) == from_python


def test_defaults_of_a_collection() -> None:
    """Unless told otherwise a collection has no scopes, is hidden from agents and takes no state."""
    collection = define_collection(**TICKETS)

    assert (collection.scoped, collection.llm_readable) == (False, False)
    assert collection.state_schema["properties"] == {}


def test_collection_with_a_model() -> None:
    """A pydantic model declares the state in Python as a table of types does."""
    collection = define_collection(**TICKETS, state=Ticket)

    assert list(collection.state_schema["properties"]) == ["title"]


def test_collection_takes_what_is_allowed() -> None:
    """Names that only look reserved, long names and questions at their bounds are taken."""
    options = {f"option {number}": "" for number in range(254)} | {"other": ""}
    questions = {
        "type": TOPIC,
        "level": TOPIC,
        "confidence": TOPIC,
        "doc": TOPIC,
        "state": TOPIC,
        "a" * 63: choice(ask="?", options=options),
        "answers": boolean(ask="x" * question_sets.TEXT_BYTES_MAX),
    }
    collection = define_collection(**{**TICKETS, "name": "a" * 63, "questions": questions, "state": {"key": "string"}})

    assert collection.questions == questions


def test_two_collections_that_overlap_are_refused() -> None:
    """Two collections of one name and two that share a uri are refused with both names."""
    first = define_collection(**TICKETS)
    same_name = define_collection(**{**TICKETS, "pattern": "other/*"})
    overlapping = define_collection(**{**TICKETS, "name": "everything", "pattern": "**", "scoped": True})
    apart = define_collection(**{**TICKETS, "name": "notes", "pattern": "notes/*"})

    assert collections.check_together([first, apart]) == []
    assert collections.check_together([first, same_name]) == [
        "collection 'tickets': there are two of that name; rename or drop one"
    ]
    (overlap,) = collections.check_together([first, overlapping])
    assert overlap.startswith("collection 'everything': its pattern '**' overlaps 'tickets/*' of collection 'tickets'")


def test_an_evaluator_that_lacks_a_question_type_is_refused() -> None:
    """An evaluator that lacks a type in use, or takes fewer options or levels, is named with the question."""
    collection = define_collection(
        **{
            **TICKETS,
            "questions": {
                "topic": choice(ask="?", options={"a": "", "b": "", "other": ""}),
                "urgent": boolean(ask="?"),
                "severity": score(ask="?", levels=["a", "b", "c"]),
            },
        }
    )
    types = frozenset({"choice", "score"})
    problems = collections.check_evaluator(
        collection, question_types=types, options_max=2, levels_max=2, evaluator="local"
    )
    about = "collection 'tickets': question '{}': evaluator 'local' takes "
    every = collections.check_evaluator(
        collection, question_types=types | {"boolean"}, options_max=3, levels_max=3, evaluator="local"
    )

    assert problems == [
        about.format("topic") + "at most 2 options, not 3; drop some",
        about.format("urgent") + "no boolean (it takes choice, score); choose another evaluator or type",
        about.format("severity") + "at most 2 levels, not 3; drop some",
    ]
    assert every == []


def test_evaluator_object_is_judged_at_once() -> None:
    """An evaluator given as an object is asked for its limits when the collection is defined."""
    three = choice(ask="?", options={"a": "", "b": "", "other": ""})
    problems = refusal_of(evaluator=evaluator("choice", options_max=2), questions={"topic": three})
    taken = define_collection(**{**TICKETS, "evaluator": evaluator("choice", options_max=3)})

    assert "at most 2 options, not 3" in problems[0]
    assert taken.name == "tickets"


def test_a_choice_without_other_is_warned_of() -> None:
    """A choice without an "other" is allowed and warned of; one with it, in any case, is not."""
    questions = {
        "topic": choice(ask="?", options={"a": "", "Other": ""}),
        "status": choice(ask="?", options={"open": "", "closed": ""}),
        "urgent": boolean(ask="?"),
    }
    found = collections.warnings(define_collection(**{**TICKETS, "questions": questions}))

    assert len(found) == 1
    assert "collection 'tickets': question 'status': no option \"other\"" in found[0]
