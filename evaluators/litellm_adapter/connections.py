"""The part of an evaluator's or embedder's table that says which model is asked, where, and with whose key."""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from facetline.evaluators.litellm_adapter.client import Connection
from facetline.evaluators.litellm_adapter.reply_bound import REPLY_BYTES_MAX

KEYS = ("model", "api_base", "api_key_env", "reply_bytes_max")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MODEL_CHARS_MAX = 200
REPLY_BYTES_LIMIT_MIN, REPLY_BYTES_LIMIT_MAX = 1024, 256 * 1024 * 1024
"""Of `reply_bytes_max`: no reply is shorter, and as many are held as calls are running."""

UNBOUNDED = "aiohttp_openai/"
"""A provider of litellm whose HTTP client reads replies whole; the same servers answer as `openai/`."""


def connection_from_table(
    table: Mapping[str, Any],
    problems: list[str],
    *,
    example: str,
    reply_bytes_max: int = REPLY_BYTES_MAX,
    name: str = "the evaluator's table",
) -> Connection:
    """Return the connection; what is wrong with it goes into `problems`. `example` is a model of the kind.

    `reply_bytes_max` stands where the table sets none; `name` is what messages call the table.

    Whether the variable is set, the address answers and the model exists is seen at the first call.
    """
    model, base, variable, bytes_max = (table.get(key) for key in KEYS)
    if not _is_model(model):
        message = "there is none" if model is None else f"not {model!r:.80}"
        problems.append(f"model is 'provider/model', for example '{example}'; {message}")
    elif model.startswith(UNBOUNDED):
        problems.append(f"model {model!r:.80}: replies of 'aiohttp_openai' cannot be bounded; write 'openai/…' instead")
    if base is not None and not _is_address(base):
        problems.append("api_base is the server's address, 'http://…' or 'https://…' without a user, query or fragment")
    if variable is not None and not (isinstance(variable, str) and VARIABLE.fullmatch(variable)):
        # Not quoted: it may be the key itself.
        problems.append("api_key_env is the name of the variable that holds the key, for example 'OPENAI_API_KEY'")
    if bytes_max is None:
        bytes_max = reply_bytes_max
    elif isinstance(bytes_max, bool) or not isinstance(bytes_max, int) or not _is_bound(bytes_max):
        allowed = f"from {REPLY_BYTES_LIMIT_MIN} to {REPLY_BYTES_LIMIT_MAX}"
        problems.append(f"reply_bytes_max is a number of bytes {allowed}, not {bytes_max!r:.80}")
    return Connection(str(model), base, variable, bytes_max, name)


def _is_bound(count: int) -> bool:
    return REPLY_BYTES_LIMIT_MIN <= count <= REPLY_BYTES_LIMIT_MAX


def _is_model(model: Any) -> TypeGuard[str]:
    if not isinstance(model, str) or len(model) > MODEL_CHARS_MAX or not model.isprintable():
        return False
    provider, slash, name = model.partition("/")
    return bool(provider and slash and name) and not any(letter.isspace() for letter in model)


def _is_address(base: Any) -> bool:
    if not isinstance(base, str):
        return False
    try:
        parts = urlsplit(base)
        parts.port  # noqa: B018 (raises for what is no port)
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain
