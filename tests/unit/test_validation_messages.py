"""Messages about values of a wrong type or size."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from facetline.facets.validation_messages import OURS, message_of


class Everything(BaseModel):
    """A field of each kind that is taken."""

    whole: Annotated[int, Field(ge=1, le=200)] = 1
    number: Annotated[float, Field(gt=0, lt=5, allow_inf_nan=False)] = 1
    flag: bool = True
    text: Annotated[str, Field(min_length=2, max_length=3)] = "ab"
    one: Literal["a", "b", "c"] = "a"
    several: Annotated[list[int], Field(min_length=1, max_length=2)] = [1]
    table: dict[str, int] = {}
    checked: str = ""
    day: Annotated[str, Field(pattern="^x$")] = "x"

    @field_validator("checked")
    @classmethod
    def _check(cls, value: str) -> str:
        raise ValueError(f"{value} does not do")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("whole", "many", "must be a whole number"),
        ("whole", 1.5, "must be a whole number"),
        ("whole", None, "must be a whole number"),
        ("whole", 0, "must be at least 1"),
        ("whole", 201, "must be at most 200"),
        ("whole", "9" * 5_000, "must be a smaller whole number"),
        ("number", "x", "must be a number"),
        ("number", [], "must be a number"),
        ("number", "nan", "must be a finite number"),
        ("number", 0, "must be more than 0.0"),
        ("number", 5, "must be less than 5.0"),
        ("flag", "perhaps", "must be true or false"),
        ("flag", [], "must be true or false"),
        ("text", 3, "must be text"),
        ("text", "a", "must have at least 2 characters"),
        ("text", "abcd", "must have at most 3 characters"),
        ("one", "d", "must be 'a', 'b' or 'c'"),
        ("several", 3, "must be a list"),
        ("several", [], "must have at least 1 items"),
        ("several", [1, 2, 3], "must have at most 2 items"),
        ("table", 3, "must be an object"),
        ("checked", "this", "this does not do"),
        ("day", "y", "String must match pattern '^x$'"),
    ],
)
def test_a_value_is_refused_in_our_words(field: str, value: Any, message: str) -> None:
    """What a value has to be is one short clause, without pydantic's words."""
    with pytest.raises(ValidationError) as raised:
        Everything.model_validate({field: value})

    assert message_of(raised.value.errors()[0]) == message


def test_a_field_that_is_missing_is_required() -> None:
    """An absent field is named as such."""

    class Needs(BaseModel):
        name: str

    with pytest.raises(ValidationError) as raised:
        Needs.model_validate({})

    assert message_of(raised.value.errors()[0]) == "is required"
    assert not any("Input" in ours for ours in OURS.values())
