"""Events as lines of a file: what `kcat -J` prints, and a lossless form of it.

Pure: records in, lines out, and back. One JSON object a line with kcat's members in kcat's order: `topic partition
offset tstype ts headers key payload`, where `headers` is a list of names and values in turn. Bytes that are not UTF-8
are shown with U+FFFD in their place, and stand whole beside it: `key_base64`, `payload_base64`, `headers_base64`. kcat
itself prints such bytes as they are; they are read back just so. `incarnation` is ours: which life of the topic it was.
"""

import base64
import binascii
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from facetline.storage.log.events import Raw

LINE_BYTES_MAX = 32 * 1024 * 1024
"""Above the longest line of a record of 4 MiB: kcat needs six bytes for a control character."""
TOO_LONG = f"the line has more than {LINE_BYTES_MAX} bytes"
READ_BYTES = 256 * 1024
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
TIMESTAMP_TYPES = ("create", "logappend")

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record and where its log had it; `incarnation` and `timestamp_type` (an index) are None where unknown."""

    topic: str
    partition: int
    offset: int
    raw: Raw
    incarnation: int | None = None
    timestamp_type: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A record with the number of its line; counted from 1."""

    number: int
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that is no record."""

    number: int
    reason: str


class Idle:
    """Stands between lines of a pipe: nothing more has come by now, and reading on may wait for ever."""


IDLE = Idle()


class _Refused(Exception):
    """The line cannot be taken; the message says why."""


def encode(recorded: Recorded) -> str:
    """Return the record's line, with its end."""
    raw = recorded.raw
    fields: dict[str, Any] = {
        "topic": recorded.topic,
        "partition": recorded.partition,
        "offset": recorded.offset,
    }
    if raw.timestamp_ms is not None and raw.timestamp_ms >= 0:
        kind = recorded.timestamp_type
        known = kind is not None and kind in range(len(TIMESTAMP_TYPES))
        fields |= {"tstype": TIMESTAMP_TYPES[kind or 0] if known else "unknown", "ts": raw.timestamp_ms}
    flat = [part for name, value in raw.headers for part in (name.encode(errors="surrogateescape"), value)]
    fields |= {"headers": [_shown(part) for part in flat], "key": _shown(raw.key), "payload": _shown(raw.value)}
    if recorded.incarnation is not None:
        fields["incarnation"] = recorded.incarnation
    if any(_is_odd(part) for part in flat):
        fields["headers_base64"] = [_base64(part) for part in flat]
    for name, part in (("key", raw.key), ("payload", raw.value)):
        if _is_odd(part):
            fields[f"{name}_base64"] = _base64(part or b"")
    return _encode(fields) + "\n"


def _shown(part: bytes | None) -> str | None:
    return None if part is None else part.decode(errors="replace")


def _is_odd(part: bytes | None) -> bool:
    """Say whether a part is not UTF-8, so that its text alone would not bring it back."""
    try:
        (part or b"").decode()
    except UnicodeDecodeError:
        return True
    return False


def _base64(part: bytes) -> str:
    return base64.b64encode(part).decode()


def read(file: BinaryIO) -> Iterator[Line | Refusal]:
    """Read a file line by line, however large it is; blank lines are passed."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            yield Refusal(number, TOO_LONG)
        elif line.strip():
            yield decode(number, line)


def follow(file: io.BufferedReader) -> Iterator[Line | Refusal | Idle]:
    """Read a pipe like a file, and say each time when all that has come by now was read."""
    number, parts, size = 0, list[bytes](), 0
    while data := file.read1(READ_BYTES):
        *whole, rest = data.split(b"\n")
        for end in whole:
            number += 1
            line = b"".join((*parts, end, b"\n"))
            size, parts = size + len(end), []
            yield from _checked(number, line, size)
            size = 0
        if size <= LINE_BYTES_MAX:
            parts.append(rest)
        size += len(rest)
        yield IDLE
    yield from _checked(number + 1, b"".join(parts), size)


def _checked(number: int, line: bytes, size: int) -> Iterator[Line | Refusal]:
    if size > LINE_BYTES_MAX:
        yield Refusal(number, TOO_LONG)
    elif line.strip():
        yield decode(number, line)


def decode(number: int, line: bytes) -> Line | Refusal:
    """Return the record that a line holds, or why it holds none."""
    try:
        try:
            given, errors = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8")), "strict"
        except UnicodeDecodeError:  # kcat prints bytes as they are
            given, errors = json.loads(line.decode(errors="surrogateescape")), "surrogateescape"
    except (ValueError, RecursionError) as error:
        return Refusal(number, f"it is not one JSON object ({str(error)[:200]})")
    try:
        return Line(number, _recorded(given, errors))
    except _Refused as refused:
        return Refusal(number, str(refused))


def _recorded(given: Any, errors: str) -> Recorded:
    if not isinstance(given, dict):
        raise _Refused("it is not a JSON object; a line is what 'facetline record' or 'kcat -J' prints")
    topic, kind = given.get("topic"), given.get("tstype")
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic):
        raise _Refused("topic is missing or no name of a topic")
    # kcat prints -1 where the record has no timestamp
    timestamp_ms = None if given.get("ts") == -1 else _whole(given, "ts", 2**63, needed=False)
    incarnation = _whole(given, "incarnation", 2**31, needed=False)
    for name in ("key", "payload"):
        if name not in given:
            raise _Refused(f"{name} is missing; null stands for one that the record does not have")
    raw = Raw(
        _bytes(given, "key", errors),
        _bytes(given, "payload", errors),
        _headers(given, errors),
        timestamp_ms,
    )
    return Recorded(
        topic=topic,
        partition=_whole(given, "partition", 2**31) or 0,
        offset=_whole(given, "offset", 2**63) or 0,
        raw=raw,
        incarnation=incarnation,
        timestamp_type=TIMESTAMP_TYPES.index(kind) if kind in TIMESTAMP_TYPES else None,
    )


def _whole(fields: dict[str, Any], name: str, limit: int, *, needed: bool = True) -> int | None:
    value = fields.get(name)
    if value is None and not needed:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise _Refused(f"{name} is {'missing' if value is None else 'no whole number'}")
    return value


def _bytes(fields: dict[str, Any], name: str, errors: str) -> bytes | None:
    exact = fields.get(f"{name}_base64")
    if exact is not None:
        return _from_base64(f"{name}_base64", exact)
    value = fields[name]
    return None if value is None else _encoded(name, value, errors)


def _headers(fields: dict[str, Any], errors: str) -> tuple[tuple[str, bytes], ...]:
    exact, given = fields.get("headers_base64"), fields.get("headers", [])
    flat: list[bytes]
    if isinstance(exact, list):
        flat = [_from_base64("headers_base64", part) for part in exact]
    elif isinstance(given, list):
        flat = [b"" if part is None else _encoded("headers", part, errors) for part in given]
    else:
        raise _Refused("headers are no list of names and values in turn")
    if len(flat) % 2:
        raise _Refused("headers are a list of names and values in turn; one has no value")
    names = (name.decode(errors="surrogateescape") for name in flat[::2])
    return tuple(zip(names, flat[1::2], strict=True))


def _encoded(name: str, value: Any, errors: str) -> bytes:
    if not isinstance(value, str):
        raise _Refused(f"{name} is not text; print it without a format of its own (kcat's -s)")
    try:
        return value.encode(errors=errors)
    except UnicodeEncodeError as error:
        raise _Refused(f"{name} holds half a surrogate pair, which is no byte of any record") from error


def _from_base64(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _Refused(f"{name} is not base64") from error
