"""The public message of an error, for clients of the API, the page and agents.

Errors of what stands around a service come from libraries and name its machines and folders. Those who run it read that
in the log and in `/readyz?verbose`; all others get what it means.
"""

import structlog

from facetline.facets import display, errors

OF_SURROUNDINGS = (errors.StoreUnavailable, errors.BrokerUnavailable, errors.ExportFailed)
"""Errors whose messages hold addresses and paths."""

log = structlog.get_logger(__name__)


def message_of(error: errors.PipelineError) -> str:
    """Return the message, or what its kind means where the message is for those who run the service; that is logged."""
    if not isinstance(error, OF_SURROUNDINGS):
        return display.block(error.message)
    log.warning("request_not_served", error=type(error).__name__, reason=error.message)
    return type(error)().message
