"""Definitions, whatever is in them: JSON round trip, stable fingerprints, patterns against a naive search."""

import itertools
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from facetline.facets import definitions
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Uri
from facetline.facets.errors import InvalidEvent
from facetline.facets.questions import Question, boolean, choice, score
from facetline.facets.schema import patterns, states

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
questions = st.one_of(
    st.builds(boolean, ask=texts),
    st.builds(score, ask=texts, levels=st.lists(texts, min_size=2, max_size=5)),
    st.builds(choice, ask=texts, options=st.dictionaries(texts, texts, min_size=2, max_size=5)),
)
question_sets = st.dictionaries(names, questions, min_size=1, max_size=4)
identities = st.fixed_dictionaries(
    {
        "kind": names,
        "model": texts,
        "parameters": st.dictionaries(names, st.none() | st.booleans() | st.integers() | texts | st.just(0.1)),
        "version": texts,
        "validator": texts,
    }
)
schemas = st.dictionaries(names, st.sampled_from(states.STATE_TYPES), max_size=4).map(
    lambda types: states.object_schema({name: states.json_type(kind, nullable=True) for name, kind in types.items()})
)
all_definitions = st.builds(
    Definition,
    name=names,
    pattern=texts,
    scoped=st.booleans(),
    llm_readable=st.booleans(),
    state_schema=schemas,
    questions=question_sets,
    evaluator=texts,
    kind=names,
    model=texts,
    fingerprint=texts,
)

# Two letters and few segments: small enough to try every path there is.
LETTERS = "ab"
PATHS = ["/".join(path) for length in range(1, 6) for path in itertools.product(LETTERS, repeat=length)]
all_patterns = st.builds(
    lambda literal, wildcard: patterns.parse_pattern("/".join([*literal, wildcard])),
    st.lists(st.sampled_from(LETTERS), max_size=3),
    st.sampled_from(["*", "**"]),
)


def shuffled(mapping: dict[str, Any], order: random.Random) -> dict[str, Any]:
    """Return the same mapping in another order."""
    items = list(mapping.items())
    order.shuffle(items)
    return dict(items)


def reordered(question: Question, order: random.Random) -> Question:
    """Return the same question, its options in another order if it has any."""
    if question.type != "choice":
        return question
    return choice(ask=question.ask, options=shuffled(question.options, order))


@given(all_definitions)
def test_definition_round_trip(definition: Definition) -> None:
    """A definition comes back from its JSON exactly, the order of questions, options and fields included."""
    text = definition.model_dump_json()
    back = Definition.model_validate_json(text)

    assert back == definition
    assert back.model_dump_json() == text
    assert Definition.model_validate(definition.model_dump(mode="json")).model_dump_json() == text


@given(question_sets, identities, st.randoms(use_true_random=False))
def test_fingerprint_ignores_order(asked: dict[str, Question], identity: dict[str, Any], order: random.Random) -> None:
    """The order in which questions, options and parameters are declared is of no account."""
    other = {name: reordered(question, order) for name, question in shuffled(asked, order).items()}
    parameters = shuffled(identity["parameters"], order)
    fingerprint = definitions.fingerprint(other, {**shuffled(identity, order), "parameters": parameters})

    assert fingerprint == definitions.fingerprint(asked, identity)


@given(question_sets, question_sets, identities)
def test_fingerprint_tells_questions_apart(
    one: dict[str, Question], other: dict[str, Question], identity: dict[str, Any]
) -> None:
    """Two sets of questions have one fingerprint exactly when they ask the same."""
    same = definitions.fingerprint(one, identity) == definitions.fingerprint(other, identity)

    assert same == (one == other)


@given(question_sets, identities, identities)
def test_fingerprint_tells_evaluators_apart(
    asked: dict[str, Question], one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Two evaluators have one fingerprint exactly when their answers depend on the same."""
    same = definitions.fingerprint(asked, one) == definitions.fingerprint(asked, other)

    # By representation: True and 1 are equal in Python and not in JSON.
    assert same == (sorted_repr(one) == sorted_repr(other))


def sorted_repr(identity: dict[str, Any]) -> str:
    """Return the identity as text, in an order of its own."""
    return repr(sorted({**identity, "parameters": sorted(identity["parameters"].items())}.items()))


@given(all_patterns, all_patterns)
def test_overlap_is_exact(one: patterns.Pattern, other: patterns.Pattern) -> None:
    """Patterns overlap exactly when some path matches both."""
    both = [path for path in PATHS if one.match(path) is not None and other.match(path) is not None]

    assert patterns.overlap(one, other) == bool(both)


@given(st.lists(st.tuples(all_patterns, st.booleans()), max_size=6), st.sampled_from(PATHS), st.sampled_from(["", "s"]))
def test_locate_is_the_naive_search(declared: list[tuple[patterns.Pattern, bool]], path: str, scope: str) -> None:
    """Looking a uri up finds what trying every pattern finds, and only with the scope that the collection wants."""
    apart: list[tuple[patterns.Pattern, bool]] = []
    for pattern, scoped in declared:
        if not any(patterns.overlap(pattern, taken) for taken, _ in apart):
            apart.append((pattern, scoped))
    active = Definitions(_definition(f"c{number}", *each) for number, each in enumerate(apart))
    uri = Uri(f"@{scope}/{path}" if scope else path, scope, path)
    naive = [
        (f"c{number}", pattern.match(path))
        for number, (pattern, scoped) in enumerate(apart)
        if pattern.match(path) is not None and scoped == bool(scope)
    ]
    try:
        definition, key = active.locate(uri)
        found: list[tuple[str, str | None]] = [(definition.name, key)]
    except InvalidEvent:
        found = []

    assert found == naive


def _definition(name: str, pattern: patterns.Pattern, scoped: bool) -> Definition:
    return Definition(
        name=name,
        pattern=pattern.text,
        scoped=scoped,
        llm_readable=False,
        state_schema=states.object_schema({}),
        questions={"urgent": boolean(ask="?")},
        evaluator="e",
        kind="k",
        model="m",
        fingerprint="f",
    )
