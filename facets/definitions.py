"""Definitions: collections as the store knows them, and which of them a uri belongs to.

A definition is a collection without its evaluator object: plain data that survives a JSON round trip exactly. Workers,
API and views go by the active definitions in the store, whatever their own file says.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from facetline.facets import questions
from facetline.facets.documents import EventReason, Uri
from facetline.facets.errors import InvalidDefinition, InvalidEvent
from facetline.facets.questions import Question
from facetline.facets.schema import patterns, states
from facetline.facets.text_settings import TextSettings

_IDENTITY = frozenset({"kind", "model", "parameters", "version", "validator"})
_PATTERNS_SHOWN_MAX = 20


class Embedding(BaseModel):
    """Which embedder a collection's texts get vectors from; `fingerprint` is what those depend on.

    `min_similarity` is the cosine from which a text matches a query, unless the query sets its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedder: str
    kind: str
    model: str
    fingerprint: str
    min_similarity: float


class Definition(BaseModel):
    """One collection as the store keeps it; `evaluator` is a name, `fingerprint` what answers depend on.

    `embedding` None: its texts have no vectors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    pattern: str
    scoped: bool
    llm_readable: bool
    state_schema: dict[str, Any]
    questions: dict[str, Question]
    evaluator: str
    kind: str
    model: str
    fingerprint: str
    text: TextSettings = TextSettings()
    embedding: Embedding | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is as it was before there was such a setting: processes of older versions read this, too."""
        found: dict[str, Any] = serialize(self)
        if self.text == TextSettings():
            found.pop("text", None)
        if self.embedding is None:
            found.pop("embedding", None)
        return found

    @cached_property
    def check_state(self) -> states.StateCheck:
        """`states.check_state` for this collection, compiled once."""
        return states.compile_check(self.state_schema)


def fingerprint(asked: Mapping[str, Question], identity: Mapping[str, Any]) -> str:
    """Return the hash of everything that an answer depends on, in hexadecimal.

    `identity` is the evaluator's: its kind, model, parameters and version, and the answer validator's version. The
    order of questions and options is of no account; that of a score's levels is.

    Raises:
        ValueError: `identity` holds something else (a name, an address or a limit must never get in) or too little.
    """
    if set(identity) != _IDENTITY:
        raise ValueError(f"an identity has {sorted(_IDENTITY)}, got {sorted(identity)}")
    depends_on = {"questions": questions.canonical(asked), "evaluator": dict(identity)}
    text = json.dumps(depends_on, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Definitions:
    """A set of active definitions that never changes.

    Raises:
        InvalidDefinition: two have one name or overlapping patterns, so that a uri could belong to both.
    """

    def __init__(self, definitions: Iterable[Definition]) -> None:
        listed = tuple(definitions)
        found = {definition.name: patterns.parse_pattern(definition.pattern) for definition in listed}
        problems = patterns.problems_together([(each.name, patterns.Pattern(each.pattern)) for each in listed])
        if problems:
            raise InvalidDefinition(problems)
        self.by_name: Mapping[str, Definition] = MappingProxyType({each.name: each for each in listed})
        # A pattern is found by its literal prefix: one look-up for "*", one for each segment of the path for "**".
        self._one_segment = {found[each.name].prefix: each for each in listed if not found[each.name].deep}
        self._many_segments = {found[each.name].prefix: each for each in listed if found[each.name].deep}

    def locate(self, uri: Uri) -> tuple[Definition, str]:
        """Return the definition that a uri belongs to, and its key there.

        Raises:
            InvalidEvent: `unknown_collection`; the message names the patterns and how a scope is written.
        """
        path = uri.path
        end = path.rfind("/") + 1
        definition = self._one_segment.get(path[:end])
        if definition is None and self._many_segments:
            definition, end = self._locate_deep(path)
        if definition is None:
            raise InvalidEvent(EventReason.UNKNOWN_COLLECTION, self._unknown(uri))
        if definition.scoped != bool(uri.scope):
            raise InvalidEvent(EventReason.UNKNOWN_COLLECTION, _wrong_scope(uri, definition))
        return definition, path[end:]

    def _locate_deep(self, path: str) -> tuple[Definition | None, int]:
        end = 0
        while True:
            definition = self._many_segments.get(path[:end])
            if definition is not None:
                return definition, end
            end = path.find("/", end) + 1
            if not end:
                return None, 0

    def _unknown(self, uri: Uri) -> str:
        if not self.by_name:
            return f"uri {uri.text!r:.80}: no collection is defined yet; define one and apply it"
        shown = [_written(each) for each in itertools.islice(self.by_name.values(), _PATTERNS_SHOWN_MAX)]
        more = len(self.by_name) - len(shown)
        rest = f" and {more} more" if more else ""
        deeper = any(uri.path.startswith(prefix) for prefix in self._one_segment if prefix and prefix != uri.path)
        hint = "; '*' is one segment: for keys with slashes, end the pattern in '**'" if deeper else ""
        return f"uri {uri.text!r:.80}: no collection has a pattern that fits; there are {', '.join(shown)}{rest}{hint}"


def _wrong_scope(uri: Uri, definition: Definition) -> str:
    if definition.scoped:
        return (
            f"uri {uri.text!r:.80}: collection '{definition.name}' is scoped; write '@SCOPE/{uri.path:.80}'"
            " with the scope it belongs to"
        )
    return f"uri {uri.text!r:.80}: collection '{definition.name}' has no scopes; write '{uri.path:.80}'"


def _written(definition: Definition) -> str:
    scope = "@SCOPE/" if definition.scoped else ""
    return f"{scope}{definition.pattern} (collection '{definition.name}')"
