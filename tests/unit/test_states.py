"""State: the types a field can have, the check of a write's state, and the models that declare one."""

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import duckdb
import jsonschema
import pytest
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NaiveDatetime,
    PastDatetime,
    PrivateAttr,
    RootModel,
    StringConstraints,
    computed_field,
    field_validator,
    model_validator,
)

from facetline.facets.documents import EventReason
from facetline.facets.errors import InvalidDefinition, InvalidEvent
from facetline.facets.schema import names, state_models, states

TICKET = states.schema_of_types(
    {"title": "string", "priority": "integer", "price": "number", "vip": "boolean", "due": "datetime"}
)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, {}),
        ({"title": None, "vip": None}, {}),
        ({"title": ""}, {"title": ""}),
        ({"title": "na\u00efve \U0001f600"}, {"title": "na\u00efve \U0001f600"}),
        ({"priority": 2**63 - 1}, {"priority": 2**63 - 1}),
        ({"priority": -(2**63)}, {"priority": -(2**63)}),
        ({"priority": 3.0}, {"priority": 3}),
        ({"price": 3}, {"price": 3.0}),
        ({"price": 1e300}, {"price": 1e300}),
        ({"vip": False}, {"vip": False}),
        ({"due": "2026-11-29T18:30:00Z"}, {"due": "2026-11-29T18:30:00Z"}),
        ({"due": "2026-11-29t18:30:00.5z"}, {"due": "2026-11-29T18:30:00.500000Z"}),
        ({"due": "2026-11-29 18:30:00+02:00"}, {"due": "2026-11-29T16:30:00Z"}),
        ({"due": "2026-01-01T00:30:00+01:00"}, {"due": "2025-12-31T23:30:00Z"}),
        ({"due": "2026-11-29T18:30:00.123456789-00:00"}, {"due": "2026-11-29T18:30:00.123456Z"}),
        ({"due": "0001-01-01T00:00:00Z"}, {"due": "0001-01-01T00:00:00Z"}),
    ],
)
def test_a_valid_state_gets_its_canonical_form(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """A fitting state becomes its one canonical form: UTC, numbers as floats, no nulls."""
    canonical = states.check_state(TICKET, state)

    assert canonical == expected
    assert {name: type(value) for name, value in canonical.items()} == {n: type(v) for n, v in expected.items()}


def test_state_order_is_the_schemas() -> None:
    """Two states that differ in the order of their fields become the same JSON."""
    canonical = states.check_state(TICKET, {"vip": True, "title": "x"})

    assert list(canonical) == ["title", "vip"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"title": 3}, "'title' takes text, got an integer"),
        ({"title": ["x"]}, "'title' takes text, got a list"),
        ({"priority": "high"}, "'priority' takes an integer, got text"),
        ({"priority": True}, "'priority' takes an integer, got a boolean"),
        ({"priority": 1.5}, "'priority' takes an integer, got a fraction"),
        ({"priority": 2**63}, "'priority' is outside the 64-bit integers"),
        ({"priority": -(2**63) - 1}, "'priority' is outside the 64-bit integers"),
        ({"priority": float("inf")}, "'priority' takes an integer"),
        ({"price": "3"}, "'price' takes a number, got text"),
        ({"price": True}, "'price' takes a number, got a boolean"),
        ({"price": float("nan")}, "'price' is not a finite number"),
        ({"price": float("-inf")}, "'price' is not a finite number"),
        ({"price": 10**400}, "'price' is too large"),
        ({"price": 2**53 + 1}, "'price' has more digits"),
        ({"vip": 1}, "'vip' takes true or false, got an integer"),
        ({"vip": "true"}, "'vip' takes true or false, got text"),
        ({"due": 1764441000}, "'due' takes a datetime as text, got an integer"),
        ({"due": "2026-11-29"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-11-29T18:30:00"}, "'due' is not a datetime of RFC 3339 with its offset"),
        ({"due": "2026-11-29T18:30Z"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "20261129T183000Z"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-W48-7T18:30:00Z"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-11-29T18:30:00+0200"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-11-29T18:30:00+24:00"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "\u0662026-11-29T18:30:00Z"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-11-29T18:30:00Z!"}, "'due' is not a datetime of RFC 3339"),
        ({"due": "2026-02-30T18:30:00Z"}, "'due' is no moment"),
        ({"due": "2026-11-29T24:30:00Z"}, "'due' is no moment"),
        ({"due": "2016-12-31T23:59:60Z"}, "leap second"),
        ({"due": "0001-01-01T00:00:00+01:00"}, "'due' is no moment"),
        ({"titel": "x"}, "'titel' is unknown (did you mean 'title'?); declared: title, priority"),
        ({"titel": None}, "'titel' is unknown"),
        ({3: "x"}, "3 is unknown"),
        ({"title": 3, "priority": "high"}, "'title' takes text, got an integer; state 'priority' takes an integer"),
        (["title"], "state takes an object, got a list"),
        (None, "state takes an object, got null"),
    ],
)
def test_an_invalid_state_is_refused(state: Any, expected: str) -> None:
    """A state that does not fit is `invalid_state`; the message names the fields at fault."""
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(TICKET, state)

    assert refusal.value.reason == EventReason.INVALID_STATE
    assert expected in refusal.value.message


@pytest.mark.parametrize(
    ("text", "expected"), [("a\0b", "'title' holds a NUL"), ("a\ud800b", "'title' holds half a surrogate pair")]
)
def test_state_text_that_cannot_be_stored_is_refused(text: str, expected: str) -> None:
    """Text that a store cannot keep is `invalid_text`."""
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(TICKET, {"title": text})

    assert refusal.value.reason == EventReason.INVALID_TEXT
    assert expected in refusal.value.message


def test_state_refusal_holds_no_value() -> None:
    """A refusal goes to logs and dead letters: it never repeats what the field held."""
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(TICKET, {"priority": "s3cret", "due": "s3cret", "vip": "s3cret", "price": "s3cret"})

    assert "s3cret" not in refusal.value.message


def test_state_refusal_is_bounded() -> None:
    """However many fields are at fault, the message stays short and can be stored."""
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(TICKET, {f"\ud800\0{number}" * 100: 1 for number in range(1000)})

    assert len(refusal.value.message.encode()) < 2000
    assert "\0" not in refusal.value.message


def test_a_collection_without_state_takes_an_empty_one() -> None:
    """A collection that declares no state takes an empty one and names no field as near."""
    schema = states.object_schema({})
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(schema, {"title": "x"})

    assert "the collection declares no state" in refusal.value.message
    assert states.check_state(schema, {}) == {}


def test_each_field_gets_a_column_type() -> None:
    """The view learns one of five types for each field, in the order of their declaration."""
    assert list(states.column_types(TICKET).items()) == [
        ("title", "string"),
        ("priority", "integer"),
        ("price", "number"),
        ("vip", "boolean"),
        ("due", "datetime"),
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({"title": "text"}, "'text' is no state type; write one of string, integer"),
        ({"title": "sting"}, "'sting' is no state type (did you mean 'string'?)"),
        ({"title": str}, "is no state type"),
        ({"title": ["string"]}, "is no state type"),
        ({"Title": "string"}, "state 'Title': a name is a small letter"),
        ({"facets": "string"}, "state 'facets': the name is reserved"),
        ({"indexed_as": "integer"}, "state 'indexed_as': the name is reserved"),
        ({"order": "string"}, "state 'order': 'order' is a reserved word of DuckDB"),
        ({f"field{number}": "string" for number in range(129)}, "129 fields, at most 128"),
    ],
)
def test_a_field_that_is_no_column_is_refused(types: Mapping[str, Any], expected: str) -> None:
    """A field that cannot be a column is refused with the mend."""
    with pytest.raises(InvalidDefinition) as refusal:
        states.schema_of_types(types)

    assert expected in refusal.value.message


def test_types_refusal_is_bounded() -> None:
    """A type that is a whole text by mistake does not fill the screen."""
    with pytest.raises(InvalidDefinition) as refusal:
        states.schema_of_types({"title": "x" * 10_000})

    assert len(refusal.value.message) < 500


def test_types_all_problems_at_once() -> None:
    """Every field at fault is named in one refusal."""
    with pytest.raises(InvalidDefinition) as refusal:
        states.schema_of_types({"Title": "string", "price": "money", "facets": "string"})

    assert len(refusal.value.problems) == 3


def test_reserved_words_are_duckdbs() -> None:
    """The shipped list is exactly the words that the installed DuckDB does not take bare as a column."""
    connection = duckdb.connect()
    words = connection.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall()

    def refused(word: str) -> bool:
        try:
            rows = connection.execute(f'SELECT {word} FROM (SELECT 7 AS "{word}") AS t WHERE {word} = 7').fetchall()
        except (duckdb.ParserException, duckdb.BinderException):
            return True
        return rows != [(7,)]

    assert {word for word, _ in words if refused(word)} == names.DUCKDB_RESERVED
    assert {word for word, category in words if category == "reserved"} <= names.DUCKDB_RESERVED
    connection.close()


class Mood(StrEnum):
    """An enumeration of texts."""

    CALM = "calm"
    ANGRY = "angry"


class Mixed(Enum):
    """An enumeration of two types."""

    ONE = 1
    TWO = "two"


class Ticket(BaseModel):
    """A model with everything that can be enforced."""

    model_config = ConfigDict(frozen=True)

    title: str = Field(max_length=10, description="A few words")
    code: Annotated[str, Field(pattern="^[A-Z]+$", min_length=2)] | None = None
    priority: int | None = Field(default=None, ge=1, le=5)
    price: Annotated[float, Field(gt=0)] | None = None
    vip: bool | None = None
    due: AwareDatetime | None = None
    seen: datetime | None
    mood: Mood | None = None
    kind: Literal["bug", "wish"] | None = None
    magic: Literal[7] | None = None
    dozen: Annotated[int, Field(multiple_of=12)] | None = None
    _cache: int = PrivateAttr(default=3)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        """Not part of what is taken."""
        return self.title.upper()


def test_fields_of_a_model_become_columns() -> None:
    """A model's fields become typed columns; what it computes does not."""
    assert states.column_types(state_models.schema_of_model(Ticket)) == {
        "title": "string",
        "code": "string",
        "priority": "integer",
        "price": "number",
        "vip": "boolean",
        "due": "datetime",
        "seen": "datetime",
        "mood": "string",
        "kind": "string",
        "magic": "integer",
        "dozen": "integer",
    }


FITTING = {
    "title": "x" * 10,
    "code": "AB",
    "priority": 5,
    "price": 0.5,
    "due": "2026-11-29T18:30:00Z",
    "mood": "calm",
    "kind": "bug",
    "magic": 7,
    "dozen": 24,
}


def test_model_enforced_where_it_fits() -> None:
    """A state that the model takes is taken, with its optional fields null or absent."""
    schema = state_models.schema_of_model(Ticket)

    assert states.check_state(schema, FITTING) == FITTING
    assert states.check_state(schema, {"title": "x", "code": None, "seen": None, "kind": None}) == {"title": "x"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"title": "x" * 11}, "'title' breaks its constraint maxLength 10"),
        ({"title": None}, "'title' is required"),
        ({"code": "A"}, "'code' breaks its constraint minLength 2"),
        ({"code": "ab"}, "'code' breaks its constraint pattern"),
        ({"priority": 0}, "'priority' breaks its constraint minimum 1"),
        ({"priority": 6}, "'priority' breaks its constraint maximum 5"),
        ({"priority": "5"}, "'priority' takes an integer"),
        ({"price": 0}, "'price' breaks its constraint exclusiveMinimum 0"),
        ({"mood": "glad"}, "'mood' breaks its constraint enum"),
        ({"kind": "joke"}, "'kind' breaks its constraint enum"),
        ({"magic": 8}, "'magic' breaks its constraint enum"),
        ({"dozen": 13}, "'dozen' breaks its constraint multipleOf 12"),
        ({"due": "2026-11-29"}, "'due' is not a datetime"),
        ({"shout": "X"}, "'shout' is unknown"),
    ],
)
def test_model_enforced_where_it_does_not_fit(change: Mapping[str, Any], expected: str) -> None:
    """Every constraint of the model holds for every write."""
    schema = state_models.schema_of_model(Ticket)
    with pytest.raises(InvalidEvent) as refusal:
        states.check_state(schema, {**FITTING, **change})

    assert expected in refusal.value.message


def test_model_schema_is_json_schema() -> None:
    """What is stored is a valid JSON Schema that judges states as we do, null included."""
    schema = state_models.schema_of_model(Ticket)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    assert validator.is_valid(FITTING)
    assert validator.is_valid({"title": "x", "kind": None, "magic": None, "mood": None})
    assert not validator.is_valid({"title": "x", "kind": "joke"})
    assert not validator.is_valid({})
    assert schema["properties"]["title"]["description"] == "A few words"


def _upper(value: str) -> str:
    return value.upper()


class FieldValidator(BaseModel):
    """Refused: a validator of a field."""

    title: str | None = None

    @field_validator("title")
    @classmethod
    def check(cls, value: str | None) -> str | None:
        """Change nothing."""
        return value


class BeforeField(BaseModel):
    """Refused: a validator before a field."""

    title: Annotated[str, BeforeValidator(_upper)] | None = None


class AfterField(BaseModel):
    """Refused: a validator after a field."""

    title: Annotated[str, AfterValidator(_upper)] | None = None


class AfterModel(BaseModel):
    """Refused: a validator after the model."""

    title: str | None = None

    @model_validator(mode="after")
    def check(self) -> "AfterModel":
        """Change nothing."""
        return self


class BeforeModel(BaseModel):
    """Refused: a validator before the model."""

    title: str | None = None

    @model_validator(mode="before")
    @classmethod
    def check(cls, value: Any) -> Any:
        """Change nothing."""
        return value


class PostInit(BaseModel):
    """Refused: code of its own after each check."""

    title: str | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Do nothing."""


class OwnInit(BaseModel):
    """Refused: an initialiser of its own."""

    title: str | None = None

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)


class Stripped(BaseModel):
    """Refused: changes what is written."""

    title: Annotated[str, StringConstraints(strip_whitespace=True)] | None = None


class StrippedAll(BaseModel):
    """Refused: changes what is written."""

    model_config = ConfigDict(str_strip_whitespace=True)

    title: str | None = None


class Open(BaseModel):
    """Refused: takes unknown keys."""

    model_config = ConfigDict(extra="allow")

    title: str | None = None


class Inner(BaseModel):
    """A model inside another."""

    title: str | None = None


class Nested(BaseModel):
    """Refused: an object is no column."""

    inner: Inner | None = None


class Itself(BaseModel):
    """Refused: a model inside itself is no column."""

    inner: "Itself | None" = None


class Lists(BaseModel):
    """Refused: a list is no column."""

    tags: list[str] | None = None


class Unions(BaseModel):
    """Refused: two types are no column."""

    title: int | str | None = None


class Whatever(BaseModel):
    """Refused: any type is no column."""

    title: Any = None


class Filled(BaseModel):
    """Refused: a default is not filled in."""

    title: str = "untitled"


class FilledByCall(BaseModel):
    """Refused: a default is not computed."""

    title: str | None = Field(default_factory=lambda: None)


class Aliased(BaseModel):
    """Refused: two names for one field."""

    title: str | None = Field(default=None, alias="headline")


class Naive(BaseModel):
    """Refused: RFC 3339 has an offset."""

    due: NaiveDatetime | None = None


class Past(BaseModel):
    """Refused: JSON Schema has no clock."""

    due: PastDatetime | None = None


class Reserved(BaseModel):
    """Refused: names of ours."""

    facets: str | None = None
    indexed_as: int | None = None


class BadName(BaseModel):
    """Refused: no name of a column."""

    dueDate: datetime | None = None  # noqa: N815 (that is the point)


class MixedEnum(BaseModel):
    """Refused: values of two types."""

    kind: Mixed | None = None


class UnreadablePattern(BaseModel):
    """Refused: a pattern that pydantic's engine reads and Python's does not."""

    title: Annotated[str, Field(pattern=r"^\p{L}+$")] | None = None


class Extended(BaseModel):
    """Refused: a keyword that nothing enforces."""

    title: str | None = Field(default=None, json_schema_extra={"contentEncoding": "base64"})


class Rooted(RootModel[str]):
    """Refused: no fields."""


class Plain:
    """Refused: no pydantic model."""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (FieldValidator, "field 'title': a validator in Python is not enforced"),
        (BeforeField, "field 'title': a validator in Python is not enforced"),
        (AfterField, "field 'title': a validator in Python is not enforced"),
        (AfterModel, "a validator of the whole model is not enforced"),
        (BeforeModel, "a validator of the whole model is not enforced"),
        (PostInit, "its own __init__ or model_post_init is not enforced"),
        (OwnInit, "its own __init__ or model_post_init is not enforced"),
        (Stripped, "field 'title': strip_whitespace is not part of its JSON Schema"),
        (StrippedAll, "the setting str_strip_whitespace of its model_config"),
        (Open, "the setting extra of its model_config"),
        (Nested, "field 'inner': its type (model) fits no column"),
        (Itself, "field 'inner': its type (model) fits no column"),
        (Lists, "field 'tags': its type (list) fits no column"),
        (Unions, "field 'title': its type (union) fits no column"),
        (Whatever, "field 'title': its type (any) fits no column"),
        (Filled, "field 'title': a default is not filled in"),
        (FilledByCall, "field 'title': a default is not filled in"),
        (Aliased, "field 'title': an alias is not taken"),
        (Naive, "field 'due': tz_constraint is not part of its JSON Schema"),
        (Past, "field 'due': now_op is not part of its JSON Schema"),
        (Reserved, "state 'facets': the name is reserved"),
        (Reserved, "state 'indexed_as': the name is reserved"),
        (BadName, "state 'dueDate': a name is a small letter"),
        (MixedEnum, "field 'kind': its values are not of one type"),
        (UnreadablePattern, "field 'title': its pattern cannot be read"),
        (Extended, "field 'title': contentEncoding of its JSON Schema cannot be enforced"),
        (Rooted, "it has a root type instead of fields"),
        (Plain, "a state model is a pydantic model"),
        (Ticket(title="x", seen=None), "a state model is a pydantic model (a class)"),
    ],
)
def test_a_model_beyond_its_json_schema_is_refused(model: Any, expected: str) -> None:
    """A model that means more than its JSON Schema, or whose fields are no columns, is refused with the mend."""
    with pytest.raises(InvalidDefinition) as refusal:
        state_models.schema_of_model(model)

    assert expected in refusal.value.message


def test_a_model_with_undefined_references_is_refused() -> None:
    """A model that refers to what is not defined yet is refused, not crashed on."""

    class Unfinished(BaseModel):
        """Refers to nothing."""

        title: "Missing | None" = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidDefinition, match="state model Unfinished is not complete"):
        state_models.schema_of_model(Unfinished)


def test_model_with_values_of_an_enum() -> None:
    """What a model makes of an Enum in Python is of no account."""

    class Valued(BaseModel):
        """Keeps the bare values."""

        model_config = ConfigDict(use_enum_values=True)
        mood: Mood | None = None
        other: Mood | None = None

    assert states.column_types(state_models.schema_of_model(Valued)) == {"mood": "string", "other": "string"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("state_shop", "is not of the form 'module:Class'"),
        ("state_shop:", "is not of the form 'module:Class'"),
        ("state_shop:Order()", "is not of the form 'module:Class'"),
        (7, "is not of the form 'module:Class'"),
        ("state_shop.nowhere:Order", "module state_shop.nowhere cannot be imported"),
        ("..state_shop:Order", "cannot be imported"),
        ("state_shop:Nothing", "state_shop has no pydantic model Nothing"),
        ("state_shop:number", "state_shop has no pydantic model number"),
        ("state_broken:Order", "module state_broken cannot be imported"),
    ],
)
def test_a_missing_state_model_is_refused(path: Any, expected: str, tmp_path: Path) -> None:
    """A state_model that cannot be had is refused with what is missing."""
    with _modules(tmp_path), pytest.raises(InvalidDefinition) as refusal:
        state_models.load_model(path)

    assert expected in refusal.value.message


def test_a_state_model_is_loaded_by_module_and_class(tmp_path: Path) -> None:
    """`module:Class` names a pydantic model on Python's path."""
    with _modules(tmp_path):
        model = state_models.load_model("state_shop:Order")

    assert states.column_types(state_models.schema_of_model(model)) == {"number": "integer"}


class _modules:  # noqa: N801 (reads as the function it stands for)
    """Two modules on Python's path for a while: one good, one that fails when imported."""

    def __init__(self, folder: Path) -> None:
        (folder / "state_shop.py").write_text(
            "from pydantic import BaseModel\nnumber = 7\nclass Order(BaseModel):\n    number: int | None = None\n"
        )
        (folder / "state_broken.py").write_text("undefined_name\n")
        self._folder = str(folder)

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self._folder)
        for name in ("state_shop", "state_broken"):
            sys.modules.pop(name, None)


def test_state_check_is_quick() -> None:
    """A state of three fields is checked in well under a tenth of a millisecond: 100,000s of writes wait for it."""
    schema = states.schema_of_types({"title": "string", "priority": "integer", "due": "datetime"})
    state = {"title": "Charged twice", "priority": 3, "due": "2026-11-29T18:30:00+02:00"}
    states.check_state(schema, state)
    start = time.process_time()
    for _ in range(2000):
        states.check_state(schema, state)
    took_s = (time.process_time() - start) / 2000

    assert took_s < 100e-6
