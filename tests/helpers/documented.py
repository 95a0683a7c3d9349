"""The documentation as data: pages, their code blocks, links and anchors, and the folder that their examples run in."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from commands import Place

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

ANSWERS = {
    "topic": {"type": "choice", "choice": "billing", "confidence": 0.93},
    "status": {"type": "choice", "choice": "open", "confidence": 0.85},
    "urgent": {"type": "boolean", "probability": 0.83},
    "severity": {"type": "score", "score": 1.4, "confidence": 0.7},
}
EVENTS = [
    {
        "topic": "facetline.documents.v1",
        "partition": 0,
        "offset": offset,
        "tstype": "logappend",
        "ts": 1_764_500_000_000 + 700 * offset,
        "headers": ["ce_id", f"event-{offset}", "ce_source", "shop"],
        "key": f"tickets/t{offset % 2 + 1}",
        "payload": json.dumps({"body": f"Charged again, {offset}"}),
    }
    for offset in range(4)
]
SENTENCE = "anything about refunds that is still open?"
LABELS = [
    {"key": "t1", "body": "I was charged twice.", "labels": {"topic": "billing", "urgent": True}},
    {"key": "t2", "body": "Nothing loads.", "labels": {"topic": "outage", "severity": "work is blocked"}},
    {"key": "t3", "body": "Where is my invoice?", "labels": {"topic": "billing", "urgent": False, "severity": 1}},
]
ANSWERED = [
    {"key": "a1", "body": "A refund, please.", "facets": {"topic": "billing", "urgent": 0.2}},
    {"key": "a2", "body": "Down again.", "facets": {"topic": "outage"}, "evaluation": {"model": "our-rules-7"}},
]
KEYS = tuple(f"t{number}" for number in range(1, 13))


@dataclass(frozen=True)
class Block:
    """A code block: `words` are what stands after the three ticks."""

    page: str
    line: int
    words: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        """The first word, "" without any."""
        return self.words[0] if self.words else ""

    @property
    def code(self) -> int:
        """The exit code that the block says it ends with."""
        return next((int(word.removeprefix("exit=")) for word in self.words if word.startswith("exit=")), 0)

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    """Return a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[Block]:
    """Return a page's blocks in a language, in order."""
    text = text_of(page)
    found = [
        Block(page, text.count("\n", 0, each.start()) + 1, tuple(each["info"].split()), each["text"])
        for each in _FENCE.finditer(text)
    ]
    return [block for block in found if block.language == language]


def prose(page: str) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", text_of(page))


def links(page: str) -> Iterator[str]:
    """Return the targets of a page's links that are within the repository."""
    for target in _LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: str) -> set[str]:
    """Return the anchors that a page's headings get."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        numbered = [slug, *(f"{slug}-{number}" for number in range(1, 20))]
        found.add(next(each for each in numbered if each not in found))
    return found


def project(folder: Path) -> None:
    """Make the project of docs/reference.md in a folder, with files to import and answers for its documents."""
    (folder / "facetline.toml").write_text(blocks("docs/reference.md", "toml")[0].text, encoding="utf-8")
    lines = [{"key": key, "answers": ANSWERS} for key in KEYS]
    mood = {"mood": {"type": "choice", "choice": "good", "confidence": 0.6}}
    lines.append({"key": "2026/monday", "answers": mood})
    lines.append({"body": SENTENCE, "answers": {name: ANSWERS[name] for name in ("topic", "status")}})
    (folder / "answers.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def imported(folder: Path) -> Place:
    """Make the project and its files in a folder, and import its documents."""
    files(folder)
    project(folder)
    place = Place(folder, {})
    ended = place.run("import", "tickets.ndjson", "--collection", "tickets")
    assert ended.code == 0, ended.err
    return place


def files(folder: Path) -> None:
    """Put the files into a folder that examples import."""
    sample = resources.files("facetline.streams").joinpath("samples", "tickets.ndjson").read_text(encoding="utf-8")
    for path in (folder / "tickets.ndjson", folder / "streams" / "samples" / "tickets.ndjson"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(sample.splitlines(keepends=True)[:8]), encoding="utf-8")
    (folder / "tickets.csv").write_text(
        "id,text,title,priority,source\nt9,I cannot sign in,Login,2,mail\nt11,Where is my parcel?,Parcel,,phone\n",
        encoding="utf-8",
    )
    for name, lines in (("labels", LABELS), ("answered", ANSWERED)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.ndjson").write_text(text, encoding="utf-8")
    (folder / "answered.csv").write_text("id,text,label\na3,A late invoice,billing\na4,Hello,\n", encoding="utf-8")
    (folder / "events.ndjson").write_text("".join(json.dumps(event) + "\n" for event in EVENTS), encoding="utf-8")
