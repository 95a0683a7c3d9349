"""What the configuration file says: collections, evaluators, embedders and their limits, checked as a whole.

`facetline collections check` and every start-up come through `load_project`, so both refuse the same things, and all
problems are reported at once.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from facetline.evaluators import call_file, factory
from facetline.evaluators.contract import Evaluator
from facetline.evaluators.embedder_call_file import EmbedderFromFile
from facetline.evaluators.embedders.contract import Embedder
from facetline.evaluators.recorded import evaluator as recorded
from facetline.facets import collections as collections_
from facetline.facets import errors
from facetline.facets.collections import Collection, definition_of
from facetline.facets.definitions import Definition, Embedding
from facetline.streams import embedder_tables, limit_keys
from facetline.streams import settings as settings_
from facetline.streams.classify.call import CallLimits
from facetline.streams.embedder_tables import EmbedderTables
from facetline.streams.limit_keys import LIMITS
from facetline.streams.settings import Settings

TABLES = ("settings", "evaluators", "embedders", "collections")
KIND_LIMITS: dict[str, dict[str, Any]] = {"recorded": {"concurrency": 64}}
"""Limits by evaluator kind where the general ones do not fit: a recording answers at once, so only slots bound it."""


@dataclass(frozen=True)
class Project:
    """A checked configuration. `definitions` are this file's own; the active ones are in the store."""

    settings: Settings
    definitions: tuple[Definition, ...]
    evaluators: Mapping[str, Evaluator]
    limits: Mapping[str, CallLimits]
    warnings: tuple[str, ...]
    embedders: Mapping[str, Embedder] = field(default_factory=dict)
    embedder_limits: Mapping[str, CallLimits] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Definition]:
        """The definitions by collection name."""
        return {definition.name: definition for definition in self.definitions}

    async def close(self) -> None:
        """Close evaluators and embedders."""
        for evaluator in self.evaluators.values():
            await evaluator.close()
        for embedder in self.embedders.values():
            await embedder.close()


def load_project(settings: Settings) -> Project:
    """Read and check the configuration file.

    Raises:
        InvalidSettings: there is no file, or it cannot be read.
        InvalidDefinition: naming every collection, question, evaluator and embedder with a problem, and the way out.
    """
    path = settings.config
    if not path.exists():
        raise errors.InvalidSettings(f"there is no {path} here; make one with 'facetline init' or pass --config")
    file = settings_.read_file(path)
    problems = [
        f"{path}: unknown table or key '{name}'{errors.nearest(name, TABLES)}; it takes {', '.join(TABLES)}"
        for name in file
        if name not in TABLES
    ]
    embedders = embedder_tables.read(file.get("embedders", {}))
    reading = _Reading(path.resolve().parent, [*problems, *embedders.problems], embedders)
    reading.take_evaluators(file.get("evaluators", {}))
    reading.take_collections(file.get("collections", {}))
    definitions = reading.definitions()
    if reading.problems:
        raise errors.InvalidDefinition(reading.problems)
    warnings = tuple(warning for each in reading.collections for warning in collections_.warnings(each))
    evaluators, wrapped = _with_recorded_calls(settings, reading.evaluators, embedders.embedders)
    limits, embedder_limits = reading.limits, embedders.limits
    if settings.calls == "replay":  # a provider's limits are none of a file's
        limits, embedder_limits = _unbounded(limits), _unbounded(embedder_limits)
    return Project(settings, tuple(definitions), evaluators, limits, warnings, wrapped, embedder_limits)


def _unbounded(limits: Mapping[str, CallLimits]) -> dict[str, CallLimits]:
    return {
        name: replace(each, requests_per_minute=None, tokens_per_minute=None, max_usd_per_day=None)
        for name, each in limits.items()
    }


def _with_recorded_calls(
    settings: Settings, evaluators: Mapping[str, Evaluator], embedders: Mapping[str, Embedder]
) -> tuple[Mapping[str, Evaluator], Mapping[str, Embedder]]:
    """Put the file of recorded calls before all that call, where the settings want it; `recorded` needs none.

    Raises:
        InvalidSettings: calls are to be replayed, and there is no file.
    """
    if settings.calls == "live":
        return evaluators, embedders
    if settings.calls == "replay" and not settings.calls_file.exists():
        raise errors.InvalidSettings(
            f"calls = 'replay', but there is no {settings.calls_file}; make it with FACETLINE_CALLS=record, or name"
            " another one with FACETLINE_CALLS_FILE"
        )
    file = call_file.CallFile(settings.calls_file, settings.calls)
    asked = {
        name: each if each.kind == recorded.KIND else call_file.FromFile(each, file)
        for name, each in evaluators.items()
    }
    return asked, {name: EmbedderFromFile(each, file) for name, each in embedders.items()}


class _Reading:
    """The file half read: what is known so far, and every problem met."""

    def __init__(self, folder: Path, problems: list[str], embedders: EmbedderTables) -> None:
        self.folder = folder
        self.problems = problems
        self.embedders = embedders
        self.collections: list[Collection] = []
        self.evaluators: dict[str, Evaluator] = {}
        self.limits: dict[str, CallLimits] = {}
        self._refused: set[str] = set()
        self._limits_alone: set[str] = set()

    def take_evaluators(self, tables: Any) -> None:
        """Make the evaluators of `[evaluators.NAME]`."""
        if not isinstance(tables, dict):
            self.problems.append("evaluators: write one [evaluators.NAME] table for each")
            return
        for name, table in tables.items():
            if not isinstance(table, dict):
                self.problems.append(f"evaluator '{name}': write it as a table [evaluators.{name}]")
                self._refused.add(name)
                continue
            self._take_evaluator(name, table)

    def _take_evaluator(self, name: str, table: Mapping[str, Any]) -> None:
        own = {key: value for key, value in table.items() if key not in LIMITS}
        known = factory.MAKERS.get(str(table.get("kind")), (("kind",), None))[0]
        meant_as_limits = limit_keys.near(f"evaluator '{name}'", own, known)
        problems = list(meant_as_limits.values())
        own = {key: value for key, value in own.items() if key not in meant_as_limits}
        given = {key: value for key, value in table.items() if key in LIMITS}
        try:
            self.limits[name] = limit_keys.limits(
                f"evaluator '{name}'", {**KIND_LIMITS.get(str(table.get("kind")), {}), **given}
            )
        except errors.InvalidDefinition as error:
            problems.extend(error.problems)
        if table and not own:  # limits of an evaluator that comes with a collection in Python
            self._limits_alone.add(name)
        else:
            try:
                self.evaluators[name] = factory.evaluator_from_table(name, own, folder=self.folder)
            except errors.InvalidDefinition as error:
                problems.extend(error.problems)
        if problems:
            self.problems.extend(problems)
            self._refused.add(name)

    def take_collections(self, given: Any) -> None:
        """Take the collections of `[collections.NAME]`, or of the Python module that is named instead."""
        if isinstance(given, str):
            self._import_collections(given)
        elif isinstance(given, dict):
            if any(isinstance(table, dict) and "state_model" in table for table in given.values()):
                self._look_beside_the_file()
            for name, table in given.items():
                try:
                    self.collections.append(collections_.collection_from_table(name, table))
                except errors.InvalidDefinition as error:
                    self.problems.extend(error.problems)
                    named = table.get("evaluator") if isinstance(table, dict) else None
                    if isinstance(named, str):
                        self._known_evaluator(name, named)
        else:
            self.problems.append('collections: write [collections.NAME] tables, or "module:name" of a Python list')
        if not self.collections and not self.problems:
            self.problems.append("there is no collection; write a table [collections.NAME] (see docs/concepts.md)")
        self.problems.extend(collections_.check_together(self.collections))

    def _import_collections(self, target: str) -> None:
        module_name, _, attribute = target.partition(":")
        self._look_beside_the_file()
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except errors.InvalidDefinition as error:
            self.problems.extend(error.problems)
            return
        except (ImportError, AttributeError, ValueError) as error:
            self.problems.append(f'collections = "{target}": {error}; write "module:name" of a list of collections')
            return
        for each in found if isinstance(found, list | tuple) else [found]:
            if isinstance(each, Collection):
                self.collections.append(each)
            else:
                self.problems.append(f'collections = "{target}": {each!r:.80} was not made by define_collection')

    def _look_beside_the_file(self) -> None:
        """Let modules of the configuration file's folder be imported; a console script does not look there."""
        folder = str(self.folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)

    def definitions(self) -> list[Definition]:
        """Put collections and evaluators together."""
        found = []
        for collection in self.collections:
            name = self._evaluator_name(collection)
            if name is None:
                continue
            evaluator = self.evaluators[name]
            limits = evaluator.limits
            problems = collections_.check_evaluator(
                collection,
                question_types=limits.question_types,
                options_max=limits.options_max,
                levels_max=limits.levels_max,
                evaluator=name,
            )
            self.problems.extend(problems)
            identity = evaluator.identity
            found.append(
                definition_of(
                    collection,
                    evaluator_name=name,
                    kind=identity.kind,
                    model=identity.model,
                    identity=factory.fingerprint_identity(identity),
                    embedding=self._embedding(collection),
                )
            )
        self.problems.extend(
            f"evaluator '{name}' has limits but no kind: write its kind, or name the table after the collection whose"
            " Python evaluator it limits"
            for name in sorted(self._limits_alone - set(self.evaluators))
        )
        return found

    def _embedding(self, collection: Collection) -> Embedding | None:
        """Return where the collection's texts get vectors from; None, with a problem, where its embedder is not known.

        A floor of the collection's own stands before the embedder's.
        """
        given, floor = collection.text.embedder, collection.text.min_similarity
        if given is None:
            return None
        embedder = self.embedders.embedders.get(given)
        if embedder is None:
            self.problems.extend(self.embedders.unknown(collection.name, given))
            return None
        return Embedding(
            embedder=given,
            kind=embedder.kind,
            model=embedder.model,
            fingerprint=embedder.fingerprint,
            min_similarity=embedder.min_similarity if floor is None else floor,
        )

    def _evaluator_name(self, collection: Collection) -> str | None:
        """Return the name under which the collection's evaluator is known; None, with a problem, without one."""
        given = collection.evaluator
        if isinstance(given, str):
            return self._known_evaluator(collection.name, given)
        if not isinstance(given, Evaluator):
            self.problems.append(
                f"collection '{collection.name}': evaluator {given!r:.80} is neither a name nor an object with the"
                " evaluator contract (docs/evaluators.md)"
            )
            return None
        name = next((known for known, evaluator in self.evaluators.items() if evaluator is given), collection.name)
        if self.evaluators.setdefault(name, given) is not given:
            self.problems.append(
                f"collection '{collection.name}': its evaluator is an object, which is known by the collection's name,"
                f" but [evaluators.{name}] is another one; rename that table"
            )
            return None
        self.limits.setdefault(name, CallLimits())
        return name

    def _known_evaluator(self, collection: str, given: str) -> str | None:
        """Return the name of an evaluator that has a table; None, with a problem, without one."""
        if given in self.evaluators:
            return given
        if given not in self._refused | self._limits_alone:
            known = ", ".join(sorted(self.evaluators)) or "none"
            guess = errors.nearest(given, self.evaluators)
            self.problems.append(
                f"collection '{collection}': evaluator '{given}' is not defined{guess}; write a table"
                f" [evaluators.{given}] (defined: {known})"
            )
        return None
