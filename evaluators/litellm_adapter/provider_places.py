"""Where and as whom litellm's adapters ask a provider: what its callers of them fill in, from the same variables.

A function here returns None where only `acompletion` knows the address or the credentials.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Place:
    """Where and as whom a provider is asked, as litellm resolves it."""

    model: str
    provider: str
    api_base: str | None
    api_key: str | None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


def filled(place: Place) -> Place | None:
    """Return `place` with what the environment says where the table says nothing, and the provider's own address."""
    fill = FILLING.get(place.provider)
    if fill is not None:
        return fill(place)
    return place if place.api_base else None


def _from(place: Place, *, base: tuple[str, ...], key: tuple[str, ...], default: str | None = None) -> Place:
    return replace(place, api_base=place.api_base or _first(base) or default, api_key=place.api_key or _first(key))


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _openrouter(place: Place) -> Place:
    found = _from(
        place,
        base=("OPENROUTER_API_BASE",),
        key=("OPENROUTER_API_KEY", "OR_API_KEY"),
        default="https://openrouter.ai/api/v1",
    )
    site, name = _first(("OR_SITE_URL",)) or "https://litellm.ai", _first(("OR_APP_NAME",)) or "liteLLM"
    return replace(found, headers={"HTTP-Referer": site, "X-Title": name})


def _openai(place: Place) -> Place:
    organization = _first(("OPENAI_ORGANIZATION",))
    return replace(
        _from(
            place,
            base=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            key=("OPENAI_API_KEY",),
            default="https://api.openai.com/v1",
        ),
        headers={"OpenAI-Organization": organization} if organization else {},
    )


def _anthropic(place: Place) -> Place | None:
    from litellm.litellm_core_utils.url_utils import ensure_api_route

    if _first(("LITELLM_ANTHROPIC_DISABLE_URL_SUFFIX",)):
        return None
    found = _from(
        place,
        base=("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
        key=("ANTHROPIC_API_KEY",),
        default="https://api.anthropic.com",
    )
    return replace(found, api_base=ensure_api_route(found.api_base or "", "v1/messages"))


def _ollama(place: Place) -> Place:
    found = _from(place, base=("OLLAMA_API_BASE",), key=("OLLAMA_API_KEY",), default="http://localhost:11434")
    return replace(found, headers={"Authorization": f"Bearer {found.api_key}"} if found.api_key else {})


def _cohere(place: Place) -> Place | None:
    # Without an address litellm has one for each of the provider's two protocols.
    found = _from(place, base=("COHERE_API_BASE",), key=("COHERE_API_KEY", "CO_API_KEY"))
    return found if found.api_base else None


def _gemini(place: Place) -> Place | None:
    found = _from(place, base=("GEMINI_API_BASE",), key=("GEMINI_API_KEY", "GOOGLE_API_KEY"))
    return found if found.api_key else None


def _azure(place: Place) -> Place | None:
    found = _from(place, base=("AZURE_API_BASE",), key=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"))
    return found if found.api_base and found.api_key else None  # without a key litellm fetches a token


FILLING: Mapping[str, Callable[[Place], Place | None]] = {
    "anthropic": _anthropic,
    "azure": _azure,
    "cohere": _cohere,
    "cohere_chat": _cohere,
    "gemini": _gemini,
    "ollama": _ollama,
    "ollama_chat": _ollama,
    "openai": _openai,
    "openrouter": _openrouter,
}
"""Providers whose address or key litellm's adapters do not resolve by themselves."""
