"""Whether a host is a loopback address."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Say whether a host, as in an address or in a request and without its port, is this machine."""
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")).is_loopback
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
