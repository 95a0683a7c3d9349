"""Messages of errors for clients of the API, the page and agents.

Errors of the store, the broker and exports come from libraries and may contain host names and folders. Operators find
them in the log and in `/readyz?verbose`; clients get the default message of the error's class.
"""

import structlog

from facetline.facets import display, errors

OF_SURROUNDINGS = (errors.StoreUnavailable, errors.BrokerUnavailable, errors.ExportFailed)
"""Errors whose messages may contain addresses and paths."""

log = structlog.get_logger(__name__)


def message_of(error: errors.PipelineError) -> str:
    """Return the message of an error; for an operator's error log the message and return its class's default one."""
    if not isinstance(error, OF_SURROUNDINGS):
        return display.block(error.message)
    log.warning("request_not_served", error=type(error).__name__, reason=error.message)
    return type(error)().message
