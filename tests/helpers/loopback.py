"""Keep tests on this machine: sockets that would leave it are refused."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

# Services that the caller of the tests named may stand elsewhere.
ADDRESS_VARIABLES = ("FACETLINE_TEST_KAFKA", "FACETLINE_TEST_POSTGRES_URL")


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
    """Return ports that nobody has now; all are held until the last is found, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


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
