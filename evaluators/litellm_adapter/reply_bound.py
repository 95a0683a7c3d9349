"""How much is read of one reply: its bytes are counted after decompression; more of them are an error. Pure."""

import zlib

from facetline.facets.errors import InvalidAnswer

REPLY_BYTES_MAX = 4 * 1024 * 1024
"""Of one reply, unless the evaluator's table sets `reply_bytes_max`: some hundred times the longest useful one."""

PLAIN = frozenset({"", "identity"})
COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
ANY_WINDOW = zlib.MAX_WBITS | 32
"""Takes gzip and zlib, whichever the data begin with."""


class ReplyTooLong(InvalidAnswer):
    """The server sent more than is read of a reply."""


class Reading:
    """The body of one reply, as its pieces come in. `coding` is its Content-Encoding, `declared` its Content-Length.

    Raises:
        ReplyTooLong: it says that it is longer than `bytes_max`.
        InvalidAnswer: it is compressed in a way that was not asked for.
    """

    def __init__(self, coding: str, declared: int | None, bytes_max: int) -> None:
        self._coding = coding.strip().lower()
        self._bytes_max = bytes_max
        self._count = 0
        if (declared or 0) > bytes_max:
            raise self._too_long()
        if self._coding not in PLAIN | COMPRESSED:
            raise InvalidAnswer(f"The reply is compressed ({coding:.40}), which was not asked for; turn that off.")
        self._decompress = zlib.decompressobj(ANY_WINDOW) if self._coding in COMPRESSED else None

    def take(self, piece: bytes) -> bytes:
        """Return a piece decompressed.

        Raises:
            ReplyTooLong: with it the reply is longer than `bytes_max`.
            InvalidAnswer: it is not compressed as it says.
        """
        if self._decompress is not None:
            try:
                # One byte more than there is room for distinguishes a longer reply from one that ends here.
                piece = self._decompress.decompress(piece, self._bytes_max - self._count + 1)
            except zlib.error as error:
                message = f"The reply says that it is compressed ({self._coding}), and is not."
                raise InvalidAnswer(message) from error
        self._count += len(piece)
        if self._count > self._bytes_max:
            raise self._too_long()
        return piece

    def _too_long(self) -> ReplyTooLong:
        return ReplyTooLong(
            f"The reply is longer than {self._bytes_max} bytes, which is all that is read of one (reply_bytes_max)."
        )
