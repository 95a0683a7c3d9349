"""Tools out of questions: names, order, schemas of all formats, arguments as models send them, functions.

Method: definitions made in the test; the strict mode's rules are a checker in `strict_schemas`, JSON Schemas are read
by the jsonschema library.
"""

import copy
import inspect
import json
import typing
from typing import Any, Literal

import builders
import jsonschema
import pytest
import strict_schemas

from facetline.facets import errors
from facetline.facets.agents import arguments, descriptions, functions, schemas, tools
from facetline.facets.agents.tools import EXTRAS, Parameter, Tool
from facetline.facets.definitions import Definition
from facetline.facets.questions import boolean, choice, score

TOPICS = ("billing", "bug", "feature", "praise", "other")
SUPPORT = builders.definition(
    "support",
    questions={
        "topic": choice(ask="What is it about?", options={topic: f"About {topic}" for topic in TOPICS}),
        "urgent": boolean(ask="Today?"),
        "severity": score(ask="How bad?", levels=["small", "large"]),
    },
)
MANY = builders.definition("many", questions={"code": choice(ask="Which?", options={f"c{n}": "" for n in range(51)})})
SCOPED = builders.definition("scoped_ones", pattern="notes/**", scoped=True)
ALL = tools.tools_of([SUPPORT, MANY, SCOPED], allowed=EXTRAS)
FORMATS = schemas.FORMATS


def tool(name: str, listed: list[Tool] = ALL) -> Tool:
    """The tool of that name."""
    return next(each for each in listed if each.name == name)


SEARCH = tool("search_support")


def test_order_depends_on_names_alone():
    """Whatever order definitions and permissions come in, the list is the same: reading, searches by name, the rest."""
    again = tools.tools_of([SCOPED, MANY, SUPPORT], allowed=reversed(EXTRAS))

    assert again == ALL
    assert [each.name for each in ALL] == [
        *("list_collections", "list_facets", "get_document", "search_many", "search_scoped_ones", "search_support"),
        *("query_sql", "write_document", "delete_document", "reindex"),
    ]


def test_only_what_was_allowed_is_there():
    """Without permission there are reading tools alone, and each permission adds its own tool."""
    reading = tools.tools_of([SUPPORT])

    assert all(each.reads_only for each in reading)
    for extra in EXTRAS:
        more = {each.name for each in tools.tools_of([SUPPORT], allowed=[extra])} - {each.name for each in reading}
        assert len(more) == 1


def test_choices_are_enums_of_their_options():
    """A search has an argument for each choice question, whose values are exactly its options in the declared order."""
    properties = schemas.input_schema(SEARCH)["properties"]

    assert list(properties) == ["topic", "min_confidence", "filter", "sort", "limit", "cursor"]
    assert properties["topic"]["enum"] == list(TOPICS)
    assert (properties["limit"]["minimum"], properties["limit"]["maximum"]) == (1, 50)


def test_other_questions_are_named_in_the_filter():
    """Booleans, scores and own fields are no arguments; the filter's description says how to reach them."""
    said = SEARCH.by_name["filter"].description

    for column in (
        "urgent (true or false",
        "severity (number, 0 to 1",
        "severity_level",
        "state_title",
        "doc_written_at",
    ):
        assert column in said


def test_many_options_are_looked_up():
    """Above 50 options an argument is plain text, and says where its values are found."""
    parameter = tool("search_many").by_name["code"]

    assert parameter.values == ()
    assert "list_facets with collection='many' and facet='code'" in parameter.description


def test_a_schema_never_outgrows_strict_mode():
    """With more options in all than one schema takes, the largest choices become text until the rest fits."""
    options = {f"{'o' * 60}{n}": "" for n in range(50)}
    questions = {f"q{n:03}": choice(ask="?", options=options) for n in range(40)}
    made = tools.search_tool(builders.definition("wide", questions=questions))

    listed = [each for each in made.parameters if each.values]
    assert 0 < len(listed) < 40
    assert strict_schemas.problems(schemas.schema_of(made, "openai")) == []


def sizes(made: Tool) -> list[int]:
    """The bytes of a tool in each format as ASCII, the longest way to write JSON on one line."""
    return [len(json.dumps(schemas.schema_of(made, how))) for how in FORMATS]


def wide(questions: int, options: int, name: str = "wide", letter: str = "o", long: int = 20) -> Definition:
    """A collection with so many choice questions of so many options, each with a long question and descriptions."""
    described = {f"{letter * long}{n}": f"{letter * 20} number {n}, and what it means" for n in range(options)}
    asked = {f"q{n:03}": choice(ask=f"{letter * 200}?", options=described) for n in range(questions)}
    return builders.definition(name, questions=asked)


LARGE = [
    wide(6, 41),
    wide(6, 41, letter="字"),
    wide(128, 2),
    wide(128, 255),
    wide(128, 50, letter="😀"),
    wide(1, 255, long=240),
    wide(1, 50, letter="\u202e"),
    builders.definition(
        "c" * 63,
        questions={f"{'n' * 60}{n:03}": choice(ask="字" * 1_300, options={"a": "", "b": ""}) for n in range(128)},
    ),
]


@pytest.mark.parametrize("definition", LARGE, ids=lambda each: f"{len(each.questions)} questions")
@pytest.mark.parametrize("bytes_max", [tools.TOOL_BYTES_MAX, tools.SEARCH_BYTES_MIN])
def test_a_search_tool_keeps_within_its_bytes(definition: Definition, bytes_max: int):
    """However many questions and options there are, of whichever letters, a tool is bounded in every format."""
    made = tools.search_tool(definition, scope=True, bytes_max=bytes_max)

    assert max(sizes(made)) <= bytes_max
    assert strict_schemas.problems(schemas.schema_of(made, "openai")) == []
    assert set(made.by_name) >= set(definition.questions)


def test_all_search_tools_together_are_bounded():
    """The whole list keeps within its bytes for several of the largest collections, up to the least share of each."""
    for count in (1, 6, 24):
        many = [LARGE[3].model_copy(update={"name": f"wide{number:02}"}) for number in range(count)]
        made = tools.tools_of(many, allowed=EXTRAS)
        searching = [each for each in made if each.action == "search"]
        others = [each for each in made if each.action != "search"]
        assert sum(max(sizes(each)) for each in searching) <= tools.SEARCHES_BYTES_MAX
        assert max(max(sizes(each)) for each in others) <= tools.TOOL_BYTES_MAX


def test_room_goes_to_short_lists_first():
    """Six questions of 41 options keep what fits of the lists; the rest is looked up, and each is still an argument."""
    made = tools.search_tool(wide(6, 41))
    listed = [each for each in made.parameters if each.values]
    looked_up = [each for each in made.parameters if each.many and not each.values]

    assert len(listed) >= 4
    assert all("list_facets" in each.description for each in looked_up)
    assert len(tools.search_tool(wide(3, 41)).by_name["q000"].description) > 1_000  # with what options mean


def test_an_argument_without_room_is_understood():
    """A question that no schema lists is taken when it is given, and is not in a function's signature."""
    made = tools.search_tool(LARGE[-1], bytes_max=tools.SEARCH_BYTES_MIN)
    hidden = next(each.name for each in made.parameters if not each.is_listed)

    assert arguments.read(made, {hidden: "a"}) == {hidden: ("a",)}
    assert hidden not in inspect.signature(functions.function_of(made, lambda _n, _g: "")).parameters


@pytest.mark.parametrize("made", ALL, ids=lambda each: each.name)
def test_strict_mode_takes_every_tool(made: Tool):
    """OpenAI's form keeps all rules of strict mode."""
    assert strict_schemas.problems(schemas.schema_of(made, "openai")) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda parameters: parameters["required"].pop(),
        lambda parameters: parameters.pop("additionalProperties"),
        lambda parameters: parameters["properties"]["topic"].update(default="bug"),
        lambda parameters: parameters["properties"]["topic"].update(type="string"),
        lambda parameters: parameters["properties"]["topic"].update(enum=[None, *(str(n) for n in range(1_001))]),
    ],
)
def test_the_checker_of_strict_mode_sees_damage(damage: Any):
    """The checker refuses a schema with one rule broken, so its silence means something."""
    written = copy.deepcopy(schemas.schema_of(SEARCH, "openai"))
    damage(written["function"]["parameters"])

    assert strict_schemas.problems(written) != []


@pytest.mark.parametrize("made", ALL, ids=lambda each: each.name)
def test_schemas_are_valid(made: Tool):
    """The MCP's, Anthropic's and both of OpenAI's forms hold a valid JSON Schema of the same properties."""
    forms = {how: schemas.schema_of(made, how) for how in FORMATS}
    inner = [
        forms["mcp"]["inputSchema"],
        forms["anthropic"]["input_schema"],
        forms["openai"]["function"]["parameters"],
        forms["openai-responses"]["parameters"],
    ]

    for schema in inner:
        jsonschema.Draft202012Validator.check_schema(schema)
        assert list(schema["properties"]) == list(made.by_name)


CASES: list[dict[str, Any]] = [
    {},
    {"topic": "billing"},
    {"topic": "biling"},
    {"topic": 3},
    {"min_confidence": 0.8, "limit": 50},
    {"min_confidence": 1.5},
    {"limit": 0},
    {"limit": 51},
    {"limit": 2.5},
    {"limit": "ten"},
    {"filter": "urgent = true", "sort": "-severity", "cursor": "abc"},
    {"topics": "billing"},
    {"urgent": True},
]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_all_formats_take_the_same_arguments(given: dict[str, Any]):
    """What one format's schema takes the other's takes too, null standing for "not given", and so does the tool."""
    loose = jsonschema.Draft202012Validator(schemas.input_schema(SEARCH))
    strict = jsonschema.Draft202012Validator(schemas.schema_of(SEARCH, "openai")["function"]["parameters"])
    filled = {**dict.fromkeys(SEARCH.by_name), **given}

    assert loose.is_valid(given) == strict.is_valid(filled)
    assert taken(given) == loose.is_valid(given)
    assert taken(filled) == strict.is_valid(filled)


def taken(given: dict[str, Any]) -> bool:
    """Whether the tool takes the arguments."""
    try:
        arguments.read(SEARCH, given)
    except errors.InvalidQuery:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "biling"}, "'topic' cannot be 'biling' (did you mean 'billing'?); allowed: billing, bug, feature"),
        ({"topics": "bug"}, "has no argument 'topics' (did you mean 'topic'?); arguments: topic, min_confidence"),
        ({"min_confidence": "high"}, "'min_confidence' must be a number, not 'high'"),
        ({"limit": 51}, "'limit' is 51; it must be from 1 to 50"),
        ({"min_confidence": float("nan")}, "it must be from 0 to 1"),
        ({"topic": []}, "'topic' is an empty list"),
        ({"filter": "\ud800"}, "valid Unicode"),
        ([], "arguments must be a JSON object"),
    ],
    ids=str,
)
def test_wrong_arguments_are_explained(given: Any, said: str):
    """An argument that cannot be taken is named, with what would be right and the nearest match."""
    with pytest.raises(errors.InvalidQuery) as refused:
        arguments.read(SEARCH, given)

    assert said in refused.value.message


def test_several_options_and_none_are_taken():
    """A list of options is taken as any of them, `__missing__` as none, null as not given: no schema says so."""
    read = arguments.read(SEARCH, {"topic": ["billing", "__missing__"], "cursor": None})

    assert read == {"topic": ("billing", "__missing__")}


@pytest.mark.parametrize("given", [{}, {"uri": None}, {"uri": ""}], ids=str)
def test_a_missing_argument_is_named(given: dict[str, Any]):
    """A required argument that is not there, null or empty, is reported with what it is."""
    with pytest.raises(errors.InvalidQuery, match="'uri' is missing; The document's uri"):
        arguments.read(tool("get_document"), given)


@pytest.mark.parametrize("made", ALL, ids=lambda each: each.name)
@pytest.mark.parametrize("nothing", ["", None], ids=repr)
def test_empty_is_absent_in_every_argument(made: Tool, nothing: Any):
    """Empty text and null are arguments that were not given, in each argument of each tool."""
    given = {
        each.name: "x/y" if each.name == "uri" else each.values[0] if each.values else "x" for each in made.parameters
    }
    needed = {each.name: given[each.name] for each in made.parameters if each.required}

    assert arguments.read(made, {**{each.name: nothing for each in made.parameters}, **needed}) == needed


SPELLED: list[tuple[str, Any, Any]] = [
    ("integer", "3", 3),
    ("integer", " 3 ", 3),
    ("integer", "3.0", 3),
    ("integer", 3.0, 3),
    ("integer", [3], 3),
    ("integer", "", None),
    ("integer", "null", None),
    ("number", "0.8", 0.8),
    ("number", "1", 1),
    ("number", ".8", errors.InvalidQuery),
    ("number", "1e0", 1.0),
    ("number", "nan", errors.InvalidQuery),
    ("number", "Infinity", errors.InvalidQuery),
    ("number", "1_0", errors.InvalidQuery),
    ("number", "\u0663", errors.InvalidQuery),
    ("number", "9" * 5_000, errors.InvalidQuery),
    ("number", True, errors.InvalidQuery),
    ("integer", "3.5", errors.InvalidQuery),
    ("integer", {}, errors.InvalidQuery),
    ("integer", [3, 4], errors.InvalidQuery),
    ("boolean", "true", True),
    ("boolean", "False", False),
    ("boolean", 1, True),
    ("boolean", 0, False),
    ("boolean", "yes", True),
    ("boolean", " no ", False),
    ("boolean", "None", None),
    ("boolean", "perhaps", errors.InvalidQuery),
    ("boolean", 2, errors.InvalidQuery),
    ("string", ["x"], "x"),
    ("string", "null", "null"),
    ("string", 3, errors.InvalidQuery),
]


@pytest.mark.parametrize(("kind", "value", "read"), SPELLED, ids=lambda each: ascii(each)[:20])
def test_values_are_taken_as_models_spell_them(kind: Any, value: Any, read: Any):
    """A number or a yes in quotes, a whole number with a point and a value in a list are what they mean."""
    made = Tool("t", "search", "", "", (Parameter("x", kind, "", least=0, most=10 if kind != "string" else None),))
    if kind in {"string", "boolean"}:
        made = Tool("t", "search", "", "", (Parameter("x", kind, ""),))

    if read is errors.InvalidQuery:
        with pytest.raises(errors.InvalidQuery, match=r"'x' (must be|is)"):
            arguments.read(made, {"x": value})
    else:
        assert arguments.read(made, {"x": value}) == ({} if read is None else {"x": read})


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("billing", ("billing",)),
        (["billing"], ("billing",)),
        (["billing", "bug"], ("billing", "bug")),
        ('["billing", "bug"]', ("billing", "bug")),
        (' ["billing"]', ("billing",)),
        (["billing", "", None], ("billing",)),
        ("[]", errors.InvalidQuery),
        ('["biling"]', errors.UnknownValue),
        ("[billing]", errors.UnknownValue),
        ('{"a": 1}', errors.UnknownValue),
        ("[" * 100_000, errors.UnknownValue),
        ([["billing"]], errors.InvalidQuery),
        ([""], None),
    ],
    ids=lambda each: str(each)[:30],
)
def test_options_are_taken_alone_and_in_lists(value: Any, read: Any):
    """One option, a list of them, and the list as text are taken; what is in it is checked as ever."""
    if isinstance(read, type):
        with pytest.raises(read):
            arguments.read(SEARCH, {"topic": value})
    else:
        assert arguments.read(SEARCH, {"topic": value}) == ({} if read is None else {"topic": read})


def test_options_that_look_like_something_else_are_taken():
    """An option that is a number, a list or holds unseen characters is found as it is written, bare or shown."""
    odd = builders.definition("odd", questions={"q": choice(ask="?", options={"3": "", '["x"]': "", "a\u202eb": ""})})
    made = tools.search_tool(odd)

    for given, read in ((3, "3"), ('["x"]', '["x"]'), ("a\u202eb", "a\u202eb"), ("a\\u202eb", "a\u202eb")):
        assert arguments.read(made, {"q": given}) == {"q": (read,)}


def test_a_state_is_taken_as_an_object():
    """Own fields as a JSON object are what they are as its text."""
    write = tool("write_document")

    assert arguments.read(write, {"uri": "a/b", "state": {"title": "x"}})["state"] == '{"title": "x"}'


def test_scope_is_an_argument_only_where_it_can_be():
    """A scope can be named for a scoped collection by a caller without one of its own, and nowhere else."""
    own = tools.tools_of([SUPPORT, SCOPED], scoped_caller=True)

    assert "scope" in tool("search_scoped_ones").by_name
    assert "scope" not in tool("search_support").by_name
    assert all("scope" not in each.by_name for each in own)


def test_long_names_stay_within_bounds():
    """A collection's name of any length gives a tool's name of at most 64 characters, different for different ones."""
    names = [tools.search_name("c" * 62 + end) for end in "ab"]

    assert [len(name) for name in names] == [64, 64]
    assert len(set(names)) == 2


def test_descriptions_are_bounded():
    """However long questions, options and fields are, descriptions keep within what APIs take."""
    options = {f"option{n}": "long " * 500 for n in range(50)}
    levels = [f"level {n}" + " long" * 200 for n in range(10)]
    questions = {f"q{n}": choice(ask="long " * 500, options=options) for n in range(10)}
    questions |= {f"s{n}": score(ask="long " * 500, levels=levels) for n in range(10)}  # type: ignore[dict-item]
    made = tools.search_tool(builders.definition("wordy", questions=questions))

    assert len(made.description) <= descriptions.DESCRIPTION_CHARS_MAX
    assert max(len(each.description) for each in made.parameters) <= descriptions.PARAMETER_CHARS_MAX


def test_hints_say_what_a_tool_does():
    """Reading tools are hinted as such, those that overwrite, delete or clear as destructive, none as reaching out."""
    hints = {each.name: schemas.annotations(each) for each in ALL}

    assert {name for name, each in hints.items() if not each["readOnlyHint"]} == {
        *("write_document", "delete_document", "reindex")
    }
    assert all(each["destructiveHint"] != each["readOnlyHint"] for each in hints.values())
    assert not any(each["openWorldHint"] for each in hints.values())


def test_functions_have_types_and_docstrings():
    """A tool as a function has a typed signature, required arguments first, and an Args section; it calls the tool."""
    ran: list[tuple[str, dict[str, Any]]] = []

    def run(name: str, given: dict[str, Any]) -> str:
        ran.append((name, given))
        return "text"

    search = functions.function_of(SEARCH, run)
    get = functions.function_of(tool("get_document"), run)

    assert search.__name__ == "search_support"
    assert typing.get_type_hints(search)["topic"] == Literal["billing", "bug", "feature", "praise", "other"] | None
    assert inspect.signature(get).parameters["uri"].default is inspect.Parameter.empty
    assert "Args:\n    topic: What is it about?" in (search.__doc__ or "")
    assert (search(topic="bug", limit=3), get("support/1")) == ("text", "text")
    assert ran == [("search_support", {"topic": "bug", "limit": 3}), ("get_document", {"uri": "support/1"})]


def test_a_function_refuses_what_it_does_not_have():
    """An unknown argument of a function is a TypeError, as of any Python function."""
    search = functions.function_of(SEARCH, lambda _name, _given: "text")

    with pytest.raises(TypeError):
        search(topics="bug")


def test_every_parameter_kind_has_a_type():
    """Each kind of parameter has a Python type."""
    kinds = typing.get_args(tools.Kind)

    for kind in kinds:
        made = Tool("t", "search", "", "", (Parameter("x", kind, ""),))
        assert inspect.signature(functions.function_of(made, lambda _n, _g: "")).parameters["x"].annotation is not None
