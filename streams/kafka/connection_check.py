"""Why no broker can be reached, naming the setting to fix: aiokafka only reports that none can."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any

from aiokafka import conn as aiokafka_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from facetline.facets import errors
from facetline.streams.kafka import clients
from facetline.streams.settings import KafkaSettings

PROBE_S = 2.0
"""How long one address may take; a broker that hangs is no reason to let the caller wait for its explanation."""
ADDRESSES_MAX = 3
OTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

_TAKEN = (
    *("client_id", "request_timeout_ms", "ssl_context", "security_protocol"),
    *("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"),
)


async def why_unreachable(settings: KafkaSettings) -> str:
    """Try to connect to the first addresses as a client would; return what each says, "" when one of them answers.

    Settings that no longer fit (a certificate that was there at the start, and is not now) are a reason, too.
    """
    try:
        arguments = clients.client_arguments(settings)
    except errors.InvalidSettings as error:
        return error.message
    lines = []
    for address in arguments["bootstrap_servers"][:ADDRESSES_MAX]:
        reason = await _reason(settings, address, arguments)
        if not reason:
            return ""
        lines.append(f"{address} {reason}")
    return "; ".join(lines)


async def _reason(settings: KafkaSettings, address: str, arguments: dict[str, Any]) -> str:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return "is no address; kafka.bootstrap_servers is a list of host:port"
    taken = {name: arguments[name] for name in _TAKEN if name in arguments}
    try:
        async with asyncio.timeout(PROBE_S):
            connection = await aiokafka_conn.create_conn(host.strip("[]"), int(port), **taken)
    except (KafkaError, OSError, TimeoutError) as error:
        return _explained(settings, error)
    with suppress(TimeoutError):
        await asyncio.wait_for(connection.close(), PROBE_S)
    return ""


def _explained(settings: KafkaSettings, error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_code=code, verify_message=given) if code in OTHER_NAME:
            fix = "name it in kafka.bootstrap_servers as its certificate does"
            return f"has a certificate for another host name ({given}); {fix}"
        case ssl.SSLCertVerificationError(verify_message=given):
            return f"has a certificate that is not trusted ({given}); set kafka.ssl_ca_location"
        case SaslAuthenticationFailed() | IllegalSaslStateError() | UnsupportedSaslMechanismError():
            fix = "check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password"
            return f"refuses the login ({error}); {fix}"
        case ConnectionRefusedError() | socket.gaierror():
            return f"cannot be reached ({error.strerror or error})"
        case TimeoutError():
            return f"does not answer within {PROBE_S:g} s{_other_protocol(settings)}"
    return f"ends the connection at once ({error}){_other_protocol(settings)}"


def _other_protocol(settings: KafkaSettings) -> str:
    """What the two sides may disagree about; a broker that wants a certificate ends the connection without a word."""
    message = f"; kafka.security_protocol is {settings.security_protocol}: does that port want another one"
    if settings.security_protocol == "SSL" and settings.ssl_certificate_location is None:
        return f"{message}, or a certificate of yours (kafka.ssl_certificate_location)?"
    return f"{message}?"
