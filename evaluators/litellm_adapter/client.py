"""The one way to litellm: it is imported here, once and late, and each function call here is one provider call.

Importing litellm takes seconds of processor time, so it happens in a thread, at the first call, and never for a command
that asks no model. What it raises becomes one of ours (`evaluators.litellm_adapter.errors`), with litellm's own as
`__cause__`.
"""

import asyncio
import functools
import gc
import importlib
import logging
import math
import os
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from facetline.evaluators import contract
from facetline.evaluators.litellm_adapter import http, litellm_clients
from facetline.evaluators.litellm_adapter.errors import translated
from facetline.evaluators.litellm_adapter.reply_bound import REPLY_BYTES_MAX
from facetline.facets import native_modules
from facetline.facets.errors import EvaluatorMisconfigured, EvaluatorUnavailable, PipelineError

T = TypeVar("T")

LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
TOKEN_NAMES = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
}
"""Our names of token counts, and those that providers' protocols use."""

SETTINGS = {
    "telemetry": False,
    "suppress_debug_info": True,
    "drop_params": False,  # what a model does not take must be known, not left out silently
    "num_retries": 0,
}
UNLOGGED = "litellm._internal_context"
"""Has the mark of calls that someone else accounts for: without it a third of a call's processor time goes into a
record of it for callbacks that we have none of, and a task is left that waits for the next."""

NOISE = (r"Items? '.+' on TypedDict class", r"Pydantic serializer warnings")
"""Beginnings of warnings about litellm's own types, which users cannot do anything about."""

LOADING_SHARE, LOADING_AGAIN_S = 0.5, 1.0
"""Of a call's time that may go into waiting for litellm, once a process; and when the document is looked at again."""

SILENT = logging.CRITICAL + 1


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and as whom a model is asked. Of this only `model` belongs to an evaluator's identity.

    `model` is litellm's id, "provider/model". `api_key_env` names the variable that holds the key; without it litellm
    looks into the provider's own. `reply_bytes_max` is how much is read of a reply. `table` is where all this is
    configured, as messages say it.
    """

    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    reply_bytes_max: int = REPLY_BYTES_MAX
    table: str = "the evaluator's table"


@dataclass(slots=True)
class _Library:
    """litellm, and how many calls are on their way in this process."""

    litellm: ModuleType
    unlogged: Callable[[], AbstractContextManager[None]]
    calls: int = 0


async def load() -> ModuleType:
    """Return litellm; the first time this takes seconds, in a thread."""
    if _library.cache_info().currsize:
        return _library().litellm
    # Shielded: who gives up waiting does not end it for the others.
    return (await asyncio.shield(asyncio.wrap_future(_loading()))).litellm


@functools.cache
def _loading() -> "Future[_Library]":
    """Begin to load, once: a call each in the loop's own threads would keep those from everybody else meanwhile."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="litellm")
    try:
        return thread.submit(_library)
    finally:
        thread.shutdown(wait=False)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: it takes a third of an import's processor time, and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@functools.cache
def _library() -> _Library:
    # Without it the import asks the network for prices, and leaves a thread behind that tries again.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    native_modules.load("tokenizers")  # a view or the embedded model may need one at the same moment
    with _uncollected():
        litellm = importlib.import_module("litellm")
    for name, value in SETTINGS.items():
        setattr(litellm, name, value)
    litellm_clients.install()
    for words in NOISE:
        warnings.filterwarnings("ignore", words, UserWarning)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(SILENT)  # they print requests, and every error is raised anyway
    return _Library(litellm, importlib.import_module(UNLOGGED).internal_sub_call)


async def call(function_name: str, connection: Connection, *, deadline_s: float, **arguments: Any) -> Any:
    """Make exactly one provider call with litellm's `function_name`, and return what it returned.

    Raises:
        EvaluatorUnavailable, EvaluatorMisconfigured, EvaluationFailed: as `run`.
    """

    async def asked(litellm: ModuleType, key: str | None) -> Any:
        return await called(getattr(litellm, function_name), connection, key, deadline_s=deadline_s, **arguments)

    return await run(connection, asked, deadline_s=deadline_s)


async def called(
    function: Callable[..., Awaitable[Any]], connection: Connection, key: str | None, *, deadline_s: float, **more: Any
) -> Any:
    """Return what one of litellm's own functions returns, which sends exactly one request.

    Raises:
        InvalidAnswer: the reply is longer than the connection's `reply_bytes_max`.
        Exception: whatever litellm raises.
    """
    with litellm_clients.bounded(connection.reply_bytes_max):
        return await function(
            model=connection.model,
            api_base=connection.api_base,
            api_key=key,
            timeout=deadline_s,
            max_retries=0,  # the pipeline owns retries; two libraries below would add theirs
            num_retries=0,
            **more,
        )


async def run(connection: Connection, ask: Callable[[ModuleType, str | None], Awaitable[T]], *, deadline_s: float) -> T:
    """Return what `ask` makes of litellm and the connection's key: exactly one provider call.

    The wall clock is ours: a provider that sends a byte a second is cut off too. The key is read from its variable at
    each call.

    Raises:
        EvaluatorUnavailable: no answer within `deadline_s` seconds, or one that says to try again.
        EvaluatorMisconfigured: no key, or one that is refused; no such model or provider.
        EvaluationFailed: the body is too long, filtered or refused, or the answer cannot be read.
    """
    key = _key(connection)
    try:
        async with asyncio.timeout(deadline_s) as clock:
            litellm = await _loaded(connection, deadline_s)
            with _on_its_way():
                return await ask(litellm, key)
    except PipelineError:
        raise
    except Exception as error:  # litellm's errors have no base class of their own
        if isinstance(error, TimeoutError) and clock.expired():
            message = f"{connection.model} did not answer within {deadline_s:g} s."
            raise EvaluatorUnavailable(message, reason="timeout") from error
        raise translated(error, connection) from error


async def _loaded(connection: Connection, deadline_s: float) -> ModuleType:
    """Return litellm, or say in time that it is not there yet: that is no document's and no provider's fault."""
    try:
        async with asyncio.timeout(deadline_s * LOADING_SHARE):
            return await load()
    except TimeoutError as error:
        message = f"{connection.model} was not asked: litellm is still being loaded."
        raise EvaluatorUnavailable(message, retry_after_s=LOADING_AGAIN_S, counted=False) from error
    except asyncio.CancelledError as error:
        error.add_note(contract.UNSENT)
        raise


@contextmanager
def _on_its_way() -> Iterator[None]:
    library = _library()
    library.calls += 1
    try:
        with library.unlogged():
            yield
    finally:
        library.calls -= 1


def _key(connection: Connection) -> str | None:
    if connection.api_key_env is None:
        return None
    key = os.environ.get(connection.api_key_env, "").strip()
    if not key:
        raise EvaluatorMisconfigured(f"{connection.api_key_env} is not set. Set it and restart the server.")
    return key


def usage_of(response: Any) -> dict[str, int] | None:
    """Return the token counts that the provider reported (`input_tokens`, `output_tokens`), or None."""
    usage = response.get("usage") if isinstance(response, Mapping) else getattr(response, "usage", None)
    found: dict[str, int] = {}
    for name, theirs in TOKEN_NAMES.items():
        counts = [_count(usage, their) for their in theirs]
        known = [count for count in counts if count is not None]
        if known:
            found[name] = known[0]
    # litellm fills in zeros for what a provider did not say, and no call takes no tokens.
    return found if any(found.values()) else None


def _count(usage: Any, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def cost_of(response: Any, connection: Connection) -> float | None:
    """Return the call's price in dollars: as the provider reported it or by litellm's list; None when unknown."""
    hidden = getattr(response, "hidden_params", None) or getattr(response, "_hidden_params", None) or {}
    return cost_from(hidden.get("response_cost"), connection)


def cost_from(cost: Any, connection: Connection) -> float | None:
    """Return a price that litellm found, None where it is no amount, or 0 for a model that it does not list."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost) or cost < 0:
        return None
    if cost == 0 and not _is_listed(connection.model):
        return None  # a model without a known price is not free
    return float(cost)


def _is_listed(model: str) -> bool:
    names = _library().litellm.model_cost
    return model in names or model.partition("/")[2] in names


async def close() -> None:
    """Close litellm's connections, so that nothing is left when the loop ends; later calls open new ones.

    They are shared: while another evaluator's call is on its way they stay open, for the one that closes last.
    """
    if not _library.cache_info().currsize or _library().calls:
        return
    await http.close()
    litellm = _library().litellm
    await litellm.close_litellm_async_clients()
    if "module_level_aclient" in vars(litellm):  # some providers have this one for all, and that function forgets it
        await litellm.module_level_aclient.close()
    litellm.in_memory_llm_clients_cache.flush_cache()
