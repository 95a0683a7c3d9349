"""The keys that bound calls, in the tables of evaluators and embedders alike."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from facetline.facets import errors, validation_messages
from facetline.streams.classify.call import CallLimits

LIMITS = tuple(field.name for field in fields(CallLimits))


def near(about: str, own: Mapping[str, Any], known: Iterable[str]) -> dict[str, str]:
    """Say of each key that was meant for a limit which one: the kind's own list of keys would not lead there.

    `about` names the table in messages, `own` are its keys that are no limits, `known` those that its kind takes.
    """
    guesses = {key: errors.nearest(key, LIMITS) for key in own if key not in known}
    return {key: f"{about}: unknown key '{key}'{guess}" for key, guess in guesses.items() if guess}


def limits(about: str, table: Mapping[str, Any]) -> CallLimits:
    """Return the limits that a table sets.

    Raises:
        InvalidDefinition: with all problems of the keys.
    """
    problems = [
        f"{about}: {key} is {value!r:.40}; write a number above zero"
        for key, value in table.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
    ]
    try:
        found = TypeAdapter(CallLimits).validate_python(table) if not problems else CallLimits()
    except ValidationError as error:
        problems = [f"{about}: {each['loc'][0]}: {validation_messages.message_of(each)}" for each in error.errors()]
    if problems:
        raise errors.InvalidDefinition(problems)
    return found
