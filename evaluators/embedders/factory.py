"""From an `[embedders.NAME]` table of facetline.toml to an embedder.

Making one is cheap: no model is loaded and no server reached before its first call.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from facetline.evaluators.embedders import contract, hosted, local
from facetline.evaluators.embedders.contract import Embedder
from facetline.evaluators.embedders.hosted import HostedEmbedder, HostedSettings
from facetline.evaluators.embedders.local import LocalEmbedder
from facetline.evaluators.litellm_adapter import connections
from facetline.evaluators.litellm_adapter.reply_bound import REPLY_BYTES_MAX
from facetline.facets.errors import InvalidDefinition, nearest

EXAMPLE = "openai/text-embedding-3-small"
NUMBERS = {"dimensions": (1, contract.DIMENSIONS_MAX), "max_batch": (1, 2048), "window_chars": (100, 100_000)}
"""Keys that take a whole number, and its bounds."""
PREFIXES = ("query_prefix", "passage_prefix")
PREFIX_CHARS_MAX = 1000
BYTES_PER_WINDOW = 128 * 1024
"""Of a reply with the longest vectors that are usual (4,096 numbers of up to 25 digits, and what is around them)."""


def embedder_from_table(name: str, table: Mapping[str, Any]) -> Embedder:
    """Make the embedder that a table describes.

    Raises:
        InvalidDefinition: with all problems of the table.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in MAKERS:
        message = "has no kind" if kind is None else f"unknown kind {kind!r:.80}{nearest(str(kind), MAKERS)}"
        raise InvalidDefinition([f"embedder '{name}': {message}; write kind = one of {_listed(MAKERS)}"])
    keys, make = MAKERS[kind]
    problems = [
        f"unknown key '{key}'{nearest(key, keys)}; kind '{kind}' takes {_listed(keys)}"
        for key in table
        if key not in keys
    ]
    made = make(name, table, problems)
    if made is None:
        raise InvalidDefinition([f"embedder '{name}': {problem}" for problem in problems])
    return made


def _local(name: str, table: Mapping[str, Any], problems: list[str]) -> Embedder | None:
    model = table.get("model")
    if model not in (None, local.MODEL):
        problems.append(f"unknown model {model!r:.80}; kind '{local.KIND}' has '{local.MODEL}' (or leave it away)")
    return None if problems else LocalEmbedder(name)


def _hosted(name: str, table: Mapping[str, Any], problems: list[str]) -> Embedder | None:
    for key, (low, high) in NUMBERS.items():
        value = table.get(key, low)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            problems.append(f"{key} is a whole number from {low} to {high}, not {value!r:.80}")
    for key in PREFIXES:
        value = table.get(key, "")
        if not isinstance(value, str) or len(value) > PREFIX_CHARS_MAX:
            problems.append(f"{key} is text of at most {PREFIX_CHARS_MAX} characters, not {value!r:.80}")
    given = {key: table[key] for key in (*NUMBERS, *PREFIXES) if key in table}
    settings = HostedSettings() if problems else HostedSettings(**given)
    bytes_max = min(max(REPLY_BYTES_MAX, settings.max_batch * BYTES_PER_WINDOW), connections.REPLY_BYTES_LIMIT_MAX)
    connection = connections.connection_from_table(
        table, problems, example=EXAMPLE, reply_bytes_max=bytes_max, name=f"[embedders.{name}]"
    )
    return None if problems else HostedEmbedder(name, connection, settings)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


MAKERS: dict[str, tuple[tuple[str, ...], Callable[[str, Mapping[str, Any], list[str]], Embedder | None]]] = {
    local.KIND: (local.KEYS, _local),
    hosted.KIND: (("kind", *connections.KEYS, *NUMBERS, *PREFIXES), _hosted),
}
"""Kind: the keys that its table takes, and how it is made."""
