"""The library that asks models takes seconds to load: nobody is blamed for that, and nobody else waits for it.

Method: a small library of the same name, which loads for as long as the test wants, in an interpreter of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LIBRARY = """
import pathlib, time

while not (pathlib.Path(__file__).parent / "go").exists():
    time.sleep(0.005)


async def ask(**arguments):
    return arguments
"""
CONTEXT = "from contextlib import nullcontext as internal_sub_call\n"
CLIENTS = {
    "llms/custom_httpx/http_handler.py": """
class AsyncHTTPHandler:
    def create_client(self): ...

class HTTPHandler:
    def create_client(self): ...
""",
    "llms/openai/common_utils.py": """
class BaseOpenAILLM:
    @staticmethod
    def _get_async_http_client(): ...
""",
}

CALLS = """
import asyncio, pathlib, sys

from facetline.evaluators import contract
from facetline.evaluators.litellm_adapter import client as models
from facetline.facets.errors import EvaluatorUnavailable

CONNECTION = models.Connection("openai/x")


async def refused():
    try:
        await models.call("ask", CONNECTION, deadline_s=0.1)
    except EvaluatorUnavailable as error:
        return error.counted, error.retry_after_s, str(error)


async def cut(task):
    try:
        await task
    except asyncio.CancelledError as error:
        return error.__notes__


async def main():
    for told in await asyncio.gather(*(refused() for _ in range(50))):
        assert told == (False, 1.0, "openai/x was not asked: litellm is still being loaded."), told
    waiting = asyncio.create_task(models.call("ask", CONNECTION, deadline_s=60))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await cut(waiting) == [contract.UNSENT]
    async with asyncio.timeout(5):
        await asyncio.to_thread((pathlib.Path(sys.argv[1]) / "go").touch)
    said = await models.call("ask", CONNECTION, deadline_s=60)
    assert (said["max_retries"], said["num_retries"], said["timeout"]) == (0, 0, 60)


asyncio.run(main())
"""


def test_calls_before_it_is_loaded_are_on_nobodys_account(tmp_path: Path):
    """They end in time, uncounted, and the loop's own threads stay free; once it is there the call is made. Who is cut
    off before says that nothing was sent.
    """
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text(LIBRARY)
    (package / "_internal_context.py").write_text(CONTEXT)
    for path, text in CLIENTS.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text)
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))

    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(package)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
