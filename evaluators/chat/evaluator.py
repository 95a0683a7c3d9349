"""Any chat model as an evaluator, through litellm: all questions of a collection in one completion.

The sheet of questions (`chat_sheet`) becomes a request (`chat_prompt`, `chat_shapes`), and the one reply to it
(`chat_reply`) answers (`chat_answers`, `token_mass`) or fails. What the model can take is not looked up but found out,
and remembered for as long as the process runs: see `chat_shapes`.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import structlog

from facetline.evaluators.chat import adapters, question_codes, reply, request_modes
from facetline.evaluators.chat import answers as chat_answers
from facetline.evaluators.chat import prompt as chat_prompt
from facetline.evaluators.chat import settings as chat_settings
from facetline.evaluators.chat.adapters import ChatAdapter, Completion
from facetline.evaluators.chat.logprobs import part_of
from facetline.evaluators.chat.prompt import PROMPT_VERSION, Prompt
from facetline.evaluators.chat.question_codes import Order, Sheet
from facetline.evaluators.chat.reply import Misplaced
from facetline.evaluators.chat.request_modes import Mode
from facetline.evaluators.chat.settings import LOGPROBS, PERMUTED, VERBAL, Settings
from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.evaluators.litellm_adapter import client, connections, truncation
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.evaluators.litellm_adapter.truncation import Fitted
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable, PipelineError, Spent
from facetline.facets.questions import Question

KIND = "chat"
EXAMPLE = "openai/gpt-4.1-mini"
KEYS = ("kind", *connections.KEYS, *chat_settings.KEYS, *truncation.KEYS)
LIMITS = Limits(
    question_types=frozenset({"choice", "boolean", "score"}),
    options_max=question_codes.OPTIONS_MAX,
    levels_max=question_codes.LEVELS_MAX,
)
STEPS_MAX = 16
"""More than there is to take away from a request."""

ROOM_MIN = 100
"""Tokens that must be left for a body; questions that leave less are too long for the model."""

PROMPTS_KEPT = 64
"""Collections that ask the same evaluator; a prompt takes some kilobytes."""

ABOUT_THE_BODY = frozenset({"too_long", "content_filter", "refused"})
"""Reasons that no other request mode fixes."""

log = structlog.get_logger(__name__)


class Chat:
    """Ask one chat model.

    Args:
        connection: The model, and where and as whom it is asked.
        settings: What answers depend on besides.
        long_body: `fail` or `head_tail`, for bodies beyond the context.
        context_tokens: What the model takes of questions, body and reply; None leaves it to the provider to say.
        nonce: Draws what a body cannot know, for every call.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings | None = None,
        *,
        long_body: str = truncation.FAIL,
        context_tokens: int | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._connection = connection
        self._settings = settings or Settings()
        self._long_body = long_body
        self._context_tokens = context_tokens
        self._nonce = nonce
        self._mode = self._settings.first_mode
        self._is_looked_up = False
        self._adapter: ChatAdapter | None = None
        self._prompts: dict[tuple[int, bool], tuple[Mapping[str, Question], Prompt]] = {}

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
        """The model, the table's parameters, how long bodies are cut, and the version of the words it is asked with."""
        parameters = {**self._settings.parameters, "long_body": self._long_body}
        if self._long_body == truncation.HEAD_TAIL:
            parameters["context_tokens"] = self._context_tokens
        return Identity(KIND, self._connection.model, parameters, PROMPT_VERSION)

    @property
    def limits(self) -> Limits:
        """All kinds of question."""
        return LIMITS

    @property
    def mode(self) -> Mode:
        """How the model is asked now."""
        return self._mode

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer all `questions` about `body`, in one provider call.

        Raises:
            EvaluatorUnavailable: try again; uncounted where this call found out how to ask the next one.
            EvaluatorMisconfigured: the model refuses what the table sets, or every way of asking.
            EvaluationFailed: the model refuses the body, or its reply is no answer.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + deadline_s
        await self._look_up(deadline_s)
        for _ in range(STEPS_MAX):
            mode = self._mode
            prompt = self._prompt(questions, key, letters=mode.with_letters)
            fitted = self._fitted(body, prompt, mode)
            request = self._request(mode, prompt, fitted.text)
            try:
                response = await self._complete(request, until_s - clock())
            except PipelineError as error:
                self._refused(mode, error)
                continue
            return self._evaluated(response, mode, prompt.sheet, fitted.notes)
        raise EvaluatorMisconfigured(f"{self._connection.model} refuses every way of asking it.")

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await client.close()

    async def _look_up(self, deadline_s: float) -> None:
        """Give room for thoughts from the start where litellm's list says that the model has some."""
        if self._is_looked_up:
            return
        try:
            async with asyncio.timeout(deadline_s):
                listed = (await client.load()).model_cost
        except TimeoutError as error:
            message = f"litellm was not loaded within {deadline_s:g} s."
            raise EvaluatorUnavailable(message, reason="timeout") from error
        except ImportError:
            return  # the call says so in full
        self._is_looked_up = True
        model = self._connection.model
        known = listed.get(model) or listed.get(model.partition("/")[2]) or {}
        if known.get("supports_reasoning"):
            self._mode = request_modes.with_more_tokens(self._mode) or self._mode

    async def _complete(self, request: dict[str, Any], deadline_s: float) -> Completion:
        """Send one request, through litellm's adapter for the provider or else its `acompletion`."""

        async def ask(litellm: ModuleType, key: str | None) -> Completion:
            if self._adapter is None:
                self._adapter = adapters.adapter_of(litellm, self._connection)
            if self._adapter is not None:
                messages, params = request["messages"], {k: v for k, v in request.items() if k != "messages"}
                found = await self._adapter.complete(key, messages, params)
                if found is not None:
                    return found
            response = await client.called(litellm.acompletion, self._connection, key, deadline_s=deadline_s, **request)
            cost = client.cost_of(response, self._connection)
            return Completion(response, None, client.usage_of(response), cost)

        return await client.run(self._connection, ask, deadline_s=deadline_s)

    def _prompt(self, questions: Mapping[str, Question], key: str, *, letters: bool) -> Prompt:
        """Return what is asked with; it is made again only where it depends on the document."""
        if self._settings.option_order == PERMUTED:
            return self._made(questions, question_codes.permuted(self._settings.seed or 0, key), letters)
        known = self._prompts.get((id(questions), letters))
        if known is None or known[0] is not questions:
            if len(self._prompts) >= PROMPTS_KEPT:
                self._prompts.clear()
            known = questions, self._made(questions, question_codes.fixed, letters)
            self._prompts[id(questions), letters] = known
        return known[1]

    def _made(self, questions: Mapping[str, Question], order: Order, letters: bool) -> Prompt:
        sure = self._settings.confidence == VERBAL
        sheet = question_codes.sheet_of(questions, order=order, letters=letters, sure=sure)
        return chat_prompt.prompt_of(sheet, extra=self._settings.instructions)

    def _fitted(self, body: str, prompt: Prompt, mode: Mode) -> Fitted:
        """Return as much of `body` as the context has room for beside questions and reply."""
        if self._context_tokens is None:
            return truncation.fit(body, tokens_max=len(body), policy=truncation.FAIL)
        asked = truncation.tokens_of(prompt.instructions) + truncation.tokens_of(str(prompt.schema))
        room = self._context_tokens - asked - request_modes.tokens_max(mode, prompt)
        if room < ROOM_MIN:
            fix = "shorten them, or say by context_tokens what the model takes"
            of = f"the model's {self._context_tokens} tokens"
            raise EvaluatorMisconfigured(f"Questions (about {asked} tokens) and reply leave no room in {of}: {fix}.")
        return truncation.fit(body, tokens_max=room, policy=self._long_body)

    def _request(self, mode: Mode, prompt: Prompt, body: str) -> dict[str, Any]:
        nonce = self._nonce()
        while nonce in body:
            nonce = self._nonce()
        return request_modes.request(mode, prompt, body=body, nonce=nonce)

    def _refused(self, mode: Mode, error: PipelineError) -> None:
        """Take away what `error` refuses, and return if nothing was sent yet; else raise what this call comes to."""
        cause = error.__cause__
        about_body = isinstance(error, EvaluationFailed) and error.reason in ABOUT_THE_BODY
        part = None if about_body else request_modes.refused_part(cause, mode)
        if part is None:
            raise error
        less = request_modes.without(mode, part)
        if less is None:
            raise EvaluatorMisconfigured(_nothing_left(mode, part, error.message)) from error
        self._learn(mode, less, part)
        if not request_modes.before_sending(cause):
            raise self._retry_with_mode(f"refused {part}: {error.message}") from error

    def _evaluated(self, found: Completion, mode: Mode, sheet: Sheet, notes: Mapping[str, Any] | None) -> Evaluated:
        model = part_of(found.response, "model") or self._connection.model
        spent = Spent(str(model), found.usage, found.cost_usd)
        try:
            answers = chat_answers.answers(reply.reply_of(found.response, found.raw), sheet)
        except reply.CutOff as error:
            more = request_modes.with_more_tokens(mode)
            if more is None:
                error.spent = spent
                raise
            self._learn(mode, more, "max_tokens")
            raise self._retry_with_mode("ran out of tokens", spent) from error
        except reply.Misplaced as error:
            self._look_elsewhere(error, mode, sheet, spent)
            error.spent = spent
            raise
        except chat_answers.Undecided as error:
            self._learn(mode, request_modes.without(mode, "letters") or mode, "logprobs")
            raise self._retry_with_mode("has no usable token probabilities", spent) from error
        except (EvaluationFailed, EvaluatorUnavailable) as error:
            error.spent = spent  # the call was made, and is paid for
            raise
        confident = any(answer.confidence is not None for answer in answers.values())
        source = VERBAL if self._settings.confidence == VERBAL else LOGPROBS
        return Evaluated(answers, model, source if confident else None, spent.usage, spent.cost_usd, notes)

    def _look_elsewhere(self, error: Misplaced, mode: Mode, sheet: Sheet, spent: Spent) -> None:
        """Ask in the next form where the answer itself stood among the thoughts; mere thoughts are none."""
        less = request_modes.without(mode, "shape")
        if less is None:
            return
        try:
            chat_answers.read(error.text, sheet)
        except EvaluationFailed:
            return
        self._learn(mode, less, "shape")
        raise self._retry_with_mode("put its answer among its thoughts", spent) from error

    def _learn(self, mode: Mode, better: Mode, part: str) -> None:
        """Ask in the `better` mode from now on, unless another call has found out something meanwhile."""
        if self._mode == mode:
            self._mode = better
            log.info("chat_request_changed", model=self._connection.model, part=part, shape=better.shape)

    def _retry_with_mode(self, what: str, spent: Spent | None = None) -> EvaluatorUnavailable:
        message = f"{self._connection.model} {what}; it is asked in another way from now on."
        return EvaluatorUnavailable(message, counted=False, spent=spent)


def _nothing_left(mode: Mode, part: str, words: str) -> str:
    key = {"shape": "output", "limit": "max_output_tokens"}.get(part, part)
    if part in mode.fixed or part == "limit":
        return f"The model does not take what the evaluator's table sets by {key}; change or delete it. {words}"
    return f"The model refuses every way of asking it: {', '.join(request_modes.SHAPES)}. {words}"


def chat_from_table(table: Mapping[str, Any], problems: list[str]) -> Chat | None:
    """Return the evaluator that a table describes; what is wrong with it goes into `problems`."""
    connection = connections.connection_from_table(table, problems, example=EXAMPLE)
    settings = chat_settings.settings_from_table(table, problems)
    policy, context_tokens = truncation.policy_from_table(table, problems)
    if policy == truncation.HEAD_TAIL and context_tokens is None:
        problems.append(
            "long_body = 'head_tail' needs context_tokens: what the model takes of questions, body and reply"
        )
    if problems:
        return None
    return Chat(connection, settings, long_body=policy, context_tokens=context_tokens)
