"""Tools as Python functions with typed signature and docstring, as agent frameworks expect. Pure."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from facetline.facets.agents.tools import Parameter, Tool

_TYPES: dict[str, Any] = {"string": str, "number": float, "integer": int, "boolean": bool}


def function_of(tool: Tool, run: Callable[[str, dict[str, Any]], str]) -> Callable[..., str]:
    """Return a tool as a function that returns text."""
    signature = signature_of(tool)

    def call(*args: Any, **named: Any) -> str:
        return run(tool.name, dict(signature.bind(*args, **named).arguments))

    _dress(call, tool, signature)
    return call


def coroutine_of(
    tool: Tool, run: Callable[[str, dict[str, Any]], Coroutine[Any, Any, str]]
) -> Callable[..., Coroutine[Any, Any, str]]:
    """Return a tool as a coroutine function that returns text."""
    signature = signature_of(tool)

    async def call(*args: Any, **named: Any) -> str:
        return await run(tool.name, dict(signature.bind(*args, **named).arguments))

    _dress(call, tool, signature)
    return call


def signature_of(tool: Tool) -> inspect.Signature:
    """Return a tool's signature: required parameters first, then the optional ones with default None."""
    ordered = sorted(tool.listed, key=lambda parameter: not parameter.required)
    return inspect.Signature([_parameter(each) for each in ordered], return_annotation=str)


def _parameter(parameter: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    of: Any = Literal.__getitem__(parameter.values) if parameter.values else _TYPES[parameter.kind]
    if parameter.required:
        return inspect.Parameter(parameter.name, kind, annotation=of)
    return inspect.Parameter(parameter.name, kind, default=None, annotation=of | None)


def _dress(call: Any, tool: Tool, signature: inspect.Signature) -> None:
    arguments = "".join(f"\n    {each.name}: {each.description}" for each in tool.listed)
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = tool.description + (f"\n\nArgs:{arguments}\n" if arguments else "")
    call.__signature__ = signature
    call.__annotations__ = {
        **{name: each.annotation for name, each in signature.parameters.items()},
        "return": signature.return_annotation,
    }
