"""Access rules for callers. Pure. Anything outside of a caller's scope is treated as nonexistent."""

from facetline.facets import documents, errors
from facetline.facets.backend import RIGHTS, Caller, Right
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.search.selection import Selection
from facetline.streams.views.follower import unknown_collection

COMMAND = Caller("command", frozenset(RIGHTS))
"""A command on this machine that has read the secret in the data folder, and could therefore open the store."""
API_SOURCE = "facetline/api/"


def need(caller: Caller, right: Right, *, everywhere: bool = False) -> None:
    """Refuse a caller without a right; with `everywhere` also a caller that is limited to one scope.

    Raises:
        Forbidden: names what is missing.
    """
    if right not in caller.rights:
        raise errors.Forbidden(f"a token with the right '{right}' is required")
    if everywhere and caller.scope is not None:
        raise errors.Forbidden("a token without a scope is required")


def source_of(caller: Caller, own: str) -> str:
    """Return the source of a caller's events; for a command it is `own`, that of writes without a server."""
    return own if caller == COMMAND else API_SOURCE + caller.name


def visible(active: Definitions, caller: Caller) -> Definitions:
    """Return the definitions that a caller sees: with a scope only scoped collections."""
    if caller.scope is None:
        return active
    return Definitions(each for each in active.by_name.values() if each.scoped)


def definition_of(active: Definitions, caller: Caller, name: str) -> Definition:
    """Return a collection's definition.

    Raises:
        UnknownCollection: it does not exist for the caller; the message names those that do.
    """
    seen = visible(active, caller)
    if name not in seen.by_name:
        raise unknown_collection(name[:80], seen)
    return seen.by_name[name]


def check_uri(uri: str, caller: Caller) -> None:
    """Refuse a uri outside of the caller's scope, with the same message whether it exists or not.

    Raises:
        InvalidEvent: the uri is invalid.
        NotFound: it is not in the caller's scope.
    """
    parsed = documents.parse_uri(uri)
    if caller.scope is not None and parsed.scope != caller.scope:
        raise no_document(uri)


def no_document(uri: str) -> errors.NotFound:
    """Return the error for a document that does not exist for the caller."""
    return errors.NotFound(f"no document '{uri}'")


def narrowed(selection: Selection, caller: Caller) -> Selection:
    """Return a selection limited to the caller's scope.

    Raises:
        NotFound: it names another scope, existing or not.
    """
    return selection.model_copy(update={"scope": scope_of(selection.scope, caller)})


def scope_of(named: str | None, caller: Caller) -> str | None:
    """Return the scope of a request: the caller's, else the named one.

    Raises:
        NotFound: the named scope is not the caller's.
    """
    if caller.scope is None or named is None or named == caller.scope:
        return named if caller.scope is None else caller.scope
    raise errors.NotFound(f"no scope {named[:80]!r}")
