"""Which names are this machine, by which nobody else can be reached."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Say whether a host, as in an address or in a request and without its port, is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
