"""The words of the house: what messages, docstrings, comments and pages no longer say.

Method: a search for whole words in the code of the packages and in the documentation; names that others read (JSON
members, columns of the store, CSS hooks) are left alone.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_BEHIND = (
    *("told", "tells", "said", "nobody", "whoever", "whomever", "anew", "mend", "mends", "mended", "heard"),
    *("for good", "stands still", "stand still"),
)
WORD = re.compile(rf"\b({'|'.join(LEFT_BEHIND)})\b", re.IGNORECASE)
PUBLIC = re.compile(
    r"\"said\"|\.said\b|\bsaid:|told_ms|\"heard\"|\bheard:|\.heard\b"  # a member of a reply, columns of the store
    r"|\"mend\"|\bmend:|\bmend=|\.mend\b"  # a member of the checks in `/readyz`
    r"|class=\"said|least-said|\"least_said"
)


def texts() -> list[Path]:
    """Every source file, template and page."""
    code = [file for package in ("streams", "facets", "storage", "evaluators") for file in (ROOT / package).rglob("*")]
    return [
        file
        for file in [*code, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        if file.suffix in {".py", ".html", ".md"} and "versions" not in file.parts
    ]


@pytest.mark.parametrize("file", texts(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_in_plain_words(file: Path) -> None:
    """No word that was left behind is in it."""
    lines = PUBLIC.sub("", file.read_text(encoding="utf-8")).splitlines()
    if file.suffix == ".md":
        lines = re.sub(r"```.*?```|`[^`\n]*`", "", "\n".join(lines), flags=re.DOTALL).splitlines()

    assert [line.strip() for line in lines if WORD.search(line)] == []
