"""Calls to hosted models, through litellm over HTTP to a server on loopback that is a process of its own.

`model_calls_decisions`, `model_calls_chat`: processor time of one call at no delay, from an evaluator's `evaluate` to
answers that the validator has passed. Baseline: litellm's own function with the same request, the reply thrown away.

`model_calls_100ms`: documents a second that a side chain over SQLite gets answered with 64 calls at once, each 100 ms.
Baseline: litellm alone, 64 tasks that ask about the same bodies.

`model_calls_chat_100ms`: the same with a chat model. Baseline: the same pipeline with an evaluator that sends a fixed
request through the same HTTP client and reads the reply with `json.loads`, nothing else.

`model_calls_import`: processor time of loading all that a first call needs, in a process of its own. Baseline: of
`import litellm` alone, as Python does it.

`model_calls_processes`: documents a second that two worker processes on one PostgreSQL get answered, with 64 calls at
once each, of 800 ms: slow enough for slots to be the limit, and not the cores, which server, database and workers
share. Baseline: one of them.

`model_calls_storm`: requests for each document through a provider that takes 32 a second, refuses more (429 with a
Retry-After) and is away for three seconds. Baseline: one, which no client can reach that does not know the rate.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import model_server
import sample
import services
import side_chain
import workers
from figures import Figure, interleaved
from model_storm import Storm

from facetline.evaluators import validation
from facetline.evaluators.chat import answers, question_codes
from facetline.evaluators.chat import prompt as chat_prompt
from facetline.evaluators.chat import reply as chat_reply
from facetline.evaluators.chat.evaluator import Chat
from facetline.evaluators.contract import Evaluated, Evaluator, Identity, Limits
from facetline.evaluators.decisions.evaluator import Decisions
from facetline.evaluators.litellm_adapter import client, http
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets.errors import EvaluatorUnavailable
from facetline.facets.questions import Question
from facetline.storage.db import opening
from facetline.storage.log import documents
from facetline.streams.background import classifying
from facetline.streams.classify.call import Assignment, CallLimits

VARIABLE = "BENCH_MODEL_KEY"
HERE = Path(__file__).resolve().parent
HELPERS, SERVICES = HERE.parent / "helpers", HERE.parent / "services"
CALLS = 400
AT_ONCE = 8
CALLS_TO_LEARN = 5
DOCUMENTS = 1_000
DELAY_S = 0.1
SLOW_S = 0.8
STORMED = 300
ROUNDS = 3
ALONE = "import litellm"
OURS = "import asyncio; from facetline.evaluators.litellm_adapter import client; asyncio.run(client.load())"
LIMIT_S = 300.0

Ask = Callable[[int], Awaitable[object]]


async def measure() -> AsyncIterator[Figure]:
    """Measure them."""
    os.environ[VARIABLE] = "sk-bench-0123456789"
    await client.load()
    with _server(0.0) as url:
        decisions, chat = _decisions(url), Chat(Connection("openai/bench", f"{url}/v1", VARIABLE))
        await _known(decisions)
        await _known(chat)
        yield await _compared("decisions", _ours(decisions), _bare(decisions))
        yield await _compared("chat", _ours(chat), _bare_chat(chat))
        await client.close()
    with _server(DELAY_S) as url:
        decisions = _decisions(url)
        alone = _bare(decisions)
        found = await interleaved(ROUNDS, alone=lambda: _a_second(alone), chain=lambda: _chain(decisions))
        yield Figure("model_calls_100ms", found["chain"], "documents/s", found["alone"])
        await client.close()
    with _server(DELAY_S) as url:
        chat, plain = Chat(Connection("openai/bench", f"{url}/v1", VARIABLE)), _Plain(f"{url}/v1/chat/completions")
        await _known(chat)
        found = await interleaved(ROUNDS, plain=lambda: _chain(plain), chat=lambda: _chain(chat))
        yield Figure("model_calls_chat_100ms", found["chat"], "documents/s", found["plain"])
        await client.close()
    found = await interleaved(ROUNDS, alone=lambda: _loading(ALONE), ours=lambda: _loading(OURS))
    yield Figure("model_calls_import", found["ours"], "s of CPU", found["alone"])
    with _server(SLOW_S) as url, services.postgres() as admin_url:
        found = await interleaved(
            ROUNDS, one=lambda: _by_processes(url, admin_url, 1), two=lambda: _by_processes(url, admin_url, 2)
        )
        yield Figure("model_calls_processes", found["two"], "documents/s", found["one"])
    yield Figure("model_calls_storm", await _stormed(), "requests/document", 1.0)
    await client.close()


async def _by_processes(model_url: str, admin_url: str, count: int) -> float:
    with ExitStack() as stack:
        store_url = stack.enter_context(services.database(admin_url))
        store = await opening.open_store(store_url)
        stack.callback(store.engine.dispose)
        await side_chain.written(store, DOCUMENTS)
        children = [stack.enter_context(_child(model_url, store_url)) for _ in range(count)]
        for child in children:
            await asyncio.to_thread(_told, child)
        started_s = time.perf_counter()
        for child in children:
            _tell(child, "go")

        async def all_answered() -> bool:
            return (await store.read(documents.counts))["tickets"].get("pending", 0) == 0

        await workers.until(all_answered, LIMIT_S)
        took_s = time.perf_counter() - started_s
        await store.close()
        return DOCUMENTS / took_s


@contextmanager
def _child(model_url: str, store_url: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, str(HERE / "asking_child.py"), model_url]
    path = os.pathsep.join((str(HERE), str(HELPERS), str(SERVICES), str(HERE.parents[1])))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes) as process:
        try:
            _tell(process, store_url)
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _told(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


async def _stormed() -> float:
    plan = Storm(in_window=8, window_s=0.25, away_after=STORMED // 3, away_s=3.0)
    with model_server.serving(plan) as server:
        await _chain(_decisions(server.url), STORMED)
        return len(server.requests) / STORMED


async def _compared(name: str, ours: Ask, bare: Ask) -> Figure:
    found = await interleaved(ROUNDS, bare=lambda: _cpu_ms(bare), ours=lambda: _cpu_ms(ours))
    return Figure(f"model_calls_{name}", found["ours"], "ms of CPU a call", found["bare"])


async def _known(evaluator: Evaluator) -> None:
    """Ask until the evaluator knows how: a chat model's first calls may be refused in part."""
    for _ in range(CALLS_TO_LEARN):
        with suppress(EvaluatorUnavailable):
            await _ours(evaluator)(0)


@contextmanager
def _server(delay_s: float) -> Iterator[str]:
    command = [sys.executable, str(SERVICES / "model_server.py"), "0", str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def _decisions(url: str) -> Decisions:
    return Decisions(Connection("typesafe/jev-1.14.0", url, VARIABLE))


def _ours(evaluator: Evaluator) -> Ask:
    async def ask(number: int) -> None:
        said = await evaluator.evaluate(sample.body(number), sample.QUESTIONS, key="t1", deadline_s=60)
        validation.check_evaluated(sample.QUESTIONS, said)

    return ask


class _Plain:
    """An evaluator that knows its questions and sends the least that a chat server answers."""

    kind = "plain"
    identity = Identity("plain", "bench")
    limits = Limits(frozenset({"choice", "boolean", "score"}), 255, 10)

    def __init__(self, url: str) -> None:
        self._url = url
        sheet = question_codes.sheet_of(sample.QUESTIONS, order=question_codes.fixed, letters=False, sure=False)
        self._sheet = sheet
        self._schema = chat_prompt.prompt_of(sheet).schema

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": self._schema}}
        asked = {"model": "bench", "messages": [{"role": "user", "content": body}], "response_format": form}
        headers = {"Authorization": f"Bearer {os.environ[VARIABLE]}", "Content-Type": "application/json"}
        reply = await http.post(self._url, headers=headers, data=json.dumps(asked).encode(), reply_bytes_max=1_000_000)
        text = json.loads(reply.body)["choices"][0]["message"]["content"]
        return Evaluated(answers.answers(chat_reply.Reply(text), self._sheet), "bench")

    async def close(self) -> None:
        """Nothing is open."""


async def _loading(code: str) -> float:
    script = f"import time; t = time.process_time(); {code}; print(time.process_time() - t)"
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def _bare(evaluator: Decisions) -> Ask:
    connection, form = evaluator._connection, evaluator._form

    async def ask(number: int) -> None:
        litellm = await client.load()
        request = form.arguments(sample.body(number), sample.QUESTIONS)
        where = {"api_base": connection.api_base, "api_key": os.environ[VARIABLE]}
        await litellm.asystemone(model=connection.model, timeout=60, **where, **request)

    return ask


def _bare_chat(evaluator: Chat) -> Ask:
    connection, mode = evaluator._connection, evaluator.mode
    prompt = evaluator._prompt(sample.QUESTIONS, "t1", letters=mode.with_letters)

    async def ask(number: int) -> None:
        litellm = await client.load()
        request = evaluator._request(mode, prompt, sample.body(number))
        where = {"api_base": connection.api_base, "api_key": os.environ[VARIABLE]}
        await litellm.acompletion(model=connection.model, timeout=60, max_retries=0, **where, **request)

    return ask


async def _asked(ask: Ask, count: int, at_once: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await ask(number)

    await asyncio.gather(*(work() for _ in range(at_once)))


async def _cpu_ms(ask: Ask, count: int = CALLS) -> float:
    busy_s = time.process_time()
    await _asked(ask, count, AT_ONCE)
    return (time.process_time() - busy_s) / count * 1000


async def _a_second(ask: Ask) -> float:
    started_s = time.perf_counter()
    await _asked(ask, DOCUMENTS, sample.SLOTS)
    return DOCUMENTS / (time.perf_counter() - started_s)


async def _chain(evaluator: Evaluator, count: int = DOCUMENTS) -> float:
    assignments = {"tickets": Assignment(sample.definition(), evaluator, CallLimits(concurrency=sample.SLOTS))}
    with TemporaryDirectory() as folder:
        store = await opening.open_store(f"sqlite:///{Path(folder) / 'store.db'}")
        try:
            await side_chain.written(store, count)
            started_s = time.perf_counter()
            async with classifying(store, assignments, grace_s=1.0, memo_rows_max=1_000_000) as work:

                async def all_stored() -> bool:
                    return work.side_chain.stats.stored >= count

                await workers.until(all_stored, LIMIT_S, 0.005)
                return count / (time.perf_counter() - started_s)
        finally:
            await store.close()
