"""docs/agents.md says what is so: its programs run, its configurations start, its tables are the code's.

Method: one real `facetline serve` over the project of the reference; the libraries of models are small stand-ins with a
scripted reply (`helpers/model_sdks`), everything else is as a reader has it.
"""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import commands
import documented
import pytest
from commands import COMMAND, Place
from mcp import Client, StdioServerParameters
from serving import serve_process

from facetline.facets.agents import rendering, tools
from facetline.facets.client.client import AsyncClient
from facetline.facets.client.client import Client as PythonClient
from facetline.facets.client.memory import WRITES_MAX

PAGE = "docs/agents.md"
TEXT = documented.text_of(PAGE)
PROGRAMS = documented.blocks(PAGE, "py")
ADDRESS = "http://127.0.0.1:8080"
SDKS = commands.HELPERS / "model_sdks"
RUN = "import sys\nfor block in sys.argv[1:]:\n    exec(block, {'__name__': 'block'})\n    print('=====')\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with the project and its documents."""
    return documented.imported(tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="module")
def url(place: Place) -> Iterator[str]:
    """Where it is served."""
    with serve_process(place) as server:
        yield server.url


@pytest.mark.timeout(300)
def test_every_program_of_the_agents_page_runs(place: Place, url: str):
    """Each program runs as it stands: models are told what the tools say, and the client does what the page says."""
    path = os.pathsep.join([str(SDKS), str(commands.ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", RUN, *(block.text.replace(ADDRESS, url) for block in PROGRAMS)],
        cwd=place.folder,
        env={**commands.environment({}), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    openai, anthropic, langchain, python, rest = done.stdout.split("=====\n")

    assert openai.startswith("openai was told: tickets/t1  topic=billing 0.93")
    assert "3 of" not in openai
    assert anthropic.startswith("anthropic was told: Error: 'topic' cannot be 'biling' (did you mean 'billing'?)")
    assert "total, no more pages" in langchain
    assert "did you mean 'billing'?" in python
    assert "succeeded {" in python
    assert rest == ""


@pytest.mark.timeout(300)
async def test_each_configuration_starts_a_server_with_the_tools(place: Place, url: str):
    """The command and arguments of each configuration start a server that lists the tools."""
    found = [json.loads(block.text) for block in documented.blocks(PAGE, "json") if "mcp" in block.words]
    for each in found:
        given = each["mcpServers"]["facetline"]
        assert given["command"] == "facetline"
        own = [word.replace("/srv/support", str(place.folder)).replace(ADDRESS, url) for word in given["args"]]
        started = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], *own], cwd=place.folder, env=commands.environment({})
        )
        async with Client(started) as client:
            assert "search_tickets" in [tool.name for tool in (await client.list_tools()).tools]

    assert len(found) == 2


async def test_the_address_for_http_is_right(url: str):
    """The address of the configuration for HTTP answers a client."""
    [given] = [json.loads(block.text) for block in documented.blocks(PAGE, "json") if "mcp" not in block.words]
    address = given["mcpServers"]["facetline"]["url"]

    async with Client(address.replace(ADDRESS, url)) as client:
        assert (await client.list_tools()).tools


def test_every_tool_is_in_the_table():
    """The table names the tools that there are, and each that has to be allowed says so."""
    rows = dict(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", TEXT.partition("## MCP")[0], re.MULTILINE))
    told = {name: "only when allowed" in said for names, said in rows.items() for name in re.findall(r"`(\w+)`", names)}

    there = {"search_COLLECTION": False}
    for each in tools.tools_of([], allowed=tools.EXTRAS):
        there[each.name] = each.action in {"query_sql", "write_document", "delete_document", "reindex"}
    assert told == there


def test_every_method_is_named():
    """The page names the methods that both clients have."""
    [told] = re.findall(r"^- Methods: `([\w ]+)`", TEXT, re.MULTILINE)
    own = {name for name, each in vars(PythonClient).items() if callable(each) and not name.startswith("_")} - {"close"}

    assert set(told.split()) == own
    assert own <= set(vars(AsyncClient))


@pytest.mark.parametrize(
    ("row", "number"),
    [
        ("a hit's line", rendering.LINE_CHARS_MAX),
        ("a result", rendering.RESULT_BYTES_MAX),
        ("a document's text", rendering.BODY_BYTES_MAX),
        ("a document's own fields", rendering.STATE_TEXT_CHARS_MAX),
        ("a document's own fields", rendering.STATE_BYTES_MAX),
        ("hits on a page", tools.LIMIT_MAX),
        ("options in one schema", tools.ENUM_MAX),
        ("options in one schema", tools.ENUM_TOTAL_MAX),
        ("a tool's name", tools.NAME_CHARS_MAX),
    ],
)
def test_the_limits_are_those_in_force(row: str, number: int):
    """The table of limits has the numbers of the code."""
    [said] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", TEXT, re.MULTILINE)

    assert f"{number:,}" in said


def test_the_other_numbers_are_right():
    """What the page says of defaults is so."""
    given: dict[str, Any] = {name: each.default for name, each in inspect.signature(PythonClient).parameters.items()}

    assert f"`limit` ({tools.LIMIT_DEFAULT} by default, {tools.LIMIT_MAX} at most)" in TEXT
    assert f"the last {WRITES_MAX} documents" in TEXT
    assert f"within `timeout_s` ({given['timeout_s']:.0f} seconds" in TEXT
