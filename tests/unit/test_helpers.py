"""What all tests lean on holds: waiting ends, and nothing leaves this machine."""

import asyncio
import contextlib
import socket
from pathlib import Path

import loopback
import missing
import postgres_server
import pytest
from polling import eventually


async def test_waiting_returns_the_first_true_value() -> None:
    """The condition is asked until it is true, and its value is handed back."""
    answers = iter([0, None, "", 7, 8])

    assert await eventually(lambda: next(answers), every_s=0.001) == 7


async def test_waiting_takes_coroutines() -> None:
    """A coroutine function is awaited, not taken for true."""
    answers = iter([False, "there"])

    async def ask() -> object:
        return next(answers)

    assert await eventually(ask, every_s=0.001) == "there"


async def test_waiting_ends_with_what_was_awaited() -> None:
    """After the deadline the failure names the condition and its last value."""
    with pytest.raises(AssertionError, match=r"not within 0.01 s .*: a seventh document; last: \[\]"):
        await eventually(list, deadline_s=0.01, every_s=0.001, what="a seventh document")


async def test_waiting_cuts_off_a_condition_that_hangs() -> None:
    """A coroutine that never answers fails at the deadline like any other condition."""
    with pytest.raises(AssertionError, match="no answer"):
        await eventually(asyncio.Event().wait, deadline_s=0.05)


async def test_waiting_hides_no_error() -> None:
    """What the condition raises ends the wait at once."""

    def broken() -> bool:
        raise KeyError("t1")

    with pytest.raises(KeyError):
        await eventually(broken, deadline_s=5)


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "2001:db8::1"])
def test_no_connection_leaves_this_machine(host: str) -> None:
    """Connecting to anything but loopback is refused before a packet is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(1)
        with pytest.raises(loopback.LeavesThisMachineError, match=host):
            sock.connect((host, 9))
        with pytest.raises(loopback.LeavesThisMachineError, match=host):
            sock.connect_ex((host, 9))


async def test_event_loops_are_held_too() -> None:
    """Asyncio's connections pass through the same guard."""
    with pytest.raises(loopback.LeavesThisMachineError):
        await asyncio.open_connection("192.0.2.1", 9)


@pytest.mark.parametrize(
    ("outgoing", "chosen"),
    [
        ((32768, 60999), range(20768, 32768)),
        ((16000, 65535), range(10000, 16000)),
        ((1024, 60999), range(61000, 65536)),
    ],
)
def test_free_ports_are_none_that_a_client_could_be_given(outgoing: tuple[int, int], chosen: range) -> None:
    """They lie below the system's range for outgoing connections, or above it where that begins too low."""
    assert loopback.outside(*outgoing) == chosen


def test_free_ports_differ_and_can_be_bound() -> None:
    """Each is free when it is returned."""
    ports = loopback.free_ports(3)
    with contextlib.ExitStack() as bound:
        for port in ports:
            bound.enter_context(socket.create_server(("127.0.0.1", port)))

    assert len(set(ports)) == 3


def test_loopback_and_unix_sockets_pass(tmp_path: Path) -> None:
    """Servers on this machine can be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)

        assert client.getpeername() == path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql+psycopg://postgres@/postgres?host=%2Ftmp%2Fx",
            "postgresql+psycopg://postgres@/t1?host=%2Ftmp%2Fx",
        ),
        ("postgresql+psycopg://u:p@127.0.0.1:5432/db", "postgresql+psycopg://u:p@127.0.0.1:5432/t1"),
        ("postgresql://127.0.0.1", "postgresql+psycopg://127.0.0.1/t1"),
    ],
)
def test_other_database_keeps_the_server(url: str, expected: str) -> None:
    """A test database's URL differs from the server's in the database's name only."""
    assert postgres_server.url_of(url, "t1") == expected


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception), ("false", pytest.skip.Exception)]
)
def test_missing_service_is_never_green_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    """A missing service skips its tests with the reason; where `CI=true` it fails them."""
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match="install a broker"):
        missing.skip_or_fail("install a broker")
