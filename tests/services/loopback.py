"""Keep tests on this machine: sockets that would leave it are refused."""

import contextlib
import ipaddress
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Services that the caller of the tests named may stand elsewhere.
ADDRESS_VARIABLES = ("FACETLINE_TEST_KAFKA", "FACETLINE_TEST_POSTGRES_URL")
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_MIN = 10_000
"""Known services have ports below, our own 8090 among them."""
PORTS = 12_000
PORTS_TRIED = 100


class LeavesThisMachineError(RuntimeError):
    """A test opened a connection that leaves this machine.

    No OSError on purpose: code that treats those as "unavailable, try again" must not swallow this one.
    """


@contextmanager
def only_loopback() -> Iterator[None]:
    """Refuse every `connect` to an address that is neither loopback nor one of the services named for the tests.

    Unix sockets pass. Sockets that C libraries open themselves (libpq) are not seen.
    """
    named = _named_addresses()
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _check(self, address, named)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _check(self, address, named)
        return connect_ex(self, address)

    socket.socket.connect, socket.socket.connect_ex = guarded_connect, guarded_connect_ex  # type: ignore[method-assign]
    try:
        yield
    finally:
        socket.socket.connect, socket.socket.connect_ex = connect, connect_ex  # type: ignore[method-assign]


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, for servers that can only be given a number.

    No client is given one of them meanwhile: they lie outside the range from which the system takes ports for outgoing
    connections. All are held until the last is found, so that they differ.
    """
    with contextlib.ExitStack() as held:
        return [int(held.enter_context(_free()).getsockname()[1]) for _ in range(count)]


def _free() -> socket.socket:
    ports = outside(*_outgoing())
    for port in random.sample(ports, min(PORTS_TRIED, len(ports))):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise RuntimeError(f"no port is free outside the range of outgoing connections, which {OUTGOING} gives")


def outside(first: int, last: int) -> range:
    """Return the ports to choose from where those from `first` to `last` are for outgoing connections.

    They lie below that range, or above it where too few are left below.
    """
    below = range(max(first - PORTS, PORT_MIN), first)
    return below if len(below) >= PORTS_TRIED else range(last + 1, 65536)


def _outgoing() -> tuple[int, int]:
    """The system's range; systems without that file begin at 49152, and Linux at 32768."""
    try:
        first, last = OUTGOING.read_text().split()
    except OSError:
        return 32768, 65535
    return int(first), int(last)


def _check(sock: socket.socket, address: Any, named: frozenset[str]) -> None:
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    host = address[0]
    if host == "localhost" or host in named:
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass  # a name that is not localhost
    raise LeavesThisMachineError(f"tests may only connect to loopback, not to {host}")


def _named_addresses() -> frozenset[str]:
    hosts = set()
    for variable in ADDRESS_VARIABLES:
        for part in os.environ.get(variable, "").split(","):
            host = urlsplit(part if "://" in part else f"//{part}").hostname
            if host:
                hosts |= {host, *(str(info[4][0]) for info in socket.getaddrinfo(host, None))}
    return frozenset(hosts)
