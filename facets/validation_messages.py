"""Messages about values of a wrong type or size, in the words of the docs instead of pydantic's."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CHARS_MAX = 300
WHOLE, NUMBER, BOOLEAN = "must be a whole number", "must be a number", "must be true or false"
OURS = {
    "int_parsing": WHOLE,
    "int_parsing_size": "must be a smaller whole number",
    "int_type": WHOLE,
    "int_from_float": WHOLE,
    "float_parsing": NUMBER,
    "float_type": NUMBER,
    "finite_number": "must be a finite number",
    "bool_parsing": BOOLEAN,
    "bool_type": BOOLEAN,
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "missing": "is required",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
}
"""By pydantic's type of error; what stands in braces is in its context."""


def message_of(problem: "ErrorDetails") -> str:
    """Return what is wrong with a value, without its place; of other types of error, pydantic's text."""
    ours = OURS.get(problem["type"])
    if ours is not None:
        return ours.format_map(problem.get("ctx", {}))[:CHARS_MAX]
    text = problem["msg"].removeprefix("Value error, ")
    return text.replace("Input should", "must", 1).replace(" should ", " must ", 1)[:CHARS_MAX]
