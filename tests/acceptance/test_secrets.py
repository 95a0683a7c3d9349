"""No command shows a secret of its settings, in whatever shape they hold it and whatever fails because of it.

Method: settings of the shapes that people use, each with a canary in it; commands that show them, and ones that fail.
"""

import json
from pathlib import Path

import pytest
from served import ServedPlace, Server

CANARY = "c4n4ry-Pw_9x"
PROJECT = """
[evaluators.file]
kind = "recorded"
path = "answers.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "file"
[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Else" }
"""
STORE, KAFKA = "FACETLINE_STORE_URL", "FACETLINE_KAFKA__EXTRA"
SHAPES = [
    {STORE: f"postgresql+psycopg://u:{CANARY}@127.0.0.1:1/db"},
    {STORE: f"postgresql+psycopg://u@127.0.0.1:1/db?password={CANARY}"},
    {STORE: f"postgresql+psycopg://u@127.0.0.1:1/db?sslpassword={CANARY}&passfile=/{CANARY}"},
    {STORE: f"postgresql+psycopg://u:{CANARY}@127.0.0.1:1/db?connect_timeout={CANARY}"},
    {STORE: f"postgresql+psycopg://u:{CANARY}@127.0.0.1:1/db?{CANARY}=1"},
    {STORE: f"postgresql+psycopg://u:{CANARY}@127.0.0.1:port/db"},
    {STORE: f"postgresql+psycopg://u:p@ss:{CANARY}@127.0.0.1:1/db"},
    {STORE: f"postgresql+psycopg://u:a/{CANARY}@127.0.0.1:1/db"},
    {STORE: f"postgres//u:{CANARY}@127.0.0.1/db"},
    {STORE: f"mysql://u:{CANARY}@127.0.0.1/db"},
    {"FACETLINE_URL": f"http://u:{CANARY}@127.0.0.1:1"},
    {"FACETLINE_URL": f"http://{CANARY}@127.0.0.1:1/?api_key={CANARY}"},
    {"FACETLINE_TOKEN": CANARY},
    {KAFKA: json.dumps({"sasl_plain_password": CANARY})},
    {KAFKA: json.dumps({"sasl.jaas.config": f'x.PlainLoginModule required username="u" password="{CANARY}";'})},
    {
        KAFKA: json.dumps(
            {"servers": [{"url": f"sasl://u:{CANARY}@h"}, ["api_key", CANARY]], "json": f'{{"token": "{CANARY}"}}'}
        )
    },
    {KAFKA: f'{{"sasl_plain_password": "{CANARY}"'},
    {"FACETLINE_KAFKA__SASL_PASSWORD": CANARY, "FACETLINE_KAFKA__SSL_KEY_PASSWORD": CANARY},
]


@pytest.fixture
def place(tmp_path: Path, server: Server) -> ServedPlace:
    """A folder with a project."""
    (tmp_path / "facetline.toml").write_text(PROJECT)
    (tmp_path / "answers.ndjson").write_text("")
    return ServedPlace(tmp_path, server)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: ascii(next(iter(each.values())))[:40])
def test_no_command_shows_a_secret(place: ServedPlace, shape: dict[str, str]):
    """The settings in force are shown, or refused, without any secret that they hold."""
    for words in (["config"], ["config", "--json"]):
        ended = place.run(*words, settings=shape)
        assert CANARY not in ended.out + ended.err, words
        assert ended.out + ended.err


def test_what_is_no_secret_is_shown(place: ServedPlace):
    """Users, hosts, files of keys and other parameters stay readable."""
    shown = place.run(
        "config",
        "--json",
        settings={
            STORE: f"postgresql+psycopg://writer:{CANARY}@db.example:5432/x?sslmode=require&password={CANARY}",
            KAFKA: json.dumps({"sasl_plain_username": "u", "ssl_check_hostname": True, "key_column": "id"}),
        },
    ).json

    assert shown["store_url"] == "postgresql+psycopg://writer:***@db.example:5432/x?sslmode=require&password=***"
    assert shown["kafka"]["extra"] == {"sasl_plain_username": "u", "ssl_check_hostname": True, "key_column": "id"}


@pytest.mark.parametrize("end", ["127.0.0.1:port/db", f"127.0.0.1:1/db?connect_timeout={CANARY}"])
def test_a_failure_shows_no_secret(place: ServedPlace, end: str):
    """What a library says of an address that it cannot use, foreseen or not, is written without the password in it."""
    with place.start("doctor", settings={STORE: f"postgresql+psycopg://u:{CANARY}@{end}"}) as process:
        out, err = process.communicate(timeout=60)

    assert CANARY not in out + err
    assert out + err
