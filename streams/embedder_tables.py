"""The tables `[embedders.NAME]` of the configuration file: embedders and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from facetline.evaluators.embedders import factory
from facetline.evaluators.embedders.contract import Embedder
from facetline.facets import errors
from facetline.streams import limit_keys
from facetline.streams.classify.call import CallLimits
from facetline.streams.limit_keys import LIMITS


@dataclass
class EmbedderTables:
    """What the tables say, and everything that is wrong with them."""

    embedders: dict[str, Embedder] = field(default_factory=dict)
    limits: dict[str, CallLimits] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def unknown(self, collection: str, given: str) -> list[str]:
        """Return what is wrong with a collection that names an embedder which is not there.

        Nothing, where it has a table that was refused: that is a problem already.
        """
        if given in self.refused:
            return []
        known = ", ".join(sorted(self.embedders)) or "none"
        guess = errors.nearest(given, self.embedders)
        message = f"embedder '{given}' is not defined{guess}; write a table [embedders.{given}] (defined: {known})"
        return [f"collection '{collection}': text: {message}"]


def read(tables: Any) -> EmbedderTables:
    """Make the embedders of `[embedders.NAME]`."""
    found = EmbedderTables()
    if not isinstance(tables, dict):
        found.problems.append("embedders: write one [embedders.NAME] table for each")
        return found
    for name, table in tables.items():
        problems = _take(found, name, table)
        if problems:
            found.problems.extend(problems)
            found.refused.add(name)
    return found


def _take(found: EmbedderTables, name: str, table: Any) -> list[str]:
    """Make one embedder; return what is wrong with its table."""
    about = f"embedder '{name}'"
    if not isinstance(table, Mapping):
        return [f"{about}: write it as a table [embedders.{name}]"]
    own = {key: value for key, value in table.items() if key not in LIMITS}
    meant_as_limits = limit_keys.near(about, own, factory.MAKERS.get(str(table.get("kind")), (("kind",), None))[0])
    problems = list(meant_as_limits.values())
    try:
        found.limits[name] = limit_keys.limits(about, {key: value for key, value in table.items() if key in LIMITS})
    except errors.InvalidDefinition as error:
        problems.extend(error.problems)
    try:
        made = factory.embedder_from_table(
            name, {key: value for key, value in own.items() if key not in meant_as_limits}
        )
    except errors.InvalidDefinition as error:
        return [*problems, *error.problems]
    if not problems:
        found.embedders[name] = made
    return problems
