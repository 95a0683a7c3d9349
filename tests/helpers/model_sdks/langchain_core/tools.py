"""As much of LangChain as the page uses: a tool out of a function, by its signature, types and docstring."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

import pydantic


class Tool:
    """A function that a model can call, with the schema of its arguments."""

    def __init__(self, function: Callable[..., str]) -> None:
        hints = typing.get_type_hints(function)
        given = inspect.signature(function).parameters.values()
        fields: dict[str, Any] = {
            each.name: (hints[each.name], ... if each.default is inspect.Parameter.empty else each.default)
            for each in given
        }
        self.name = function.__name__
        self.description = inspect.getdoc(function)
        self.args_schema = pydantic.create_model(self.name, **fields)
        self._function = function

    def invoke(self, given: dict[str, Any]) -> str:
        """Check the arguments and call the function."""
        checked = self.args_schema.model_validate(given)
        return self._function(**checked.model_dump())


def tool(function: Callable[..., str]) -> Tool:
    """Return a tool out of a function."""
    return Tool(function)
