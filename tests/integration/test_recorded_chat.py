"""A hosted chat model, recorded once through the real litellm, replayed without a key, a server or a call.

Method: a local pipeline asks a server on loopback and writes its calls down; the server goes, and another pipeline with
the same facetline.toml answers the same documents.
"""

from pathlib import Path
from typing import Any

import model_replies
import model_server
import pytest
from model_replies import Reply

from facetline.evaluators.litellm_adapter import client
from facetline.streams import wiring
from facetline.streams.settings import load_settings

KEY = "sk-recorded-0123456789"
VARIABLE = "FACETLINE_TEST_MODEL_KEY"
BODIES = {"t1": "Charged twice", "t2": "REFUSE this", "t3": "Nothing loads"}
CONFIG = """
[evaluators.triage]
kind = "chat"
model = "openai/gpt-loopback"
api_base = "{url}"
api_key_env = "FACETLINE_TEST_MODEL_KEY"
requests_per_minute = 600
[collections.tickets]
pattern = "tickets/*"
evaluator = "triage"
[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = {{ billing = "Money", outage = "Down", other = "Anything else" }}
[collections.tickets.questions.urgent]
type = "boolean"
ask = "Today?"
"""


def plan(request: model_server.Request) -> Reply:
    """A good answer, or a refusal where the body asks for one."""
    return model_replies.refusal() if "REFUSE" in str(request.body) else Reply()


async def answered(folder: Path, calls: str, bodies: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Write the bodies in a new store; return the documents."""
    settings = load_settings(
        config=folder / "facetline.toml",
        data_folder=folder / f"data-{calls}",
        calls=calls,
        calls_file=folder / "calls.ndjson",
    )
    async with wiring.open_pipeline(settings, classify=True) as pipeline:
        for key, body in bodies.items():
            await pipeline.write(f"tickets/{key}", body=body, timeout_s=90)
        return {key: await pipeline.get(f"tickets/{key}") for key in bodies}


@pytest.mark.slow
async def test_a_model_is_replayed_without_its_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Answers, failures and fingerprints are the live ones; nobody is asked, and the file has no key and no address."""
    with model_server.serving(plan) as server:
        (tmp_path / "facetline.toml").write_text(CONFIG.format(url=server.chat_url))
        monkeypatch.setenv(VARIABLE, KEY)
        live = await answered(tmp_path, "record", BODIES)
        address = server.url.rpartition("//")[2]
    await client.close()
    monkeypatch.delenv(VARIABLE)
    replayed = await answered(tmp_path, "replay", {**BODIES, "t4": "Never recorded"})
    text = (tmp_path / "calls.ndjson").read_text()

    assert len(text.splitlines()) == len(BODIES)
    for key in BODIES:
        for part in ("status", "reason", "facets"):
            assert replayed[key][part] == live[key][part], (key, part)
    assert (live["t1"]["status"], live["t2"]["reason"]) == ("indexed", "refused")
    assert replayed["t1"]["evaluation"]["fingerprint"] == live["t1"]["evaluation"]["fingerprint"]
    assert (replayed["t1"]["evaluation"]["cost_usd"], replayed["t1"]["evaluation"]["usage"]) == (0.0, None)
    assert (replayed["t4"]["status"], replayed["t4"]["reason"]) == ("failed", "evaluator_error")
    assert [secret for secret in (KEY, address, "triage") if secret in text] == []
