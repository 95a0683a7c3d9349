"""What may be a secret is masked in settings of any shape, in messages of libraries and in logs; nothing else is.

Method: the shapes in which people have leaked passwords from configuration dumps and logs, each with a canary in it.
"""

import json
import subprocess
import sys
from typing import Any

import pytest
from commands import environment

from facetline.facets import errors, masking
from facetline.streams.settings import load_settings

CANARY = "c4n4ry-Pw_9x"

SECRET_NAMES = [
    *(
        "password",
        "sasl_password",
        "sasl.password",
        "ssl.key.password",
        "sslpassword",
        "PGPASSWORD",
        "passwd",
        "pwd",
        "pass",
    ),
    *(
        "secret",
        "client_secret",
        "clientSecret",
        "SECRET_ACCESS_KEY",
        "aws_secret_access_key",
        "secrets",
        "token",
        "apiToken",
    ),
    *(
        "access_token",
        "refreshToken",
        "api_key",
        "apiKey",
        "APIKEY",
        "X-Api-Key",
        "private_key",
        "ssl_key",
        "key",
        "account_key",
    ),
    *("SharedAccessKey", "sasl.jaas.config", "sasl_jaas_config", "passfile", "passphrase", "credential", "credentials"),
    *(
        "google_credentials",
        "Authorization",
        "Cookie",
        "sig",
        "X-Amz-Signature",
        "api_keys",
        "access_tokens",
        "authtoken",
    ),
]
OPEN_NAMES = [
    *(
        "key_column",
        "key_columns",
        "ssl_key_location",
        "api_key_env",
        "public_key",
        "partition_key",
        "primaryKey",
        "keyboard",
    ),
    *(
        "max_tokens",
        "tokens",
        "tokens_per_minute",
        "token_url",
        "token_endpoint",
        "secret_name",
        "password_file",
        "monkey",
    ),
    *(
        "sasl_username",
        "user",
        "host",
        "compass",
        "passive",
        "author",
        "bypass_rate",
        "key_id",
        "signal",
        "",
        "topic",
        "keys",
    ),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_of_a_secret_masks_what_it_holds(name: str):
    """A value under such a name is masked at any depth: alone, in lists, in objects, in JSON in text, as a pair."""
    shapes: list[Any] = [
        {name: CANARY},
        {"a": [{"b": {name: [CANARY, {"c": CANARY}]}}]},
        {"extra": json.dumps({name: CANARY, "x": [{name: CANARY}]})},
        [[name, CANARY]],
        [{"name": name, "value": CANARY}],
        {name: 123456789},
    ]

    assert masking.is_secret(name)
    for shape in shapes:
        shown = json.dumps(masking.masked(shape))
        assert CANARY not in shown
        assert "123456789" not in shown


@pytest.mark.parametrize("name", OPEN_NAMES)
def test_another_name_hides_nothing(name: str):
    """What says where a secret is, or how many of something there are, is shown."""
    assert not masking.is_secret(name)
    assert masking.masked({name: "value", "n": {name: 5}}) == {name: "value", "n": {name: 5}}


TEXTS = [
    f"postgresql+psycopg://u:{CANARY}@db.example:5432/x",
    f"postgresql://u:p@ss:{CANARY}@db.example/x",
    f"postgresql://u:a/{CANARY}@db.example/x",
    f"postgresql://db.example/x?user=u&password={CANARY}",
    f"postgresql://u@db.example/x?sslpassword={CANARY}&sslmode=require",
    f"postgresql://u:{CANARY}@[::1]:5432/x",
    f"https://{CANARY}@git.example/x",
    f"https://{CANARY}:x-oauth-basic@git.example/x",
    f"https://h.example/x?X-Amz-Credential=a&X-Amz-Signature={CANARY}",
    f"https://h.example/x?api%5Fkey={CANARY}#top",
    f"http://h.example/cb#access_token={CANARY}&state=1",
    f"connection to 'postgresql://u:{CANARY}@h/x' failed, then 'amqp://a:{CANARY}@h' too",
    f"host=h user=u password={CANARY} dbname=x",
    f"host=h password='{CANARY} with blanks' dbname=x",
    f'org.apache.kafka.…PlainLoginModule required username="u" password="{CANARY}";',
    f"Endpoint=sb://h.example/;SharedAccessKeyName=n;SharedAccessKey={CANARY}=",
    f"AccountName=a;AccountKey={CANARY};EndpointSuffix=core.example",
    f"{{'sasl_plain_password': '{CANARY}', 'acks': 'all'}}",
    f'{{"client_secret": "{CANARY}"}} is no valid option',
    f"Authorization: Bearer {CANARY}",
    f"Authorization: Basic {CANARY}==",
    f"the token flt_{CANARY.replace('-', '')} is not valid".replace(CANARY.replace("-", ""), f"{CANARY}"),
    f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
    f"DATABASE_PASSWORD={CANARY} facetline worker",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_shows_no_secret(text: str):
    """Addresses, connection strings, headers, reprs and keys in any text are masked; what else stands there stays."""
    shown = masking.scrubbed(text)

    assert CANARY not in shown
    assert masking.MASK in shown
    assert masking.scrubbed(shown) == shown
    assert CANARY not in json.dumps(masking.masked({"anything": text}))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql+psycopg://u@db.example:5432/x?sslmode=require",
        "http://127.0.0.1:8080/v1/collections?limit=5&cursor=abc",
        "sqlite:////srv/data/facetline.db",
        "http://[::1]:8080/",
        "topic=billing severity >= 1 key_column=id max_tokens=5",
        'password authentication failed for user "u"',
        "there is no option 'billing' (did you mean 'biling'?); allowed: a, b",
        "mailto:someone@example.org and a@b.example",
        "tickets/t1: 12:30 [x]",
    ],
)
def test_a_text_without_a_secret_is_left_alone(text: str):
    """Addresses without passwords, filters and ordinary words stay as they are."""
    assert masking.scrubbed(text) == text


def test_an_address_keeps_what_is_no_secret():
    """The user, the host and the other parameters of an address stay readable."""
    shown = masking.scrubbed(f"postgresql+psycopg://u:{CANARY}@h:5432/db?sslmode=require&password={CANARY}&x=1")

    assert shown == "postgresql+psycopg://u:***@h:5432/db?sslmode=require&password=***&x=1"


LEAK = """
import logging, sys, structlog
from facetline.facets import errors
from facetline.streams import logs, settings
from facetline.streams.cli.main import _print_traceback
found = settings.load_settings()
logs.configure("warning", sys.argv[1])
pw = "c4n4ry-Pw_9x"
structlog.get_logger().warning("store_away", reason=f"bad value for connect_timeout: '{pw}'", parts=[pw], m={"x": pw})
logging.getLogger("sqlalchemy.pool").error("connect %s", f"('{pw}',)")
print(errors.StoreUnavailable(f"cannot open {pw}").message)
try:
    int(f"{pw}@127.0.0.1")
except ValueError as error:
    structlog.get_logger().error("crashed", exc_info=True)
    _print_traceback(type(error), error, error.__traceback__)
"""
HELD = [
    {"FACETLINE_STORE_URL": f"postgresql+psycopg://u:{CANARY}@h/db"},
    {"FACETLINE_STORE_URL": f"postgresql+psycopg://h/db?password={CANARY}"},
    {"FACETLINE_STORE_URL": "postgresql+psycopg://u:c4n4ry%2DPw%5F9x@h/db"},
    {"FACETLINE_TOKEN": CANARY},
    {"FACETLINE_URL": f"https://u:{CANARY}@h"},
    {"FACETLINE_KAFKA__SASL_PASSWORD": CANARY},
    {"FACETLINE_KAFKA__SSL_KEY_PASSWORD": CANARY},
    {"FACETLINE_KAFKA__EXTRA": json.dumps({"sasl_plain_password": CANARY})},
    {"FACETLINE_KAFKA__EXTRA": json.dumps({"deep": [{"sasl.jaas.config": f'required password="{CANARY}";'}]})},
]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("held", HELD, ids=lambda each: next(iter(each)))
def test_what_settings_hold_is_in_no_log_and_no_error(held: dict[str, str], style: str):
    """However a library repeats a secret that the settings hold, logs, errors and tracebacks do not show it."""
    done = subprocess.run(
        [sys.executable, "-c", LEAK, style], capture_output=True, text=True, check=True, env=environment(held)
    )

    assert CANARY not in done.stdout + done.stderr
    assert "crashed" in done.stderr


def test_a_wrong_setting_is_refused_without_its_value(monkeypatch: pytest.MonkeyPatch):
    """An error about a setting that holds a secret names the setting alone."""
    monkeypatch.setenv("FACETLINE_KAFKA__EXTRA", f'{{"sasl_plain_password": "{CANARY}"')
    with pytest.raises(errors.PipelineError) as refused:
        load_settings()

    assert CANARY not in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "a CSV file needs either --key-column NAME or --key-row",
        "tickets/key-account",
        "column 'key-result' is empty",
        "pk-billing-team",
        "basic authentication failed",
        "Basic support is slow",
        "the bearer of this letter",
    ],
)
def test_words_that_people_write_are_left_alone(text: str):
    """Options, uris, columns and a provider's words are no keys, whatever they begin with."""
    assert masking.scrubbed(text) == text
