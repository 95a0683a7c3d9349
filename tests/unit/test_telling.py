"""What others are told of an error: where the store and the broker are, and what a folder is called, stays here."""

import pytest
import structlog

from facetline.facets import errors, public_messages
from facetline.facets.agents import replies
from facetline.facets.api import problems

WHERE = "connection to 10.1.2.3:5432 of /srv/private failed"
SURROUNDINGS = [errors.StoreUnavailable(WHERE), errors.BrokerUnavailable(WHERE), errors.ExportFailed(WHERE)]


@pytest.mark.parametrize("error", SURROUNDINGS, ids=lambda each: type(each).__name__)
def test_nobody_outside_is_told_where_things_are(error: errors.PipelineError):
    """A problem of the API and an agent's result say what is away, without addresses and paths; the log says all."""
    with structlog.testing.capture_logs() as logs:
        problem = problems.of_error(error).members("/v1/collections")
        reply = replies.refused(error)

    assert problem["detail"] == type(error)().message
    assert reply.text.startswith(f"Error: {problem['detail']}")
    assert "10.1.2.3" not in str((problem, reply))
    assert "/srv/private" not in str((problem, reply))
    assert [(each["event"], each["reason"]) for each in logs] == [("request_not_served", WHERE)] * 2


def test_what_the_caller_can_mend_is_told_whole():
    """An error about what was asked keeps its words, and is nobody's business in the log."""
    with structlog.testing.capture_logs() as logs:
        told = public_messages.message_of(errors.InvalidQuery("limit is 0; give 1 to 200"))

    assert told == "limit is 0; give 1 to 200"
    assert logs == []
