"""A page of HTML as tests look at it: elements by tag and attributes, and the text in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})


@dataclass
class Element:
    """One element; `parts` are texts and elements in order."""

    tag: str
    attributes: dict[str, str]
    parts: list["str | Element"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part._texts()

    def all(self, tag: str = "", **wanted: str) -> list["Element"]:
        """Return the elements inside with a tag and attributes; `class_` is one of the classes, `_` stands for `-`."""
        return [each for each in self._inside() if (not tag or each.tag == tag) and each.fits(wanted)]

    def one(self, tag: str = "", **wanted: str) -> "Element":
        """Return the only such element."""
        found = self.all(tag, **wanted)
        assert len(found) == 1, f"{len(found)} of <{tag} {wanted}>"
        return found[0]

    def _inside(self) -> Iterator["Element"]:
        for part in self.parts:
            if isinstance(part, Element):
                yield part
                yield from part._inside()

    def fits(self, wanted: dict[str, str]) -> bool:
        """Say whether the element has these attributes."""
        for name, value in wanted.items():
            if name == "class_":
                if value not in self.attributes.get("class", "").split():
                    return False
            elif self.attributes.get(name.rstrip("_").replace("_", "-")) != value:
                return False
        return True


def parse(text: str) -> Element:
    """Return the page as one element without a tag; tags that are left open are an error."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, f"left open: {[each.tag for each in reader.open[1:]]}"
    return reader.open[0]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].parts.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)
