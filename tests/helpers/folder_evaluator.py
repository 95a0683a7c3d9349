"""An evaluator for worker processes: what a body says is what it does, and files tell it from outside when.

Words of a body: an option's name (the answer; else the last option), `hold=NAME` (waits while the file NAME is in the
folder), `slow=NAME` (takes a second while it is there), `fail=NAME` and `away=NAME` (raise, for good and for now),
`badkey=NAME` (the key is refused), `usd0.25` (what the call costs; else nobody knows). Each call is a line of `calls`,
with the first `NOTED_CHARS_MAX` characters of the body.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets import errors
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.questions import Choice, Question

POLL_S = 0.02
NOTED_CHARS_MAX = 10_000


class FolderEvaluator:
    """The evaluator contract over a folder."""

    kind = "folder"
    identity = Identity("folder", "folder-1")
    limits = Limits(frozenset({"choice"}), 255, 10)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Note the call, and do what the body says."""
        del deadline_s
        self._note({"key": key, "body": body[:NOTED_CHARS_MAX], "pid": os.getpid()})
        words = body[:NOTED_CHARS_MAX].split()
        orders = dict(word.split("=", 1) for word in words if "=" in word)
        while self._there(orders.get("hold")):  # noqa: ASYNC110 (the file is put there by another process)
            await asyncio.sleep(POLL_S)
        if self._there(orders.get("slow")):
            await asyncio.sleep(1.0)
        if self._there(orders.get("away")):
            raise errors.EvaluatorUnavailable(
                "told to be away"
            )  # no rate limit: that would take slots from other tests
        if self._there(orders.get("badkey")):
            raise errors.EvaluatorMisconfigured("401: the key is refused")
        if self._there(orders.get("fail")):
            raise errors.EvaluationFailed("refused", "told to refuse")
        answers = {
            name: ChoiceAnswer(choice=_chosen(question, words), confidence=0.9)
            for name, question in questions.items()
            if isinstance(question, Choice)
        }
        return Evaluated(answers, "folder-1", "test", {"tokens": len(words)}, _price(words))

    async def close(self) -> None:
        """Nothing is open."""

    def _there(self, name: str | None) -> bool:
        return name is not None and (self._folder / name).exists()

    def _note(self, call: Mapping[str, object]) -> None:
        with (self._folder / "calls").open("ab", buffering=0) as file:  # one append each: lines never mix
            file.write(json.dumps(call).encode() + b"\n")


def _chosen(question: Choice, words: list[str]) -> str:
    options = list(question.options)
    return next((option for option in options if option in words), options[-1])


def _price(words: list[str]) -> float | None:
    return next((float(word.removeprefix("usd")) for word in words if word.startswith("usd")), None)


@dataclass(frozen=True)
class Call:
    """One call."""

    key: str
    body: str
    pid: int


class Script:
    """The test's side of the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def on(self, name: str) -> Path:
        """Put the file NAME there: bodies with `hold=NAME` wait, with `fail=NAME` fail."""
        path = self.folder / name
        path.touch()
        return path

    def off(self, name: str) -> None:
        """Take it away."""
        (self.folder / name).unlink(missing_ok=True)

    def calls(self) -> list[Call]:
        """All calls that have begun, in order."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Call(**json.loads(line)) for line in lines]

    def count(self, body: str | None = None) -> Counter[str]:
        """How many calls there were by key: about one body, or about any."""
        return Counter(call.key for call in self.calls() if body is None or call.body == body)
