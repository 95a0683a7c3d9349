"""One provider's request, built by litellm's adapter for it: address, headers and body."""

import functools
import os
from typing import Any

from facetline.evaluators.litellm_adapter.http import HttpReply
from facetline.evaluators.litellm_adapter.provider_places import Place

URLS_KEPT = 256


class Unlogged:
    """Stands in for litellm's record of a call, which adapters write to."""

    def __init__(self, optional: dict[str, Any]) -> None:
        self.optional_params = optional
        self.model_call_details: dict[str, Any] = {}
        self.litellm_params: dict[str, Any] = {}

    def pre_call(self, *_: Any, **__: Any) -> None:
        """Forget it."""

    post_call = pre_call


@functools.cache
def _parsed_response() -> Any:
    import httpx

    class Parsed(httpx.Response):
        """A response whose JSON was read already."""

        read_as: Any = None

        def json(self, **_: Any) -> Any:
            return self.read_as

    return Parsed


@functools.lru_cache(URLS_KEPT)
def _asked(url: str) -> Any:
    import httpx

    return httpx.Request("POST", url)


def response_of(reply: HttpReply, read: Any) -> Any:
    """Return a reply as the adapters take it; `read` is what it is as JSON."""
    gone = ("content-encoding", "content-length", "transfer-encoding")  # it was read and decompressed
    headers = {name: value for name, value in reply.headers.items() if name not in gone}
    response = _parsed_response()(reply.status, headers=headers, content=reply.body, request=_asked(reply.url))
    response.read_as = read
    return response


def request(
    config: Any,
    place: Place,
    messages: list[Any],
    optional: dict[str, Any],
    known: dict[str, Any],
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return address, headers and body. Azure's and Gemini's adapters have other names for them."""
    if place.provider == "gemini":
        return _gemini(place, messages, optional, known)
    if place.provider == "azure":
        url, headers = _azure(place)
    else:
        headers = config.validate_environment(
            headers={**config.get_attribution_headers(), **place.headers},
            model=place.model,
            messages=messages,
            optional_params=optional,
            litellm_params=known,
            api_key=place.api_key,
            api_base=place.api_base,
        )
        url = config.get_complete_url(
            api_base=place.api_base,
            api_key=place.api_key,
            model=place.model,
            optional_params=optional,
            litellm_params=known,
            stream=False,
        )
    body = config.transform_request(
        model=place.model,
        messages=[dict(message) for message in messages],
        optional_params=optional,
        litellm_params=known,
        headers=headers,
    )
    return url, headers, body


def _gemini(
    place: Place, messages: list[Any], optional: dict[str, Any], known: dict[str, Any]
) -> tuple[str, dict[str, str], dict[str, Any]]:
    from litellm.llms.vertex_ai.gemini import transformation
    from litellm.llms.vertex_ai.gemini import vertex_and_google_ai_studio_gemini as studio

    token, url = studio.VertexLLM()._get_token_and_url(  # noqa: SLF001 (litellm has no public name for it)
        model=place.model,
        auth_header=None,
        gemini_api_key=place.api_key,
        vertex_project=None,
        vertex_location=None,
        vertex_credentials=None,
        stream=False,
        custom_llm_provider="gemini",
        api_base=place.api_base,
    )
    headers = studio.VertexGeminiConfig().validate_environment(
        api_key=token,
        headers={},
        model=place.model,
        messages=messages,
        optional_params=optional,
        litellm_params=known,
    )
    unlogged: Any = Unlogged(optional)
    copies: list[Any] = [dict(message) for message in messages]
    body = transformation.sync_transform_request_body(
        gemini_api_key=place.api_key,
        messages=copies,
        api_base=place.api_base,
        model=place.model,
        client=None,
        timeout=None,
        extra_headers=None,
        optional_params=optional,
        logging_obj=unlogged,
        custom_llm_provider="gemini",
        litellm_params=known,
        vertex_project=None,
        vertex_location=None,
        vertex_auth_header=None,
        context_caching=False,
    )
    return url, headers, dict(body)


def _azure(place: Place) -> tuple[str, dict[str, str]]:
    import litellm
    from litellm.llms.azure import common_utils
    from litellm.types.router import GenericLiteLLMParams

    version = os.environ.get("AZURE_API_VERSION") or litellm.AZURE_DEFAULT_API_VERSION
    base = common_utils.BaseAzureLLM
    headers = base.base_validate_azure_environment({}, GenericLiteLLMParams(api_key=place.api_key))
    route = f"/openai/deployments/{place.model}/chat/completions"
    if base.is_azure_v1_api_version(version):
        route = "/openai/chat/completions"
    return base.get_base_azure_url(place.api_base, {"api_version": version}, route), headers
