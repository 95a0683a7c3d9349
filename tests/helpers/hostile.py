"""Text that acts on what shows it, and which characters of a shown text still would, by Unicode's own tables."""

import unicodedata

UNSEEN = "\u202e\u2066\u2028\u2029\u200b\u200e\u2060\ufeff\U000e0041\U000e0042\u00ad\ufdd0\u3164"
"""What a uri can hold: reordering, ends of lines, zero width, tags, a noncharacter, a filler."""
ACTS = f"\x1b]0;owned\x07\x1b[31m\x1b[2J\x9b31m\x08\x7f\r{UNSEEN}[bold]red[/bold][link=http://x]y[/link]"
"""A title, colours, a cleared screen, erased characters, and all of the above; and markup, which stays as it is."""
READABLE = "👩‍👩‍👧 🏳️‍🌈 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 שלום مرحبا می‌خواهم क्‍ष 葛󠄀 ñ"
"""Emoji of several parts, right-to-left text, joiners where words need them."""
_FORMATS = ("Cc", "Cf", "Cs", "Zl", "Zp")
_BLANK = "\u115f\u1160\u3164\uffa0\u034f"


def harmful(text: str) -> list[str]:
    """Return the characters of a shown text that act or hide; ends of lines and tabs do not."""
    rest = text.replace(READABLE, "")
    return sorted({repr(letter) for letter in rest if _acts(letter) and letter not in "\n\t"})


def _acts(letter: str) -> bool:
    code = ord(letter)
    nothing = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    return nothing or letter in _BLANK or unicodedata.category(letter) in _FORMATS
