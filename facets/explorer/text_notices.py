"""What the page says of how words and patterns were looked for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facetline.facets.explorer.search_url import SearchUrl


@dataclass(frozen=True, slots=True)
class Notice:
    """A line above the hits; `href` leads to another search, which `label` names."""

    text: str
    label: str = ""
    href: str = ""


def notices(asked: SearchUrl, reply: Mapping[str, Any]) -> list[Notice]:
    """Return the notices of a reply's `search`."""
    found = [
        Notice(
            f"No document has “{given}”: showing “{used}”.",
            f"Only “{given}”",
            asked.with_text(exact="true").address(),
        )
        for given, used in (reply.get("corrected") or {}).items()
    ]
    if reply.get("taken_as") == "literal":
        found.append(Notice(f"The pattern is no regular expression ({reply.get('because', '')}): taken as plain text."))
    degraded = reply.get("degraded")
    if degraded:
        found.append(Notice(f"By words only: {degraded.get('reason', 'the embedder is not available')}."))
    return found
