"""The line about a settled event says where that very event stood, also among equal ones."""

import dataclasses

import stored

from facetline.storage.log.events import Applied, Batch, Outcome
from facetline.streams.kafka import write_worker


def test_each_outcome_has_the_place_of_its_event():
    """Events below the position have no outcome; of equal events the first ones are those."""
    one, other = stored.written("notes/1", "x"), stored.written("notes/2", "y")
    batches = [
        Batch("t", 1, 0, 5, 9, (one, other, one, one), (5, 6, 7, 8)),
        Batch("t", 1, 3, 0, 2, (dataclasses.replace(other, id="another"), other), (0, 1)),
    ]
    fresh = [other, one, one, batches[1].events[0], other]
    outcomes = tuple(Outcome(each.source, each.id, each.digest, "applied") for each in fresh)
    places = write_worker._places(Applied(outcomes, redelivered=1), batches)

    assert places == [(0, 6), (0, 7), (0, 8), (3, 0), (3, 1)]
