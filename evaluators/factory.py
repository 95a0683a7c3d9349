"""From an `[evaluators.NAME]` table of facetline.toml to an evaluator.

Making one is cheap: no model is loaded before its first evaluation, so that commands which never ask a model do not pay
for one. (A recording is read at once, because its content is part of its identity.)
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetline.evaluators import validation
from facetline.evaluators.chat import evaluator as chat
from facetline.evaluators.contract import Evaluator, Identity
from facetline.evaluators.decisions import evaluator as decisions
from facetline.evaluators.embedded import evaluator as embedded
from facetline.evaluators.quality import temperatures
from facetline.evaluators.recorded import evaluator as recorded
from facetline.facets.errors import InvalidDefinition, nearest

if TYPE_CHECKING:
    from facetline.evaluators.embedded.calibration import Calibration

FITTED = "fitted"
"""What an embedded evaluator's table is given beside its own keys: a `Calibration`, or None."""
TEMPERATURE_MIN, TEMPERATURE_MAX = 0.001, 10.0
"""Cosines differ by hundredths: below, every answer is certain to the last digit; above, all options are equal."""


def evaluator_from_table(name: str, table: Mapping[str, Any], *, folder: Path) -> Evaluator:
    """Make the evaluator that a table describes; paths are relative to `folder`.

    Raises:
        InvalidDefinition: with all problems of the table.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in MAKERS:
        message = "has no kind" if kind is None else f"unknown kind {kind!r:.80}{nearest(str(kind), MAKERS)}"
        raise InvalidDefinition([f"evaluator '{name}': {message}; write kind = one of {_listed(MAKERS)}"])
    keys, make = MAKERS[kind]
    problems = [
        f"unknown key '{key}'{nearest(key, keys)}; kind '{kind}' takes {_listed(keys)}"
        for key in table
        if key not in keys
    ]
    try:
        made = make(_with_fitted(name, table, folder), folder, problems)
    except InvalidDefinition as error:
        problems.extend(error.problems)
        made = None
    if made is None:
        raise InvalidDefinition([f"evaluator '{name}': {problem}" for problem in problems])
    return made


def _with_fitted(name: str, table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return an embedded evaluator's table with what was fitted for it, which is kept beside the file."""
    if table["kind"] != embedded.KIND:
        return table
    return {**table, FITTED: temperatures.read(folder).get(name)}


def fingerprint_identity(identity: Identity) -> dict[str, Any]:
    """Return what a fingerprint takes from an evaluator: its identity and the version of the answer validator."""
    return {
        "kind": identity.kind,
        "model": identity.model,
        "parameters": identity.parameters,
        "version": identity.version,
        "validator": validation.VERSION,
    }


def _embedded(table: Mapping[str, Any], folder: Path, problems: list[str]) -> Evaluator | None:
    del folder
    model, confidence, temperature = table.get("model"), table.get("confidence", "on"), table.get("temperature")
    fitted: Calibration | None = table[FITTED]
    if model not in (None, embedded.MODEL):
        problems.append(f"unknown model {model!r:.80}; kind 'embedded' has '{embedded.MODEL}' (or leave it away)")
    if confidence not in ("on", "off"):
        problems.append(f"confidence is 'on' (the default) or 'off', not {confidence!r:.80}")
    if temperature is not None and not _is_temperature(temperature):
        problems.append(
            f"temperature is a number from {TEMPERATURE_MIN:g} to {TEMPERATURE_MAX:g}, not {temperature!r:.80} "
            "(docs/evaluators.md says how to fit it)"
        )
    if temperature is not None and confidence == "off":
        problems.append("temperature says how sure a confidence is, but confidence is 'off'; delete one of them")
    if temperature is not None and fitted is not None:
        problems.append(f"temperature is set here and was fitted in {temperatures.FILE}; delete it in one of them")
    if fitted is not None and fitted.model != embedded.MODEL:
        problems.append(
            f"the temperature in {temperatures.FILE} was fitted for model '{fitted.model}', which this version does not"
            " have; fit again with 'facetline evaluate --fit-temperature --write', or delete it there"
        )
    if problems:
        return None
    if confidence == "off":
        return embedded.Embedded(temperature=embedded.OFF)
    return embedded.Embedded(temperature=fitted if temperature is None else temperature)


def _recorded(table: Mapping[str, Any], folder: Path, problems: list[str]) -> Evaluator | None:
    path, source = table.get("path"), table.get("confidence_source", "recorded")
    if not isinstance(path, str) or not path:
        problems.append("kind 'recorded' needs path = \"answers.ndjson\", the file that it answers from")
    if not isinstance(source, str) or not source:
        problems.append("confidence_source is the name of a statistic, as text")
    if problems:
        return None
    return recorded.Recorded(folder / str(path), confidence_source=source)


def _chat(table: Mapping[str, Any], folder: Path, problems: list[str]) -> Evaluator | None:
    del folder
    return chat.chat_from_table(table, problems)


def _decisions(table: Mapping[str, Any], folder: Path, problems: list[str]) -> Evaluator | None:
    del folder
    return decisions.decisions_from_table(table, problems)


def _is_temperature(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return TEMPERATURE_MIN <= value <= TEMPERATURE_MAX  # false for NaN


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names)


MAKERS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any], Path, list[str]], Evaluator | None]]] = {
    chat.KIND: (chat.KEYS, _chat),
    decisions.KIND: (decisions.KEYS, _decisions),
    embedded.KIND: (("kind", "model", "temperature", "confidence"), _embedded),
    recorded.KIND: (("kind", "path", "confidence_source"), _recorded),
}
"""Kind: the keys that its table takes, and how it is made."""
