"""The wire between the two sides: frames of JSON, each behind its length in four bytes; and exit codes."""

import json
import struct
from typing import Any, BinaryIO

from facetline.facets.sql_sandbox import limits

MEMORY_CODE, TIME_CODE, FAILED_CODE = 71, 72, 73
"""How a process ends when it ends itself: out of memory, out of time, and after DuckDB failed in itself."""
HEAD = struct.Struct(">I")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode(value: Any) -> bytes:
    """Return a value as a frame."""
    return wrap(_encode(value).encode())


def wrap(body: bytes) -> bytes:
    """Return JSON as a frame."""
    return HEAD.pack(len(body)) + body


def size(head: bytes) -> int:
    """Return the length that a head announces.

    Raises:
        ValueError: more than a frame may have.
    """
    found: int = HEAD.unpack(head)[0]
    if found > limits.FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {found} bytes is announced")
    return found


def read(stream: BinaryIO) -> Any:
    """Return the next value; None at the end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    return json.loads(stream.read(size(head)))
