"""OpenAI's embedding protocol, sent by our own HTTP client: one request, and its reply as it came.

litellm's `aembedding` takes half a second of the event loop for a reply with 96 vectors of 1,536 numbers where it asks
by OpenAI's library, and keeps of a refusal only what stands where OpenAI has its words. Address, key and price are
litellm's here too.
"""

import asyncio
import functools
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from facetline.evaluators.litellm_adapter import client, http, provider_places, reply_form
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.evaluators.litellm_adapter.provider_places import Place

PROVIDERS = frozenset({"hosted_vllm", "litellm_proxy", "mistral", "nvidia_nim", "openai", "openai_like", "together_ai"})
"""Asked this way; all others by `aembedding`."""
ROUTE = "/embeddings"
PRICES_KEPT = 256


async def ask(
    litellm: ModuleType, connection: Connection, api_key: str | None, parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], float | None] | None:
    """Send one request; return the reply and its price, or None where only litellm knows how to send it.

    Raises:
        ReplyRefused: the server refused, or its reply names an error.
        InvalidAnswer: the reply cannot be read.
    """
    place = _place(litellm, connection, api_key)
    if place is None or place.api_base is None:
        return None
    base = place.api_base.rstrip("/")
    headers = {"Content-Type": "application/json", **place.headers}
    if place.api_key:
        headers["Authorization"] = f"Bearer {place.api_key}"
    reply = await http.post(
        base if base.endswith(ROUTE) else base + ROUTE,
        headers=headers,
        data=json.dumps({"model": place.model, **parameters}).encode(),
        reply_bytes_max=connection.reply_bytes_max,
    )
    found = await asyncio.to_thread(reply_form.object_of, reply, connection.model)
    usage = client.usage_of(found)
    usd = _usd_per_token(place.model, place.provider)
    cost = None if usd is None or usage is None else usd * usage.get("input_tokens", 0)
    return found, client.cost_from(cost, connection)


def _place(litellm: ModuleType, connection: Connection, api_key: str | None) -> Place | None:
    provider = connection.model.partition("/")[0]
    if provider not in PROVIDERS:
        return None
    model, found, key, base = litellm.get_llm_provider(connection.model, api_base=connection.api_base, api_key=api_key)
    if found != provider:
        return None
    return provider_places.filled(Place(model, found, base or connection.api_base, key or api_key))


@functools.lru_cache(PRICES_KEPT)
def _usd_per_token(model: str, provider: str) -> float | None:
    """Return a model's price by litellm's list, None where it has none."""
    import litellm

    try:
        found: float = litellm.cost_per_token(
            model=model, custom_llm_provider=provider, prompt_tokens=1, call_type="aembedding"
        )[0]
    except Exception:  # noqa: BLE001 (litellm raises plain ones for a model without a price)
        return None
    return found
