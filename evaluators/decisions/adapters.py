"""Decision requests by litellm's provider adapters: they build the request and read the reply, `model_http` sends it.

As `chat_adapters`, for the decision protocol. Where an adapter would fetch a token or sign with AWS, litellm's own
function sends the request.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from facetline.evaluators.litellm_adapter import http, provider_requests, reply_form
from facetline.evaluators.litellm_adapter.client import Connection, cost_from, usage_of
from facetline.facets.errors import EvaluatorMisconfigured

WITH_TOKEN = frozenset({"azure_ai", "databricks"})
"""Fetch a token before they ask, where the connection has no key."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision model's reply in litellm's form, the tokens that it took, and its price."""

    response: Any
    usage: dict[str, int] | None
    cost_usd: float | None


class UnexpectedReply(Exception):
    """litellm's adapter refuses a reply; its words say why."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


async def decide(
    litellm: ModuleType, connection: Connection, api_key: str | None, asked: Mapping[str, Any]
) -> Decided | None:
    """Send one request and return the reply, None where only litellm's own function knows how to send it.

    `asked` is a form's `arguments`.

    Raises:
        ReplyRefused: the server refused, or its reply names an error.
        UnexpectedReply: the reply is none that the protocol knows.
        InvalidAnswer: it is not JSON.
    """
    if api_key is None and connection.model.partition("/")[0] in WITH_TOKEN:
        return None
    from litellm.decisions import call as calls
    from litellm.types.decisions import UnsupportedDecisionsRequest

    listed = "input" in asked
    fields: Any = calls.OpenAIDecisionRequestFields(**asked) if listed else calls.SystemOneRequestFields(**asked)
    call = calls.prepare_call(
        model=connection.model,
        fields=fields,
        safety_identifier=None,
        api_key=api_key,
        api_base=connection.api_base,
        timeout=None,
        custom_llm_provider=None,
        extra_headers=None,
        kwargs={},
    )
    config = call.provider_config
    if config.signs_with_aws(call.api_base):
        return None
    body = config.transform_decisions_request(
        model=call.model, request=call.ir_request, custom_llm_provider=call.custom_llm_provider
    )
    if isinstance(body, UnsupportedDecisionsRequest):
        raise EvaluatorMisconfigured(f"{connection.model} cannot be asked this: {body.reason}")
    headers = config.validate_environment(
        headers=call.headers, model=call.model, api_key=call.api_key, litellm_params={}
    )
    url = config.get_complete_url(api_base=call.api_base, model=call.model)
    headers, signed = config.sign_request(
        headers=headers, url=url, api_base=call.api_base, body=body, api_key=call.api_key, litellm_params={}
    )
    reply = await http.post(
        url,
        headers={"Content-Type": "application/json", **headers},
        data=json.dumps(dict(body)).encode() if signed is None else signed,
        reply_bytes_max=connection.reply_bytes_max,
    )
    raw = reply_form.object_of(reply, connection.model)
    try:
        found = config.transform_decisions_response(
            model=call.model,
            custom_llm_provider=call.custom_llm_provider,
            raw_response=provider_requests.response_of(reply, raw),
            request=call.ir_request,
        )
        made = calls._format_response(found, call)  # noqa: SLF001 (litellm has no public name for it)
    except Exception as error:
        raise UnexpectedReply(str(getattr(error, "message", None) or error)) from error
    price = _cost(litellm, made, call, "adecisions" if listed else "asystemone")
    return Decided(made, usage_of(made), cost_from(price, connection))


def _cost(litellm: ModuleType, made: Any, call: Any, function: str) -> float | None:
    try:
        return litellm.response_cost_calculator(  # type: ignore[no-any-return]
            response_object=made,
            model=call.model,
            custom_llm_provider=call.custom_llm_provider,
            call_type=function,
            optional_params={},
        )
    except Exception:  # noqa: BLE001 (litellm raises plain ones for a model without a price)
        return None
