"""What facets documents have, as a file to keep beside a test: one object a line, sorted by uri, and how two differ.

Pure. A document is `{"status", "reason", "facets"}`, with facet values as everywhere; its numbers and times are not in
it, because how often a document changed while it was answered is no part of what was answered.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
Documents = Mapping[str, Document]
SHOWN_MAX = 20
"""Differences shown; the others are only counted."""
KEYS = ("uri", "status", "reason", "facets")


class InvalidFacetsFile(ValueError):
    """A line of the file is no document."""


def encode(found: Documents) -> str:
    """Return the file's text."""
    lines = [
        {"uri": uri, **{name: found[uri].get(name) for name in KEYS[1:] if found[uri].get(name) is not None}}
        for uri in sorted(found)
    ]
    return "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)


def decode(text: str) -> dict[str, Document]:
    """Return a file's documents by their uris.

    Raises:
        InvalidFacetsFile: naming the line.
    """
    found: dict[str, Document] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError as error:
            raise InvalidFacetsFile(f"line {number} is not one JSON object: {error}") from error
        if not isinstance(data, dict) or not isinstance(data.get("uri"), str) or set(data) - set(KEYS):
            raise InvalidFacetsFile(f"line {number} is not {{{', '.join(KEYS)}}}")
        found[data["uri"]] = {name: data.get(name) for name in KEYS[1:]}
    return found


def differences(expected: Documents, found: Documents) -> list[str]:
    """Return a line for each document that differs, sorted by uri; none when both say the same."""
    lines = []
    for uri in sorted({*expected, *found}):
        if uri not in found:
            lines.append(f"{uri}: is not there; expected {_short(expected[uri])}")
        elif uri not in expected:
            lines.append(f"{uri}: was not expected; got {_short(found[uri])}")
        else:
            message = list(_document_differences(expected[uri], found[uri]))
            if message:
                lines.append(f"{uri}: {'; '.join(message)}")
    return lines


def _document_differences(expected: Document, found: Document) -> Iterator[str]:
    for name in ("status", "reason"):
        if expected.get(name) != found.get(name):
            yield f"{name}: expected {expected.get(name)}, got {found.get(name)}"
    wanted, given = expected.get("facets") or {}, found.get("facets") or {}
    for question in sorted({*wanted, *given}):
        if wanted.get(question) != given.get(question):
            yield f"{question}: {_value_difference(wanted.get(question), given.get(question))}"


def _value_difference(wanted: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> str:
    """Say how two facet values differ: shortly if that shows it, else by the members that do."""
    short = _answer(wanted), _answer(given)
    if short[0] != short[1] or wanted is None or given is None:
        return f"expected {short[0]}, got {short[1]}"
    names = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
    parts = (f"{name} expected {json.dumps(wanted.get(name))}, got {json.dumps(given.get(name))}" for name in names)
    return ", ".join(parts)


def _short(document: Document) -> str:
    facets = document.get("facets") or {}
    message = " ".join(f"{question}={_answer(value)}" for question, value in sorted(facets.items()))
    return " ".join(filter(None, [str(document.get("status")), document.get("reason"), message]))


def _answer(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "nothing"
    fields = {"choice": value.get("choice"), "score": value.get("score"), "boolean": value.get("value")}
    confidence = value.get("confidence")
    return f"{fields.get(str(value.get('type')))}" + ("" if confidence is None else f" (confidence {confidence})")
