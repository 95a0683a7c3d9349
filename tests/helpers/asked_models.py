"""Sites whose documents are judged by the loopback model server, through the real client library.

Bodies carry the server's marker, `doc:URI#REVISION`, so that its counts are calls per document and revision.
"""

from dataclasses import dataclass
from typing import Any

from model_server import KEY, VARIABLE, Server
from polling import eventually
from runtimes import ANSWERED_S, Site

from facetline.facets.documents import Status
from facetline.storage.log import documents
from facetline.streams.pipeline import Pipeline

LEVELS = ("calm", "annoyed", "furious")

TABLES = """
[settings]
grace_s = 1
[evaluators.model]
kind = "decisions"
model = "typesafe/jev-1.14.0"
api_base = "{url}"
api_key_env = "{variable}"
{limits}
[collections.tickets]
pattern = "tickets/*"
evaluator = "model"
scoped = true
[collections.tickets.questions.topic]
type = "choice"
ask = "About what?"
options = {{ billing = "Money", outage = "Down", other = "All else" }}
[collections.tickets.questions.urgent]
type = "boolean"
ask = "Is it urgent?"
[collections.tickets.questions.mood]
type = "score"
ask = "How angry is it?"
levels = {levels}
"""


def configure(site: Site, server: Server, **limits: Any) -> None:
    """Let the site's later processes ask the server; `limits` as in the evaluator's table."""
    usual = {"retry_first_s": 0.05, "probe_first_s": 0.2, **limits}
    lines = "\n".join(f"{name} = {value}" for name, value in usual.items())
    text = TABLES.format(url=server.url, variable=VARIABLE, limits=lines, levels=list(LEVELS))
    (site.folder / "facetline.toml").write_text(text)
    site.place.settings[VARIABLE] = KEY


@dataclass
class Documents:
    """One test's documents, in a scope of their own."""

    pipeline: Pipeline
    scope: str

    def uri(self, key: str) -> str:
        """The uri of a document."""
        return f"@{self.scope}/tickets/{key}"

    def marker(self, key: str, revision: int = 1) -> str:
        """What the server counts it by."""
        return f"{self.uri(key)}#{revision}"

    async def write(self, key: str, text: str, revision: int = 1, wait: str = "none") -> None:
        """Write a document and wait for nobody, unless told otherwise."""
        body = f"{text} doc:{self.marker(key, revision)}"
        await self.pipeline.write(self.uri(key), body=body, wait=wait, timeout_s=ANSWERED_S)

    async def settled(self, *keys: str, deadline_s: float = ANSWERED_S) -> list[dict[str, Any]]:
        """Wait until these documents are pending no longer; return them whole."""

        async def look() -> list[dict[str, Any]] | None:
            found = [await self.pipeline.store.read(documents.get, self.uri(key)) for key in keys]
            if any(each is None or each.status is Status.PENDING for each in found):
                return None
            return [each.model_dump(mode="json") for each in found if each is not None]

        return await eventually(look, deadline_s=deadline_s, what=f"{', '.join(keys)} are settled")
