"""The active definitions: what every process goes by, whatever its own file says.

The generation moves with every change, so that a process finds out cheaply whether it is up to date.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.facets.definitions import Definition, Definitions
from facetline.facets.errors import InvalidDefinition
from facetline.storage.db import engine, json_rows, models
from facetline.storage.generations import Generation

_STORES = models.STORE
_DEFINITIONS = models.DEFINITIONS
_GENERATION = (_STORES.c.definitions_generation, _STORES.c.definitions_mark)


@dataclass(frozen=True, slots=True)
class Activated:
    """The generation after an activation, and the names whose definitions it changed."""

    generation: Generation
    names: tuple[str, ...]


def generation(tx: engine.Tx) -> Generation:
    """Return the generation of the active definitions; its number is 0 before the first."""
    return Generation.of(tx.execute(sa.select(*_GENERATION)).one())


def active(tx: engine.Tx) -> tuple[Generation, Definitions]:
    """Return the generation, and the definitions of that generation when read in a snapshot (`Store.read`)."""
    return generation(tx), Definitions(_stored(tx).values())


def fingerprints(tx: engine.Tx) -> dict[str, str]:
    """Return the active fingerprint of each collection."""
    rows = tx.execute(sa.select(_DEFINITIONS.c.name, _DEFINITIONS.c.fingerprint).order_by(_DEFINITIONS.c.name))
    return {row.name: row.fingerprint for row in rows}


def activate(tx: engine.Tx, definitions: Iterable[Definition]) -> Activated:
    """Make these definitions the active ones of their collections; others stay as they are.

    Raises:
        InvalidDefinition: a pattern overlaps that of an active collection with another name.
    """
    current = _lock(tx)
    return _replace(tx, current, list(definitions))


def activate_unknown(tx: engine.Tx, definitions: Iterable[Definition]) -> Activated:
    """Make those definitions active whose collections have none yet: the first sight of a collection.

    Raises:
        InvalidDefinition: a pattern overlaps that of an active collection with another name.
    """
    current = _lock(tx)
    known = _stored(tx)
    return _replace(tx, current, [each for each in definitions if each.name not in known])


def _lock(tx: engine.Tx) -> Generation:
    """Keep other activations out until this transaction ends."""
    return Generation.of(tx.execute(tx.lock_rows(sa.select(*_GENERATION))).one())


def _replace(tx: engine.Tx, current: Generation, definitions: list[Definition]) -> Activated:
    stored = _stored(tx)
    # Compared as text: the declared order of options is nothing that answers depend on, but people see it.
    changed = [each for each in definitions if each.name not in stored or _text(stored[each.name]) != _text(each)]
    if not changed:
        return Activated(current, ())
    _check_together({**stored, **{each.name: each for each in changed}}.values())
    insert = sqlite.insert(_DEFINITIONS) if tx.dialect == "sqlite" else postgresql.insert(_DEFINITIONS)
    columns = ("fingerprint", "definition", "activated_ms")
    upsert = insert.on_conflict_do_update(
        index_elements=["name"], set_={column: insert.excluded[column] for column in columns}
    )
    rows = [
        {"name": each.name, "fingerprint": each.fingerprint, "definition": _text(each), "activated_ms": tx.now_ms}
        for each in changed
    ]
    tx.execute(upsert, rows)
    moved = current.next()
    tx.execute(sa.update(_STORES).values(definitions_generation=moved.number, definitions_mark=moved.mark))
    return Activated(moved, tuple(each.name for each in changed))


def _check_together(definitions: Iterable[Definition]) -> None:
    """Refuse overlapping patterns, also between what is active and what is to be."""
    try:
        Definitions(definitions)
    except InvalidDefinition as error:
        way_out = "a collection that is active keeps its name and its uris: keep the name, or choose another pattern"
        raise InvalidDefinition([*error.problems, way_out]) from error


def _stored(tx: engine.Tx) -> dict[str, Definition]:
    rows = tx.execute(sa.select(_DEFINITIONS.c.definition).order_by(_DEFINITIONS.c.name)).scalars()
    definitions = [Definition.model_validate_json(text) for text in rows]
    return {each.name: each for each in definitions}


def _text(definition: Definition) -> str:
    return json_rows.dumps(definition.model_dump(mode="json"))
