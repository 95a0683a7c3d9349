"""Text from outside never acts on the terminal of who looks at it, whichever command shows it.

Method: documents, a record, a model server's error, labels, files and a configuration that are full of control,
direction, zero-width and tag characters; every command that shows something of them; and one real terminal.
"""

import asyncio
import json
import os
import pty
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import judged
import model_server
import pytest
from commands import COMMAND, Ended, Place, environment
from hostile import ACTS, READABLE, UNSEEN, harmful
from model_replies import error
from served import ServedPlace, Server, serving

from facetline.storage.log import apply
from facetline.storage.log.events import Raw
from facetline.streams import wiring
from facetline.streams.settings import load_settings

URI = f"tickets/t{UNSEEN}"
TOLD = json.dumps(f"About {UNSEEN}?", ensure_ascii=False)
CONFIG = """
[evaluators.file]
kind = "recorded"
path = "answers.ndjson"

[evaluators.chat]
kind = "chat"
model = "openai/loopback"
api_base = "{url}"
api_key_env = "LOOPBACK_KEY"
tries_max = 1

[collections.tickets]
pattern = "tickets/*"
evaluator = "file"
state = {{ title = "string" }}
llm_readable = true
[collections.tickets.questions.topic]
type = "choice"
ask = {told}
options = {{ billing = {told}, "other{unseen}x" = "Else" }}

[collections.mail]
pattern = "mail/*"
evaluator = "chat"
[collections.mail.questions.topic]
type = "choice"
ask = {told}
options = {{ billing = "Money", other = "Else" }}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The process that runs this file's commands."""
    with serving({"LOOPBACK_KEY": "none"}) as made:
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Place]:
    """A folder of hostile name with hostile documents, one failed by a model's words, and a dead letter."""
    folder = tmp_path_factory.mktemp("acts") / f"data{UNSEEN}\x1b[31m"
    folder.mkdir()
    with model_server.serving() as model:
        model.plan = error(400, ACTS)
        (folder / "facetline.toml").write_text(CONFIG.format(url=model.chat_url, told=TOLD, unseen=UNSEEN))
        line = {"key": f"t{UNSEEN}", "answers": {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}}}
        (folder / "answers.ndjson").write_text(json.dumps(line))
        (folder / "body.txt").write_text(f"{ACTS}\n{READABLE}\n\tend", newline="")
        made = ServedPlace(folder, server)
        state = json.dumps({"title": ACTS})
        assert made.run("write", URI, "--file", "body.txt", "--state", state).code == 0
        failed = made.run("write", f"mail/m{UNSEEN}", "--file", "body.txt")
        assert "failed" in failed.out
        assert harmful(failed.out + failed.err) == []
        asyncio.run(_reject(folder))
        yield made


async def _reject(folder: Path) -> None:
    """Put a dead letter into the store, as a Kafka record makes one."""
    settings = load_settings(config=folder / "facetline.toml", data_folder=folder / ".facetline")
    raw = Raw(ACTS.encode(), ACTS.encode(), ((ACTS, ACTS.encode()),), 0)
    event = replace(judged.refused(URI), raw=raw, message=ACTS)
    async with wiring.open_store(settings) as store:
        await store.write(apply.append, "local", [event])


SHOWN = [
    (("get", URI), "owned"),
    (("get", f"mail/m{UNSEEN}"), "owned"),
    (("get", "tickets/none\u202e"), "no document"),
    (("get", "nowhere/\x1b[31m"), "facetline:"),
    (("search", "tickets"), "tickets/t"),
    (("search", "tickets", "--counts", "topic"), "billing 1"),
    (("search", "tickets", f"topic={ACTS}"), "facetline:"),
    (("search", "tickets", "--filter", f"topic = '{ACTS}'"), "facetline:"),
    (("search", f"tickets{ACTS}"), "facetline:"),
    (("search", "tickets", ACTS), "there is no facet"),
    (("sql", 'SELECT doc_uri, state_title, 1 AS "a\x1b[31m" FROM tickets'), "owned"),
    (("sql", f"SELECT '{ACTS}"), "facetline:"),
    (("reindex", "mail", "--force"), "failed"),
    (("jobs", "list"), "mail"),
    (("jobs", "show", f"none{ACTS}"), "facetline:"),
    (("dlq", "list"), "owned"),
    (("dlq", "show", "1"), "owned"),
    (("collections", "check"), "tickets"),
    (("collections", "apply"), "tickets"),
    (("doctor",), "collections"),
    (("config",), "data_folder"),
    (("cost",), ""),
    (("export", "--parquet", f"out{UNSEEN}"), "rows"),
    (("import", "rows.ndjson", "--collection", "tickets"), "refused"),
    (("import", f"none{ACTS}.csv", "--collection", "tickets"), ""),
    (("replay", "rows.ndjson"), ""),
    (("evaluate", "labels.ndjson", "--collection", "tickets"), ""),
    (("write", "tickets/x", "--file", f"none{ACTS}"), "cannot be read"),
    (("write", "tickets/x", "--body", "x", f"--none{ACTS}"), "No such option"),
    ((f"none{ACTS}",), "No such command"),
    (("token", "create", "--rights", ACTS), ""),
    (("tools", f"none{ACTS}"), "facetline:"),
    (("delete", URI), "deleted"),
]


@pytest.mark.parametrize(("words", "part"), SHOWN, ids=lambda each: ascii(each)[:40])
def test_no_command_lets_text_act(place: Place, words: tuple[str, ...], part: str):
    """Whatever a command shows of documents, records, models' words, files and arguments, nothing of it acts."""
    rows = [{"key": f"k{ACTS}", "body": "x"}, {"key": ACTS, ACTS: 1}, {"uri": f"nowhere/{UNSEEN}", "body": "x"}]
    (place.folder / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows) + ACTS + "\n")
    (place.folder / "labels.ndjson").write_text(json.dumps({"body": ACTS, "labels": {"topic": ACTS}}))
    ended = place.run(*words)

    assert harmful(ended.out + ended.err) == []
    assert part in ended.out + ended.err


def test_json_and_rows_are_exact(place: Place):
    """JSON, NDJSON and CSV hold exactly what is in the store: they are for programs."""
    written = place.run("write", "tickets/exact", "--body", READABLE + ACTS.replace("\x1b", ""), "--wait", "applied")
    got = place.run("get", "tickets/exact", "--json")
    rows = place.run("sql", f"SELECT '{ACTS}' AS a", "--format", "csv")

    assert written.code == 0
    assert got.json["body"] == READABLE + ACTS.replace("\x1b", "")
    assert UNSEEN in got.out
    assert UNSEEN in rows.out


def test_what_is_readable_stays(place: Place):
    """Emoji, right-to-left text and joiners are shown as they are, beside what is escaped."""
    place.run("write", "tickets/readable", "--body", f"{READABLE}\n{ACTS}", "--wait", "applied")
    got = place.run("get", "tickets/readable")

    assert READABLE in got.out.splitlines()
    assert "\\u001b]0;owned\\u0007" in got.out
    assert "[bold]red[/bold][link=http://x]y[/link]" in got.out


@pytest.mark.parametrize(
    "words", ["get tickets/pty", "get tickets/pty --json", "search tickets --json", "search tickets"]
)
def test_a_terminal_is_left_alone(place: Place, words: str):
    """On a real terminal, JSON included, no byte of a document moves the cursor, changes a colour or hides."""
    place.run("write", "tickets/pty", "--file", "body.txt", "--state", json.dumps({"title": ACTS}), "--wait", "applied")
    ended = on_a_terminal(place, *shlex.split(words))

    assert ended.code == 0
    assert "owned" in ended.out
    assert harmful(ended.out) == []


def on_a_terminal(place: Place, *words: str) -> Ended:
    """Run a command whose output is a terminal."""
    own, given = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *words], cwd=place.folder, env=environment({"LOOPBACK_KEY": "none"}), stdout=given, stderr=given
    ) as process:
        os.close(given)
        read = bytearray()
        try:
            while chunk := os.read(own, 1 << 16):
                read += chunk
        except OSError:  # how the end of a terminal is said on Linux
            pass
        os.close(own)
        code = process.wait(60)
    return Ended(code, read.decode().replace("\r\n", "\n"), "")
