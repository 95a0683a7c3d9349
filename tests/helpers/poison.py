"""Every kind of bad event that a producer may put into the log, and its good neighbours."""

import json
from collections.abc import Callable, Sequence

from runtimes import Case

from facetline.streams.wire.codec import Message

Bad = Callable[[Case], tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]]


def valued(value: bytes) -> Bad:
    """A record with this value, and no header."""
    return lambda case: (case.uri("bad").encode(), value + f" {case.scope}".encode(), ())


def json_(data: object, *headers: tuple[str, bytes]) -> Bad:
    """A record with this JSON and these headers."""
    return lambda case: (
        case.uri("bad").encode(),
        json.dumps(data).encode(),
        (*headers, ("x-test", case.scope.encode())),
    )


def keyed(key: Callable[[Case], bytes | None]) -> Bad:
    """A record with this key, and nothing else wrong."""
    return lambda case: (key(case), b'{"body": "x"}', (("x-test", case.scope.encode()),))


BAD_EVENTS: list[tuple[str, Bad]] = [
    ("not_json", valued(b"this is no json")),
    ("not_json", valued(b"\xff\xfe\x00")),
    ("not_json", valued(b"")),
    ("unknown_type", json_({"body": "x"}, ("ce_type", b"facetline.document.painted.v1"))),
    ("unknown_type", json_({"body": "x"}, ("ce_id", b"1"), ("ce_id", b"2"))),
    ("unknown_collection", keyed(lambda case: f"nowhere/{case.scope}".encode())),
    ("unknown_collection", keyed(lambda _: b"tickets/without-a-scope")),
    ("unknown_collection", keyed(lambda case: f"{case.uri('a')}/b".encode())),
    ("invalid_uri", keyed(lambda _: b"\xff\xfe")),
    ("invalid_uri", keyed(lambda _: b"")),
    ("null_key", keyed(lambda _: None)),
    ("too_large", json_({"body": "x" * (512 * 1024 + 1)})),
    ("too_large", json_({"state": {"title": "x" * (64 * 1024)}})),
    ("invalid_text", json_({"body": "a\0b"})),
    ("invalid_text", json_({"body": "x", "state": {"title": "a\0b"}})),
    ("invalid_text", json_({"body": "x"}, ("ce_id", b"\xff"))),
    ("invalid_body", json_({"body": None})),
    ("invalid_body", json_({"body": 7})),
    ("invalid_body", json_({"text": "x"})),
    ("invalid_body", json_({})),
    ("invalid_body", json_(["x"])),
    ("invalid_state", json_({"body": "x", "state": {"priority": "high"}})),
    ("invalid_state", json_({"body": "x", "state": {"priority": 2**63}})),
    ("invalid_state", json_({"body": "x", "state": {"nonsense": 1}})),
    ("invalid_state", json_({"body": "x", "state": None})),
    ("no_document", json_({"state": {"title": "a"}})),
]


async def produced(case: Case) -> tuple[list[tuple[str, Message]], list[Message]]:
    """Produce every bad event, a good neighbour after each one."""
    bad = [
        (reason, Message(key, value, tuple(headers)))
        for reason, make in BAD_EVENTS
        for key, value, headers in [make(case)]
    ]
    good = [case.message(f"g{number}", f"billing {number}") for number in range(len(bad))]
    await case.produce(*(each for (_, one), other in zip(bad, good, strict=True) for each in (one, other)))
    return bad, good
