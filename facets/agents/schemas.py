"""Tool schemas in the formats of MCP, OpenAI and Anthropic, with equal meaning. Pure.

MCP and Anthropic omit optional arguments. OpenAI's strict mode requires every argument, and null means "not given";
`arguments.read` accepts both from any client.
"""

from typing import Any, Literal

from facetline.facets.agents.tools import Parameter, Tool

Format = Literal["mcp", "openai", "openai-responses", "anthropic"]
FORMATS: tuple[Format, ...] = ("mcp", "openai", "openai-responses", "anthropic")


def schema_of(tool: Tool, how: Format) -> dict[str, Any]:
    """Return a tool in one of the formats."""
    match how:
        case "openai":
            return {"type": "function", "function": _function(tool)}
        case "openai-responses":
            return {"type": "function", **_function(tool)}
        case "anthropic":
            return {"name": tool.name, "description": tool.description, "input_schema": input_schema(tool)}
        case "mcp":
            return {
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": input_schema(tool),
                "annotations": annotations(tool),
            }


def input_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {each.name: _property(each) for each in tool.listed},
        "additionalProperties": False,
    }
    required = [each.name for each in tool.listed if each.required]
    return {**schema, "required": required} if required else schema


def annotations(tool: Tool) -> dict[str, Any]:
    """Return MCP's annotations; no tool reaches outside of this pipeline (`openWorldHint`)."""
    return {
        "title": tool.title,
        "readOnlyHint": tool.reads_only,
        "destructiveHint": tool.destroys,
        "idempotentHint": tool.action != "reindex",
        "openWorldHint": False,
    }


def _function(tool: Tool) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {each.name: _strict(each) for each in tool.listed},
        "required": [each.name for each in tool.listed],
        "additionalProperties": False,
    }
    return {"name": tool.name, "description": tool.description, "strict": True, "parameters": parameters}


def _property(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"type": parameter.kind, "description": parameter.description}
    if parameter.values:
        found["enum"] = list(parameter.values)
    if parameter.least is not None:
        found["minimum"] = parameter.least
    if parameter.most is not None:
        found["maximum"] = parameter.most
    return found


def _strict(parameter: Parameter) -> dict[str, Any]:
    found = _property(parameter)
    if parameter.required:
        return found
    found["type"] = [parameter.kind, "null"]
    if parameter.values:
        found["enum"] = [*parameter.values, None]
    return found
