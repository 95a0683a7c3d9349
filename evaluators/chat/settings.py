"""What the table of a chat evaluator may say, and what each part of it changes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from facetline.evaluators.chat.request_modes import ALTERNATIVES_MAX, SHAPES, Mode

AUTO, OFF = "auto", "off"
LOGPROBS, VERBAL = "logprobs", "verbal"
FIXED, PERMUTED = "fixed", "permuted"
CHOICES = {
    "output": (AUTO, *SHAPES),
    "confidence": (LOGPROBS, VERBAL, OFF),
    "option_order": (FIXED, PERMUTED),
    "reasoning_effort": ("none", "disable", "minimal", "low", "medium", "high", "xhigh"),
}
INSTRUCTIONS_CHARS_MAX = 8000
"""Some 2,000 tokens, paid for with every call."""
TOKENS_MIN, TOKENS_MAX = 16, 65_536
TEMPERATURE_MAX = 2.0
SEED_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The parts of a chat evaluator's table that answers depend on; None where the table says nothing."""

    output: str = AUTO
    logprobs: int | str = AUTO
    confidence: str = LOGPROBS
    option_order: str = FIXED
    seed: int | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    temperature: float | None = None
    instructions: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """All of it, for the fingerprint."""
        return asdict(self)

    @property
    def first_mode(self) -> Mode:
        """How the model is asked until it refuses something."""
        sets = {
            "shape": self.output != AUTO,
            "logprobs": isinstance(self.logprobs, int),
            "temperature": self.temperature is not None,
            "reasoning_effort": self.reasoning_effort is not None,
        }
        asked: int | Literal["auto"] = self.logprobs if isinstance(self.logprobs, int) else "auto"
        wanted = self.confidence == LOGPROBS and self.logprobs != OFF
        shape = next((shape for shape in SHAPES if shape == self.output), SHAPES[0])
        return Mode(
            shape=shape,
            logprobs=asked if wanted else None,
            temperature=0.0 if self.temperature is None else self.temperature,
            reasoning_effort=self.reasoning_effort,
            tokens=self.max_output_tokens,
            fixed=frozenset(part for part, by_name in sets.items() if by_name),
        )


KEYS = tuple(part.name for part in fields(Settings))
"""The table's keys that are these settings."""


def settings_from_table(table: Mapping[str, Any], problems: list[str]) -> Settings:
    """Return what the table says; what is wrong with it goes into `problems`."""
    given = {key: table[key] for key in KEYS if key in table}
    before = len(problems)
    for key, allowed in CHOICES.items():
        if key in given and given[key] not in allowed:
            listed = ", ".join(f"'{each}'" for each in allowed)
            problems.append(f"{key} is one of {listed}, not {given[key]!r:.80}")
    _check_numbers(given, problems)
    text = given.get("instructions", "-")
    if not isinstance(text, str) or not text.strip() or len(text) > INSTRUCTIONS_CHARS_MAX:
        problems.append(f"instructions are text of at most {INSTRUCTIONS_CHARS_MAX} characters, and not blank")
    if len(problems) == before:
        _check_together(given, problems)
    if len(problems) > before:
        return Settings()
    return Settings(**{**given, "seed": given.get("seed", 0) if given.get("option_order") == PERMUTED else None})


def _check_numbers(given: Mapping[str, Any], problems: list[str]) -> None:
    logprobs = given.get("logprobs", AUTO)
    if logprobs not in (AUTO, OFF) and not _is_int(logprobs, 1, ALTERNATIVES_MAX):
        problems.append(f"logprobs is 'auto', 'off' or a number from 1 to {ALTERNATIVES_MAX}, not {logprobs!r:.80}")
    if "seed" in given and not _is_int(given["seed"], 0, SEED_MAX):
        problems.append(f"seed is a whole number, 0 or more, not {given['seed']!r:.80}")
    if "max_output_tokens" in given and not _is_int(given["max_output_tokens"], TOKENS_MIN, TOKENS_MAX):
        message = given["max_output_tokens"]
        problems.append(f"max_output_tokens is a number from {TOKENS_MIN} to {TOKENS_MAX}, not {message!r:.80}")
    if "temperature" in given and not _is_temperature(given["temperature"]):
        problems.append(f"temperature is a number from 0 to {TEMPERATURE_MAX:g}, not {given['temperature']!r:.80}")


def _check_together(given: Mapping[str, Any], problems: list[str]) -> None:
    if "seed" in given and given.get("option_order") != PERMUTED:
        problems.append(f"seed arranges permuted options; add option_order = '{PERMUTED}' or delete it")
    confidence, logprobs = given.get("confidence"), given.get("logprobs", AUTO)
    if confidence == LOGPROBS and logprobs == OFF:
        problems.append("confidence comes from 'logprobs', but logprobs is 'off'; delete one of them")
    if confidence in (VERBAL, OFF) and isinstance(logprobs, int):
        problems.append(f"logprobs are not asked for with confidence = '{confidence}'; delete one of them")
    if isinstance(logprobs, int) and given.get("output") == "tool":
        problems.append("a tool call has no usable logprobs; delete logprobs, or use another output")


def _is_int(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_temperature(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= TEMPERATURE_MAX  # false for NaN
