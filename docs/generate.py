#!/usr/bin/env python3
"""Write what can be generated of the documentation: parts of reference.md between two marks, and the JSON Schemas.

Run it after a change of a command, a setting or an event: `.venv/bin/python docs/generate.py`. A test fails when the
files are not what this would write.
"""

import json
import re
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from typer.main import get_command

from facetline.streams.classify.call import CallLimits
from facetline.streams.cli.main import app
from facetline.streams.monitor.metrics import CATALOGUE
from facetline.streams.serve.metrics import SERVED
from facetline.streams.settings import KafkaSettings, Settings
from facetline.streams.wire import json_schemas

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "reference.md"
METRICS = [*CATALOGUE.values(), *SERVED.values()]
COMMON = {"--json", "--config", "--folder", "--help"}
"""Options that the page explains once, for all commands."""
MARK = re.compile(r"(<!-- generated: (?P<name>[\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the files."""
    for path, text in wanted().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def wanted() -> dict[Path, str]:
    """Return what each generated file must hold."""
    files = {DOCS / "schemas" / f"{kind}.json": as_json(schema) for kind, schema in json_schemas.schemas().items()}
    return {**files, PAGE: filled(PAGE.read_text(encoding="utf-8"), parts())}


def as_json(schema: dict[str, Any]) -> str:
    """Return a schema as the file's text."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def filled(page: str, made: dict[str, str]) -> str:
    """Return the page with every generated part as it must be; a part of an unknown name is an error."""
    return MARK.sub(lambda found: f"{found[1]}{made[found['name']]}\n{found[3]}", page)


def parts() -> dict[str, str]:
    """Return every part by its name."""
    made = {f"command {name}": command_part(name, command) for name, command in commands().items()}
    return {**made, "settings": settings_part(), "limits": limits_part(), "metrics": metrics_part()}


def commands() -> dict[str, Any]:
    """Return every command that does something by its name, such as `jobs list`."""
    found: dict[str, Any] = {}
    waiting = [("", get_command(app))]
    while waiting:
        name, command = waiting.pop(0)
        below = getattr(command, "commands", None)
        if below is None:
            found[name] = command
        else:
            waiting += [(f"{name} {each}".strip(), one) for each, one in below.items()]
    return found


def command_part(name: str, command: Any) -> str:
    """Return a command's usage, its sentence, and a table of its arguments and options."""
    arguments = [argument(each) for each in command.params if each.param_type_name == "argument"]
    lines = [f"`{' '.join(['facetline', name, *arguments, '[OPTIONS]'])}`", "", command.help, ""]
    own = [each for each in command.params if not COMMON.issuperset(each.opts)]
    if own:
        lines += ["| | default | |", "|---|---|---|", *(parameter_row(each) for each in own)]
    return "\n".join(lines).rstrip()


def argument(parameter: Any) -> str:
    """Return an argument as usage lines have it."""
    shown = f"{parameter.metavar} …" if parameter.nargs != 1 else parameter.metavar
    return shown if parameter.required else f"[{shown}]"


def parameter_row(parameter: Any) -> str:
    """Return an argument's or option's row."""
    if parameter.param_type_name == "argument":
        shown = f"`{argument(parameter)}`"
    else:
        shown = ", ".join(f"`{each}`" for each in parameter.opts)
        shown += "" if getattr(parameter, "is_flag", False) else f" {value_of(parameter.type_descriptor.annotation)}"
    default = "" if parameter.default in (None, False) or callable(parameter.default) else f"`{parameter.default}`"
    needed = "required" if parameter.required and parameter.param_type_name == "option" else default
    return cells(shown, needed, parameter.help or "")


def value_of(annotation: Any) -> str:
    """Return what an option takes."""
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f"`{each}`" for each in typing.get_args(annotation))
    return {int: "number", float: "number", Path: "path"}.get(annotation, "text")


def settings_part() -> str:
    """Return the table of all settings."""
    rows = ["| setting | environment | takes | default | |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *settings_rows(Settings, "", "FACETLINE_")])


def settings_rows(model: type[BaseModel], before: str, prefix: str) -> list[str]:
    """Return a row for each setting of a model."""
    rows = []
    for name, field in model.model_fields.items():
        if field.annotation is KafkaSettings:
            rows += settings_rows(KafkaSettings, f"{name}.", f"{prefix}{name.upper()}__")
        else:
            shown = (f"`{before}{name}`", f"`{prefix}{name.upper()}`", takes(field), shown_default(field))
            rows.append(cells(*shown, field.description or ""))
    return rows


def takes(field: FieldInfo) -> str:
    """Return what values a setting takes, in words."""
    kinds = [each for each in typing.get_args(field.annotation) or (field.annotation,) if each is not type(None)]
    if typing.get_origin(field.annotation) is typing.Literal:
        return ", ".join(f"`{each}`" for each in kinds)
    if typing.get_origin(field.annotation) is dict:
        return "JSON object"
    if typing.get_origin(field.annotation) is tuple:
        return "JSON list"
    known = {str: "text", int: "number", float: "number", Path: "path", SecretStr: "secret"}
    bounds = [bound(each) for each in field.metadata]
    return " ".join([known[kinds[0]], *filter(None, bounds)])


def bound(metadata: Any) -> str:
    """Return a limit of a number as text."""
    signs = {"gt": "> ", "ge": "≥ ", "lt": "< ", "le": "≤ "}
    return " ".join(f"{sign}{getattr(metadata, name):g}" for name, sign in signs.items() if hasattr(metadata, name))


def shown_default(field: FieldInfo) -> str:
    """Return a setting's default, nothing where there is none."""
    default = field.get_default(call_default_factory=True, validated_data={})
    return "" if default is None else f"`{json.dumps(default) if isinstance(default, dict | tuple) else default}`"


MEANINGS = {
    "concurrency": "calls at once; 64 for `recorded`",
    "requests_per_minute": "calls started in a minute; without it no limit",
    "tokens_per_minute": "tokens in a minute, in and out; estimated before a call, corrected after it; default none",
    "max_usd_per_day": "dollars that all calls of a UTC day may cost, over all workers; without it no limit",
    "call_s": "seconds that one call may take; a claim is leased for this and `lease_margin_s` more",
    "lease_margin_s": "seconds to begin a call after its claim, and to store its answer",
    "tries_max": "tries of one document; after that it is `failed`",
    "retry_wait_max_s": "seconds that one document's waits may add up to",
    "retry_first_s": "longest first wait; each further one may be twice as long",
    "retry_most_s": "longest wait",
    "probe_first_s": "seconds until an evaluator that does not answer is asked again; doubles",
    "probe_most_s": "longest such pause",
}


def limits_part() -> str:
    """Return the table of the keys that bound an evaluator's calls."""
    rows = ["| key | default | |", "|---|---|---|"]
    for field in fields(CallLimits):
        default = "" if field.default is None else f"`{field.default:g}`"
        rows.append(cells(f"`{field.name}`", default, MEANINGS[field.name]))
    return "\n".join(rows)


def metrics_part() -> str:
    """Return the table of a worker's metrics, and a server's."""
    rows = ["| metric | type | labels | |", "|---|---|---|---|"]
    found = [(f"`{each.name}`", each.kind, " ".join(map("`{}`".format, each.labels)), each.says) for each in METRICS]
    return "\n".join([*rows, *(cells(*row) for row in found)])


def cells(*texts: str) -> str:
    """Return a table's row."""
    escaped = (text.replace("|", r"\|") for text in texts)
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    main()
