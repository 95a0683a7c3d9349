"""Batches that no client can decode, as the value of the one record that stands for them."""

from typing import Self

REASON_CHARS_MAX = 300


class Undecodable(bytes):
    """The bytes of a batch that cannot be decoded; the offsets from its record's to `end` (not included) are its own.

    `damaged`: they are not what was sent (no fitting checksum), and another replica may have them whole. Otherwise no
    other read will find anything else.
    """

    reason: str
    end: int
    damaged: bool

    def __new__(cls, data: bytes | memoryview, reason: str, *, end: int, damaged: bool) -> Self:
        """Make it of the batch's bytes."""
        made = super().__new__(cls, data)
        made.reason, made.end, made.damaged = reason[:REASON_CHARS_MAX], end, damaged
        return made
