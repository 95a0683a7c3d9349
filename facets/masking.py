"""What may be a secret is masked, by its place and its shape, wherever settings, errors and logs are shown.

A value is masked under a name that says what it is (password, secret, token, key, credential, …) at any depth, in lists
and in JSON that stands in text; in an address its password, and whatever a parameter so named holds; in any text what
looks like a key, and each value that the settings of this process hold as a secret, however a library repeats it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"
PAIR = 2
"""A name and its value in a list."""
KNOWN_CHARS_MIN = 5
"""Shorter secrets are not looked for in texts: they would be found in words."""
_ORDINARY = frozenset(
    {"facetline", "postgres", "postgresql", "kafka", "password", "secret", "local", "localhost", "admin"}
)
"""Secrets of examples, which stand in every other message."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HARD = re.compile(
    r"password|passwd|pwd$|passphrase|passfile|^pass$|secret|credential|jaas|apikey|authorization|cookie"
)
_NEUTRAL = frozenset(
    {"env", "column", "columns", "location", "file", "path", "folder", "url", "uri", "endpoint", "name", "type", "id"}
    | {"ids", "count", "limit", "max", "min", "bytes", "chars", "field", "provider", "class", "mechanism", "algorithm"}
    | {"header", "s", "ms", "policy", "usage"}
)
"""Last words of names that say where a secret is, or how it is used, and hold none."""
_OPEN_KEYS = frozenset(
    {"public", "primary", "partition", "foreign", "sort", "row", "document", "idempotency", "routing"}
)
_HOLDERS = frozenset({"api", "access", "private", "auth", "account", "refresh", "bearer", "session"})
_URL = re.compile(r"\b([A-Za-z][\w+.-]*)://([^\s'\"<>]+)")
_PARAMETER = re.compile(r"([?&;]|^)([\w.\-%]+)=([^&;\s'\"#]*)")
_PAIR = re.compile(
    r"""(['"]?)([A-Za-z][\w.\-]*)\1(\s*=\s*|(?<=['"])\s*:\s*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&'"]+)"""
)
_LOOKS = re.compile(
    # A key has digits, or the stars of one that is masked already: words that people write have neither.
    r"(?i)\b(?:bearer|basic)\s+(?=[\w.~+/=*-]*[\d=*])[\w.~+/=*-]{4,}"
    r"|\b(?:sk|pk|rk|gsk|xai|key)-(?=[\w*-]*[\d*])[\w*-]{12,}|\b(?:sk|key)-[\w-]*\*[\w*-]*"
    r"|\bflt_[\w-]{6,}|\bAKIA[0-9A-Z]{12,}"
    r"|\bgh[pousr]_\w{12,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
"""What looks like a key, a token or the masked end of one."""

_known: set[str] = set()


def is_secret(name: str) -> bool:
    """Say whether a value of this name is a secret: `sasl_password`, `apiKey`, `sasl.jaas.config`; not `key_column`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "jaas" in words or last in _NEUTRAL:
        return "jaas" in words
    if any(map(_HARD.search, [*words, "".join(words)])):
        return True
    if last in {"keys", "tokens"}:
        return before in _HOLDERS
    return (
        last.endswith(("token", "signature")) or last in {"sig", "sas"} or (last == "key" and before not in _OPEN_KEYS)
    )


def masked(value: Any, name: str = "") -> Any:
    """Return data with what may be a secret masked, at any depth; `name` is what the value itself is called."""
    return _masked(value, is_secret(name), [])


def scrubbed(text: str) -> str:
    """Return a text of any kind (a message, a line of a log, a URL) with what may be a secret masked."""
    return _by_shape(_without_known(text), [])


def remember(value: Any) -> None:
    """Keep the secrets that these settings hold, so that no text shows them, however a library repeats them."""
    found: list[str] = []
    _masked(value, False, found)
    for secret in found:
        for spelled in {secret, unquote(secret)}:
            if len(spelled) >= KNOWN_CHARS_MIN and spelled.lower() not in _ORDINARY and set(spelled) != {"*"}:
                _known.add(spelled)


def _masked(value: Any, hidden: bool, found: list[str]) -> Any:
    if isinstance(value, Mapping):
        named = value.get("name", value.get("key"))
        holds = isinstance(named, str) and is_secret(named)
        return {
            name: _masked(each, hidden or is_secret(str(name)) or (holds and name == "value"), found)
            for name, each in value.items()
            if not (holds and name in {"name", "key"})
        } | ({name: value[name] for name in ("name", "key") if name in value} if holds else {})
    if isinstance(value, list | tuple):
        pair = len(value) == PAIR and isinstance(value[0], str) and is_secret(value[0])
        return [_masked(each, hidden or (pair and place == 1), found) for place, each in enumerate(value)]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if hidden:
        found.append(str(value))
        _by_shape(str(value), found)  # a secret may be a line with a password in it
        return MASK
    return _text(value, found) if isinstance(value, str) else value


def _text(text: str, found: list[str]) -> str:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return json.dumps(_masked(json.loads(text), False, found), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return _by_shape(_without_known(text), found)


def _without_known(text: str) -> str:
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def _by_shape(text: str, found: list[str]) -> str:
    if "://" in text:
        text = _URL.sub(lambda url: f"{url[1]}://{_address(url[1], url[2], found)}", text)
    if "=" in text or ":" in text:
        text = _PAIR.sub(lambda pair: _pair(pair, found), text)
    return _LOOKS.sub(MASK, text)


def _address(scheme: str, rest: str, found: list[str]) -> str:
    """Return what follows `://` without what only its owner may know."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    end = authority.rfind("@")
    _, colon, port = authority.rpartition(":")
    if end < 0 and colon and port and not port.isdigit() and not authority.startswith("["):
        end = rest.rfind("@")  # a password with a slash in it that is not escaped
    shown = rest[end + 1 :] if end >= 0 else rest
    shown = _PARAMETER.sub(lambda parameter: _parameter(parameter, found), shown)
    if end < 0:
        return shown
    user, colon, password = rest[:end].partition(":")
    if scheme.lower() in {"http", "https"}:
        found += [part for part in (user, password) if part]
        return f"{MASK}@{shown}"
    if colon and password:
        found.append(password)
    return f"{user}:{MASK}@{shown}" if colon else f"{user}@{shown}"


def _parameter(parameter: "re.Match[str]", found: list[str]) -> str:
    before, name, value = parameter.groups()
    if not value or not is_secret(unquote(name)):
        return parameter[0]
    found.append(value)
    return f"{before}{name}={MASK}"


def _pair(pair: "re.Match[str]", found: list[str]) -> str:
    quote, name, sign, value = pair.groups()
    if not is_secret(name) or value.strip("'\"") in {"", MASK}:
        return pair[0]
    found.append(value.strip("'\""))
    ends = value[0] if value[0] in "'\"" else ""
    return f"{quote}{name}{quote}{sign}{ends}{MASK}{ends}"
