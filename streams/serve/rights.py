"""What a caller may do and see: pure. Outside of a caller's scope everything is as if it did not exist."""

from facetline.facets import documents, errors
from facetline.facets.backend import RIGHTS, Caller, Right
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.search.selection import Selection
from facetline.streams.views.follower import unknown_collection

COMMAND = Caller("command", frozenset(RIGHTS))
"""A command on this machine that has read the secret in the data folder: anyone who can read it could open the store.
"""
API_SOURCE = "facetline/api/"


def need(caller: Caller, right: Right, *, everywhere: bool = False) -> None:
    """Refuse who does not have a right; `everywhere`: or has it in one scope alone, which no token is ever made for.

    Raises:
        Forbidden: naming what is missing.
    """
    if right not in caller.rights:
        raise errors.Forbidden(f"this needs a token with the right '{right}'")
    if everywhere and caller.scope is not None:
        raise errors.Forbidden("this needs a token without a scope")


def source_of(caller: Caller, own: str) -> str:
    """Return the source of a caller's events; a command's are those that it writes itself, `own`."""
    return own if caller == COMMAND else API_SOURCE + caller.name


def visible(active: Definitions, caller: Caller) -> Definitions:
    """Return the definitions that a caller sees: one with a scope sees scoped collections alone."""
    if caller.scope is None:
        return active
    return Definitions(each for each in active.by_name.values() if each.scoped)


def definition_of(active: Definitions, caller: Caller, name: str) -> Definition:
    """Return a collection's definition.

    Raises:
        UnknownCollection: there is none that the caller sees; those that it does are named.
    """
    seen = visible(active, caller)
    if name not in seen.by_name:
        raise unknown_collection(name[:80], seen)
    return seen.by_name[name]


def check_uri(uri: str, caller: Caller) -> None:
    """Refuse a uri outside of the caller's scope, in the same words whatever is there.

    Raises:
        InvalidEvent: it is no uri.
        NotFound: it is not in the caller's scope.
    """
    parsed = documents.parse_uri(uri)
    if caller.scope is not None and parsed.scope != caller.scope:
        raise no_document(uri)


def no_document(uri: str) -> errors.NotFound:
    """Return the error for a uri that there is no document at, or none that the caller sees."""
    return errors.NotFound(f"no document '{uri}'")


def narrowed(selection: Selection, caller: Caller) -> Selection:
    """Return a selection within the caller's scope.

    Raises:
        NotFound: it names another scope, whether there is one or not.
    """
    return selection.model_copy(update={"scope": scope_of(selection.scope, caller)})


def scope_of(named: str | None, caller: Caller) -> str | None:
    """Return the scope that a request is about: the caller's own, else the one that it names.

    Raises:
        NotFound: it names one that is not the caller's.
    """
    if caller.scope is None or named is None or named == caller.scope:
        return named if caller.scope is None else caller.scope
    raise errors.NotFound(f"no scope {named[:80]!r}")
