"""Decision models through litellm: all questions of a collection in one call, answers with distributions.

Jev and its look-alikes, local servers that speak its protocol, and OpenAI's decision models. What they say is kept as
given: the distribution, the provider's own statistic of confidence under the provider's name, and the id of the model
that answered.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.evaluators.decisions import adapters, protocol
from facetline.evaluators.decisions.adapters import Decided
from facetline.evaluators.litellm_adapter import client, connections, truncation
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, Spent, nearest
from facetline.facets.questions import Question

KIND = "decisions"
EXAMPLE = "typesafe/jev-1.14.0"
KEYS = ("kind", *connections.KEYS, *truncation.KEYS)
LIMITS = Limits(question_types=frozenset({"choice", "boolean", "score"}), options_max=255, levels_max=10)
"""Of the protocol (https://docs.typesafe.ai); texts only."""

CONTEXT_TOKENS = 32_768
"""What Jev takes of a body and its longest question; other models' tables say what they take."""

ROOM_MIN = 100
"""Tokens that must be left for a body; questions that leave less are too long for the model."""

HOSTED = (
    "azure",
    "azure_ai",
    "cloudflare",
    "databricks",
    "empiriolabs",
    "eu_jev",
    "fireworks_ai",
    "nace",
    "openai",
    "openrouter",
    "parallel_ai",
    "perplexity",
    "strands_decider",
    "typesafe",
)
LOCAL = ("bespoke", "hosted_vllm", "laya", "lm_studio", "ollama", "ollama_chat")
PROVIDERS = frozenset(HOSTED + LOCAL)
"""Those whose decision protocol litellm speaks, checked here because litellm is not loaded for a definition."""


class Decisions:
    """Ask one decision model.

    Args:
        connection: The model, and where and as whom it is asked.
        long_body: `fail` or `head_tail`, for bodies beyond the context.
        context_tokens: What the model takes of questions and body; None is Jev's.
    """

    def __init__(
        self, connection: Connection, *, long_body: str = truncation.FAIL, context_tokens: int | None = None
    ) -> None:
        self._connection = connection
        self._long_body = long_body
        self._context_tokens = context_tokens or CONTEXT_TOKENS
        self._provider = connection.model.partition("/")[0]
        self._form = protocol.form_of(self._provider)

    @property
    def kind(self) -> str:
        """The kind's name."""
        return KIND

    @property
    def key_env(self) -> str | None:
        """The name of the variable that holds the key; None where the provider's own is taken."""
        return self._connection.api_key_env

    @property
    def identity(self) -> Identity:
        """The model, how long bodies are cut, and the version of what is sent."""
        parameters: dict[str, Any] = {"long_body": self._long_body}
        if self._long_body == truncation.HEAD_TAIL:
            parameters["context_tokens"] = self._context_tokens
        return Identity(KIND, self._connection.model, parameters, protocol.WIRE_VERSION)

    @property
    def limits(self) -> Limits:
        """All kinds of question."""
        return LIMITS

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer all `questions` about `body`, in one provider call.

        Raises:
            EvaluatorUnavailable: try again later.
            EvaluatorMisconfigured: key, account, model or address; or a provider that gives no confidence.
            EvaluationFailed: the body is too long, filtered or refused, or the answers are not whole.
        """
        del key
        fitted = truncation.fit(body, tokens_max=self._room(questions), policy=self._long_body)
        found = await self._decided(self._form.arguments(fitted.text, questions), deadline_s)
        model = getattr(found.response, "model", None) or self._connection.model
        spent = Spent(model, found.usage, found.cost_usd)
        try:
            read = self._form.read(found.response, questions, self._provider)
        except EvaluationFailed as error:
            error.spent = spent  # the call was made, and is paid for
            raise
        return Evaluated(read.answers, model, read.source(), spent.usage, spent.cost_usd, fitted.notes)

    async def _decided(self, asked: dict[str, Any], deadline_s: float) -> Decided:
        """Send one request, through litellm's adapter for the provider or else its own function."""

        async def ask(litellm: ModuleType, key: str | None) -> Decided:
            found = await adapters.decide(litellm, self._connection, key, asked)
            if found is not None:
                return found
            function = getattr(litellm, self._form.function)
            response = await client.called(function, self._connection, key, deadline_s=deadline_s, **asked)
            return Decided(response, client.usage_of(response), client.cost_of(response, self._connection))

        return await client.run(self._connection, ask, deadline_s=deadline_s)

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await client.close()

    def _room(self, questions: Mapping[str, Question]) -> int:
        """Return the tokens that the questions leave for a body."""
        asked = truncation.tokens_of(str(self._form.arguments("", questions)["questions"]))
        room = self._context_tokens - asked
        if room < ROOM_MIN:
            fix = "shorten their descriptions, or say by context_tokens what the model takes"
            of = f"{self._context_tokens} tokens"
            raise EvaluatorMisconfigured(f"The questions alone take about {asked} of the model's {of}: {fix}.")
        return room


def decisions_from_table(table: Mapping[str, Any], problems: list[str]) -> Decisions | None:
    """Return the evaluator that a table describes; what is wrong with it goes into `problems`."""
    connection = connections.connection_from_table(table, problems, example=EXAMPLE)
    policy, context_tokens = truncation.policy_from_table(table, problems)
    provider = connection.model.partition("/")[0]
    if not problems and provider not in PROVIDERS:
        fix = "models that chat are asked by kind = 'chat'"
        problems.append(f"'{provider}' has no decision models{nearest(provider, PROVIDERS)}; {fix}")
    if problems:
        return None
    return Decisions(connection, long_body=policy, context_tokens=context_tokens)
