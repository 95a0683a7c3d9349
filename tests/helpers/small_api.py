"""A small data set behind a real `facetline serve`: every kind of question, document and state, by recorded answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import Place
from serving import ServeProcess, serve_process

CONFIG = """
[evaluators.triage]
kind = "recorded"
path = "answers.ndjson"

[evaluators.moods]
kind = "recorded"
path = "moods.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "triage"
llm_readable = true
state = { title = "string", priority = "integer" }

[collections.tickets.questions.topic]
type = "choice"
ask = "What is this support ticket about?"
options = { billing = "Charges and refunds", outage = "Something is down", other = "None of these" }

[collections.tickets.questions.urgent]
type = "boolean"
ask = "Does the customer need an answer today?"

[collections.tickets.questions.severity]
type = "score"
ask = "How bad is it?"
levels = ["cosmetic", "annoying", "work is blocked"]

[collections.notes]
pattern = "notes/**"
evaluator = "moods"
scoped = true

[collections.notes.questions.mood]
type = "choice"
ask = "In which mood was it written?"
options = { good = "Content", bad = "Annoyed", other = "Neither" }
"""
BODIES = {
    "I was charged twice": ("billing", 0.93, 0.83, 1.4),
    "The site is down": ("outage", 0.88, 0.97, 2.0),
    "Thanks!": ("other", 0.55, 0.02, 0.0),
}
MOOD = {"mood": {"type": "choice", "choice": "good", "confidence": 0.7}}
LEVELS = ("cosmetic", "annoying", "work is blocked")


def answers(topic: str, confidence: float, probability: float, score: float) -> dict[str, object]:
    """Return recorded answers to all questions about a ticket."""
    return {
        "topic": {"type": "choice", "choice": topic, "confidence": confidence},
        "urgent": {"type": "boolean", "value": probability >= 0.5, "probability": probability, "confidence": None},
        "severity": {"type": "score", "score": score, "level": LEVELS[round(score)], "confidence": None},
    }


def place_in(folder: Path) -> Place:
    """Return a place with the configuration and the recorded answers."""
    (folder / "facetline.toml").write_text(CONFIG)
    lines = [json.dumps({"body": body, "answers": answers(*given)}) for body, given in BODIES.items()]
    (folder / "answers.ndjson").write_text("\n".join(lines) + "\n")
    (folder / "moods.ndjson").write_text(json.dumps({"body": "Thanks!", "answers": MOOD}) + "\n")
    return Place(folder, {})


@contextmanager
def served(folder: Path, *, rights: str | None = None, **settings: str) -> Iterator[tuple[ServeProcess, str | None]]:
    """Serve the data set: three answered tickets, a failed and an empty one, and two scopes of notes.

    With `rights` the server asks for a token, and one with these is made.
    """
    place = place_in(folder)
    with serve_process(place, **settings) as server:
        for number, body in enumerate((*BODIES, "Nobody has recorded this", ""), 1):
            write(server, f"tickets/t{number}", body, state={"title": body[:10], "priority": number})
        for scope in ("alice", "bob"):
            write(server, f"@{scope}/notes/2026/monday", "Thanks!")
        first = server.request("GET", "/v1/documents/tickets/t1").json()
        assert first["status"] == "indexed", first
        made = None if rights is None else place.run("token", "create", "--rights", rights, "--json").json["token"]
        yield server, made


def write(server: ServeProcess, uri: str, body: str, **more: object) -> None:
    """Write a document and wait for its facets."""
    reply = server.request("PUT", f"/v1/documents/{uri}?wait=answered", body=body, **more)
    assert reply.status_code == 200, reply.text
