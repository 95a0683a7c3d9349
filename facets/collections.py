"""Collections: a named set of documents with one set of questions and one evaluator.

Whether a collection can stand is decided here, for Python and for `facetline.toml` by the same checks. All problems are
found before anything is raised, and each message names the collection, the question and the way out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from facetline.facets import definitions, text_settings
from facetline.facets.errors import InvalidDefinition, nearest
from facetline.facets.questions import Choice, Question, Score
from facetline.facets.schema import columns, names, patterns, question_sets, state_models, states
from facetline.facets.schema.patterns import Pattern
from facetline.facets.text_settings import TextSettings

_COMMON_KEYS = ("pattern", "evaluator", "questions", "scoped", "llm_readable", "state", "text")
_KEYWORDS = ("name", *_COMMON_KEYS)
_TABLE_KEYS = (*_COMMON_KEYS, "state_model")
_REQUIRED_KEYS = {
    "pattern": 'pattern = "tickets/*"',
    "evaluator": 'evaluator = "NAME" of an [evaluators.NAME] table',
    "questions": "a [collections.NAME.questions.ID] table for each question",
}

# Keys that other systems have and someone coming from there will try, or that belong to the other way of defining.
_ELSEWHERE = {
    "writable": "anybody with the right to write does, no field is singled out; take it out",
    "read_only": "anybody with the right to write does, no field is singled out; take it out",
    "client": "clients write through the documents topic or the command line, no collection knows them; take it out",
    "react_to": "there is no hook API: subscribe to the facets topic; take it out",
    "hooks": "there is no hook API: subscribe to the facets topic; take it out",
    "state_model": "in Python the model itself is given: write state=Model",
    "name": "the table's own name is the collection's: write [collections.NAME]",
}


@dataclass(frozen=True)
class Collection:
    """A collection that `define_collection` has accepted.

    `evaluator` is a name, or an object with the evaluator contract. `options` is reserved for what a collection may
    pass to its evaluator; it is empty.
    """

    name: str
    pattern: Pattern
    evaluator: str | object
    scoped: bool
    llm_readable: bool
    state_schema: dict[str, Any]
    questions: dict[str, Question]
    text: TextSettings = field(default_factory=TextSettings)
    options: dict[str, Any] = field(default_factory=dict)


def define_collection(
    *,
    name: str,
    pattern: str,
    evaluator: str | object,
    questions: Mapping[str, Question],
    scoped: bool = False,
    llm_readable: bool = False,
    state: Mapping[str, str] | type[BaseModel] | None = None,
    text: Mapping[str, Any] | None = None,
    **refused: object,
) -> Collection:
    """Define a collection; `state` is a type for each field, or a pydantic model; `text` is how texts are searched.

    Raises:
        InvalidDefinition: with all problems at once.
    """
    problems = [*_key_problems(refused, _KEYWORDS), *question_sets.problems(questions)]
    given = {"name": name, "pattern": pattern, "evaluator": evaluator, "scoped": scoped, "llm_readable": llm_readable}
    given |= {} if text is None else {"text": text}
    schema = _state_schema(state, problems)
    return _build(given, questions, schema, problems)


def collection_from_table(name: str, table: Mapping[str, Any]) -> Collection:
    """Define the collection of a `[collections.NAME]` table.

    Raises:
        InvalidDefinition: with all problems at once.
    """
    if not isinstance(table, Mapping):
        raise InvalidDefinition([f"collection {name!r:.80}: takes a table; write [collections.NAME]"])
    problems = _key_problems(table, _TABLE_KEYS)
    problems += [f"{key} is missing; write {fix}" for key, fix in _REQUIRED_KEYS.items() if key not in table]
    questions: dict[str, Question] = {}
    if "questions" in table:
        questions, found = question_sets.from_tables(table["questions"])
        problems += found
    schema = _state_schema_of_table(table, problems)
    return _build({"scoped": False, "llm_readable": False, **table, "name": name}, questions, schema, problems)


def check_together(collections: Sequence[Collection]) -> list[str]:
    """Return what is wrong between collections: one name twice, patterns that overlap."""
    return patterns.problems_together([(each.name, each.pattern) for each in collections])


def check_evaluator(
    collection: Collection | definitions.Definition,
    *,
    question_types: frozenset[str],
    options_max: int,
    levels_max: int,
    evaluator: str,
) -> list[str]:
    """Return what the evaluator named so cannot take of the collection's questions."""
    problems = []
    for name, question in collection.questions.items():
        about = f"collection '{collection.name}': question '{name}': evaluator '{evaluator}'"
        if question.type not in question_types:
            taken = ", ".join(sorted(question_types))
            problems.append(f"{about} takes no {question.type} (it takes {taken}); choose another evaluator or type")
        if isinstance(question, Choice) and len(question.options) > options_max:
            problems.append(f"{about} takes at most {options_max} options, not {len(question.options)}; drop some")
        if isinstance(question, Score) and len(question.levels) > levels_max:
            problems.append(f"{about} takes at most {levels_max} levels, not {len(question.levels)}; drop some")
    return problems


def definition_of(
    collection: Collection,
    *,
    evaluator_name: str,
    kind: str,
    model: str,
    identity: Mapping[str, Any],
    embedding: definitions.Embedding | None = None,
) -> definitions.Definition:
    """Return what the store keeps of a collection."""
    return definitions.Definition(
        name=collection.name,
        pattern=collection.pattern.text,
        scoped=collection.scoped,
        llm_readable=collection.llm_readable,
        state_schema=collection.state_schema,
        questions=collection.questions,
        evaluator=evaluator_name,
        kind=kind,
        model=model,
        fingerprint=definitions.fingerprint(collection.questions, identity),
        text=collection.text,
        embedding=embedding,
    )


def warnings(collection: Collection) -> list[str]:
    """Return what is allowed and still likely a mistake."""
    return [
        f"collection '{collection.name}': question '{name}': no option \"other\", so that every text is given one of"
        " the options; add one for what fits none"
        for name, question in collection.questions.items()
        if isinstance(question, Choice) and "other" not in {key.casefold() for key in question.options}
    ]


def _build(
    given: Mapping[str, Any], questions: Mapping[str, Question], schema: dict[str, Any], problems: list[str]
) -> Collection:
    name = given["name"]
    name_problem = names.collection_problem(name)
    pattern = _pattern(given["pattern"], problems) if "pattern" in given else None
    problems += [name_problem] if name_problem else []
    problems += _evaluator_problems(given["evaluator"]) if "evaluator" in given else []
    problems += [
        f"{flag} takes true or false, not {given[flag]!r:.80}"
        for flag in ("scoped", "llm_readable")
        if not isinstance(given[flag], bool)
    ]
    text, found = text_settings.from_table(given.get("text", {}), states.column_types(schema))
    problems += found
    if not problems:
        problems = columns.collisions(questions, schema["properties"])
    if problems or pattern is None:
        raise InvalidDefinition(f"collection {name!r:.80}: {problem}" for problem in problems)
    collection = Collection(
        name=name,
        pattern=pattern,
        evaluator=given["evaluator"],
        scoped=given["scoped"],
        llm_readable=given["llm_readable"],
        state_schema=schema,
        questions=dict(questions),
        text=text,
    )
    beyond = _limit_problems(collection)
    if beyond:
        raise InvalidDefinition(beyond)
    return collection


def _key_problems(given: Iterable[str], known: tuple[str, ...]) -> list[str]:
    return [_key_problem(key, known) for key in given if key not in known]


def _key_problem(key: str, known: tuple[str, ...]) -> str:
    if key in _ELSEWHERE:
        return f"'{key}' is not taken: {_ELSEWHERE[key]}"
    return f"{key!r:.80} is not taken{nearest(key, known)}; a collection has {', '.join(known)}"


def _pattern(text: str, problems: list[str]) -> Pattern | None:
    try:
        return patterns.parse_pattern(text)
    except ValueError as error:
        problems.append(f"pattern {text!r:.80}: {error}")
        return None


def _state_schema_of_table(table: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    if "state_model" not in table:
        return _state_schema(table.get("state"), problems)
    if "state" in table:
        problems.append("state and state_model say the same thing twice; keep one")
    try:
        return state_models.schema_of_model(state_models.load_model(table["state_model"]))
    except InvalidDefinition as error:
        problems += error.problems
        return states.object_schema({})


def _state_schema(state: object, problems: list[str]) -> dict[str, Any]:
    try:
        if state is None:
            return states.object_schema({})
        if isinstance(state, Mapping):
            return states.schema_of_types(state)
        if isinstance(state, type):
            return state_models.schema_of_model(state)
    except InvalidDefinition as error:
        problems += error.problems
    else:
        problems.append(f"state takes a type for each field or a pydantic model, not {state!r:.80}")
    return states.object_schema({})


def _evaluator_problems(evaluator: object) -> list[str]:
    if isinstance(evaluator, str):
        return [] if evaluator.strip() else ["evaluator is blank; write the name of an evaluator"]
    if isinstance(evaluator, type):
        return [f"{evaluator.__name__} is a class, not an evaluator; give an object of it"]
    lacking = [part for part in ("kind", "identity", "limits", "evaluate", "close") if not hasattr(evaluator, part)]
    if lacking:
        message = (
            f"{evaluator!r:.80} is not an evaluator, it has no {', '.join(lacking)}; give a name or an object that has"
        )
        return [message]
    return []


def _limit_problems(collection: Collection) -> list[str]:
    # An evaluator given by name is judged where the names are known; an object can be asked at once.
    if isinstance(collection.evaluator, str):
        return []
    evaluator: Any = collection.evaluator
    limits = evaluator.limits
    return check_evaluator(
        collection,
        question_types=limits.question_types,
        options_max=limits.options_max,
        levels_max=limits.levels_max,
        evaluator=evaluator.kind,
    )
