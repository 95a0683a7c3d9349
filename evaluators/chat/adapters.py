"""Chat requests by litellm's provider adapters: they build the request and read the reply, `model_http` sends it.

litellm's `acompletion` gives only its own summary of an error or of how a reply ended, and takes milliseconds of
processor time a call. Its adapters (the `…Config` classes behind `ProviderConfigManager`) do the translation alone.
Providers that are not in `PROVIDERS`, models that litellm asks by another protocol (OpenAI's Responses), and servers
whose address only `acompletion` knows, are asked by `acompletion` as before: `adapter_of` returns None for them.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from facetline.evaluators.chat.logprobs import part_of
from facetline.evaluators.litellm_adapter import http, provider_places, provider_requests, reply_form
from facetline.evaluators.litellm_adapter.client import TOKEN_NAMES, Connection, cost_from, usage_of
from facetline.evaluators.litellm_adapter.http import HttpReply
from facetline.evaluators.litellm_adapter.provider_places import Place
from facetline.facets.errors import InvalidAnswer

OPENAI_LIKE = frozenset(
    {
        "cerebras",
        "dashscope",
        "deepinfra",
        "deepseek",
        "fireworks_ai",
        "github",
        "groq",
        "hosted_vllm",
        "hyperbolic",
        "litellm_proxy",
        "llamafile",
        "lm_studio",
        "mistral",
        "moonshot",
        "nebius",
        "novita",
        "nvidia_nim",
        "openai",
        "openrouter",
        "perplexity",
        "sambanova",
        "together_ai",
        "xai",
    }
)
PROVIDERS = OPENAI_LIKE | {"anthropic", "azure", "cohere", "cohere_chat", "gemini", "ollama", "ollama_chat"}
"""Asked through litellm's adapters; tests/integration/test_chat_providers.py compares each with `acompletion`."""

MAPPED_MAX = 64
"""Sets of parameters that are kept as a provider takes them: one for each collection and way of asking."""

NOT_SENT = ("stream", "fake_stream", "max_retries", "extra_headers")
"""Parameters that litellm keeps among those of the provider, for senders of its own."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat reply: litellm's form of it, and the reply as it came (None from `acompletion`, which keeps none)."""

    response: Any
    raw: Mapping[str, Any] | None = None
    usage: dict[str, int] | None = None
    cost_usd: float | None = None


class ChatAdapter:
    """Ask one connection's model through litellm's adapter. Make it with `adapter_of`."""

    def __init__(self, litellm: ModuleType, connection: Connection, provider: str) -> None:
        self._litellm = litellm
        self._connection = connection
        self._provider = provider
        self._mapped: dict[tuple[str, Place], dict[str, Any] | None] = {}
        self._unpriced: set[tuple[str, str]] = set()

    async def complete(
        self, api_key: str | None, messages: list[dict[str, str]], params: Mapping[str, Any]
    ) -> Completion | None:
        """Send one request; return its `Completion`, or None where only `acompletion` knows how to send it.

        Raises:
            ReplyRefused: the server refused, or its reply names an error.
            InvalidAnswer: the reply cannot be read.
            Exception: litellm refused the request before it was sent.
        """
        place = self._place(api_key)
        optional = None if place is None else self._optional(place, params)
        if place is None or optional is None:
            return None
        config = _config(place)
        json_mode, extra = optional.pop("json_mode", False), optional.pop("extra_body", None)
        known = {
            "api_base": place.api_base,
            "api_key": place.api_key,
            "custom_llm_provider": place.provider,
            "acompletion": True,
        }
        url, headers, body = provider_requests.request(config, place, messages, optional, known)
        if extra:
            body = {**body, **extra}
        headers, signed = config.sign_request(
            headers=headers,
            optional_params=optional,
            request_data=body,
            api_base=url,
            api_key=place.api_key,
            model=place.model,
            stream=False,
            fake_stream=False,
        )
        data = json.dumps(body).encode() if signed is None else signed
        reply = await http.post(
            url,
            headers={"Content-Type": "application/json", **headers},
            data=data,
            reply_bytes_max=self._connection.reply_bytes_max,
        )
        raw = reply_form.object_of(reply, self._connection.model)
        readable = reply_form.readable(raw)
        if raw.get("choices") == []:
            return Completion(readable, raw, usage_of(readable))
        response = self._read(config, place, reply, readable, optional, known, messages, body, bool(json_mode))
        usage = usage_of(readable if "choices" in raw else response)  # litellm has 0 for what was not reported
        cost = (
            self._cost(place, response, raw.get("usage"))
            if usage is not None and len(usage) == len(TOKEN_NAMES)
            else None
        )
        return Completion(response, raw, usage, cost_from(cost, self._connection))

    def _place(self, api_key: str | None) -> Place | None:
        """Return where the model is asked, None where only `acompletion` knows."""
        base = self._connection.api_base
        model, provider, key, resolved = self._litellm.get_llm_provider(
            self._connection.model, api_base=base, api_key=api_key
        )
        if provider != self._provider:
            return None
        return provider_places.filled(Place(model, provider, resolved or base, key or api_key))

    def _optional(self, place: Place, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the parameters as the provider takes them, None where litellm asks by OpenAI's Responses protocol.

        Raises what litellm raises for parameters that it knows the provider not to take.
        """
        key = json.dumps(params), replace(place, api_key=None, headers={})
        if key not in self._mapped:
            if len(self._mapped) >= MAPPED_MAX:
                self._mapped.clear()
            self._mapped[key] = None if _is_bridged(place, params) else _mapped(place, params)
        return copy.deepcopy(self._mapped[key])  # some adapters change what they are given

    def _read(
        self,
        config: Any,
        place: Place,
        reply: HttpReply,
        readable: dict[str, Any],
        optional: dict[str, Any],
        known: dict[str, Any],
        messages: list[dict[str, str]],
        body: dict[str, Any],
        json_mode: bool,
    ) -> Any:
        """Return a reply in litellm's form."""
        from litellm.types import utils

        try:
            return config.transform_response(
                model=place.model,
                raw_response=provider_requests.response_of(reply, readable),
                model_response=utils.ModelResponse(),
                logging_obj=provider_requests.Unlogged(optional),
                request_data=body,
                messages=messages,
                optional_params=optional,
                litellm_params=known,
                encoding=None,
                api_key=place.api_key,
                json_mode=json_mode,
            )
        except Exception as error:  # whatever an adapter meets in a reply that is not as it expects
            model = self._connection.model
            message = f"{model}: the reply cannot be read as a chat completion ({type(error).__name__})."
            raise InvalidAnswer(message) from error

    def _cost(self, place: Place, response: Any, usage: Any) -> float | None:
        """Return the price as the provider reported it or by litellm's list, None where neither says."""
        key = place.model, str(part_of(response, "model"))
        if key in self._unpriced and part_of(usage, "cost") is None:
            return None  # finding that out takes longer than the request
        try:
            return self._litellm.response_cost_calculator(  # type: ignore[no-any-return]
                response_object=response,
                model=place.model,
                custom_llm_provider=place.provider,
                call_type="acompletion",
                optional_params={},
            )
        except Exception:  # noqa: BLE001 (litellm raises plain ones for a model without a price)
            if len(self._unpriced) < MAPPED_MAX:
                self._unpriced.add(key)
            return None


def adapter_of(litellm: ModuleType, connection: Connection) -> ChatAdapter | None:
    """Return the adapter that asks a connection's model, None where `acompletion` has to."""
    provider = connection.model.partition("/")[0]
    return ChatAdapter(litellm, connection, provider) if provider in PROVIDERS else None


def _is_bridged(place: Place, params: Mapping[str, Any]) -> bool:
    from litellm.responses import bridge_check

    given, _ = bridge_check.responses_api_bridge_check(
        model=place.model,
        custom_llm_provider=place.provider,
        tools=params.get("tools"),
        reasoning_effort=params.get("reasoning_effort"),
        api_base=place.api_base,
    )
    return bool(given.get("mode") == "responses")


def _mapped(place: Place, params: Mapping[str, Any]) -> dict[str, Any]:
    from litellm import utils

    given = copy.deepcopy(dict(params))
    mapped = utils.get_optional_params(model=place.model, custom_llm_provider=place.provider, **given)
    return {name: value for name, value in mapped.items() if name not in NOT_SENT}


def _config(place: Place) -> Any:
    from litellm.types import utils as types
    from litellm.utils import ProviderConfigManager

    return ProviderConfigManager.get_provider_chat_config(
        model=place.model, provider=types.LlmProviders(place.provider)
    )
