"""Folding, rule by rule: what one event makes of one document."""

from dataclasses import replace

import judged
import pytest

from facetline.storage.log import folding
from facetline.storage.log.events import Event, Outcome

URI = "tickets/t1"


def fold(*events: Event) -> folding.Fold:
    """Fold events over an empty store."""
    return folding.fold({}, {}, events)


def after(folded: folding.Fold) -> folding.DocumentState:
    """Return how the one document stands."""
    return folded.changes[URI].after


def numbers(outcome: Outcome) -> tuple[str, int | None, int | None, int | None]:
    """Return an outcome's kind and versions."""
    return outcome.outcome, outcome.version, outcome.revision, outcome.indexed_as


def test_first_body_makes_a_pending_document_at_version_one():
    """A body for an unknown uri makes a document with every counter at 1, waiting for its answer."""
    folded = fold(judged.write(URI, "hello", {"title": "x"}))

    assert numbers(folded.outcomes[0]) == ("applied", 1, 1, 1)
    assert after(folded).status == "pending"
    assert after(folded).state == '{"title":"x"}'
    assert folded.changes[URI].cleared
    assert folded.changes[URI].body == "hello"


@pytest.mark.parametrize("body", ["", " \n\t", "\u2003"])
def test_blank_body_is_empty_with_all_counters_set(body: str):
    """A blank body counts as a body write, but there is nothing to ask about."""
    folded = fold(judged.write(URI, "hello"), judged.write(URI, body, offset=1))

    assert numbers(folded.outcomes[1]) == ("applied", 2, 2, 2)
    assert after(folded).status == "empty"
    assert folded.changes[URI].body == body


def test_state_alone_grows_the_version_and_clears_nothing():
    """A state write leaves revision, identity, status and body as they were."""
    folded = folding.fold(
        {URI: after(fold(judged.write(URI, "hello")))}, {}, [judged.write(URI, None, {"n": 1}, offset=1)]
    )

    assert numbers(folded.outcomes[0]) == ("applied", 2, 1, 1)
    assert after(folded).status == "pending"
    assert not folded.changes[URI].cleared
    assert folded.changes[URI].body is None


def test_absent_state_is_kept_and_present_state_replaces_it_whole():
    """What a write does not carry stays; what it carries replaces everything of its kind."""
    folded = fold(
        judged.write(URI, "one", {"a": 1, "b": 2}),
        judged.write(URI, "two", offset=1),
    )
    replaced = fold(judged.write(URI, "one", {"a": 1, "b": 2}), judged.write(URI, None, {"c": 3}, offset=1))

    assert after(folded).state == '{"a":1,"b":2}'
    assert after(replaced).state == '{"c":3}'
    assert replaced.changes[URI].body == "one"


@pytest.mark.parametrize("before", [[], [judged.write(URI, "x"), judged.delete(URI, offset=1)]])
def test_state_alone_for_an_absent_document_is_rejected(before: list[Event]):
    """A document cannot begin with its state: the event becomes a dead letter and says why."""
    folded = fold(*before, judged.write(URI, None, {"n": 1}, offset=2))

    assert folded.outcomes[-1].reason == "no_document"
    assert [letter.reason for letter in folded.letters.values()] == ["no_document"]


def test_delete_keeps_the_revision_and_takes_everything_else():
    """A delete is a clearing of its own: version and identity grow, the revision still names the last body."""
    folded = fold(judged.write(URI, "hello", {"n": 1}), judged.delete(URI, offset=1))

    assert numbers(folded.outcomes[1]) == ("applied", 2, 1, 2)
    assert (after(folded).status, after(folded).state, after(folded).body_hash) == ("deleted", None, None)
    assert folded.changes[URI].cleared
    assert folded.changes[URI].body is None


def test_delete_of_an_unknown_document_is_unchanged_without_versions():
    """Deleting what never was is a recorded no-op."""
    folded = fold(judged.delete(URI))

    assert numbers(folded.outcomes[0]) == ("unchanged", None, None, None)
    assert (after(folded).version, after(folded).status) == (0, "deleted")
    assert not folded.changes[URI].cleared


def test_a_write_from_before_the_delete_of_an_unknown_document_does_not_come_back():
    """A delete leaves its position, also where nothing was to be deleted: an earlier write sent again is superseded."""
    early = judged.write(URI, None, {"n": 1}, offset=3)
    whole = judged.again(judged.write(URI, "body", offset=4, event_id="whole"))

    folded = fold(early, judged.delete(URI, offset=5), whole)

    assert [outcome.reason for outcome in folded.outcomes] == ["no_document", None, "superseded"]
    assert after(folded).status == "deleted"


def test_delete_of_a_deleted_document_is_unchanged_with_its_versions():
    """A second delete changes nothing and tells the versions of the first."""
    folded = fold(judged.write(URI, "x"), judged.delete(URI, offset=1), judged.delete(URI, offset=2))

    assert numbers(folded.outcomes[2]) == ("unchanged", 2, 1, 2)


def test_recreation_continues_the_counters():
    """One counter serves a uri for life; state from before the delete does not come back."""
    folded = fold(judged.write(URI, "x", {"n": 1}), judged.delete(URI, offset=1), judged.write(URI, "y", offset=2))

    assert numbers(folded.outcomes[2]) == ("applied", 3, 3, 3)
    assert after(folded).state is None


def test_a_b_a_are_three_writes():
    """A body that was there before is asked about anew: identity comes from the write, not from the text."""
    folded = fold(*(judged.write(URI, body, offset=at) for at, body in enumerate("aba")))

    assert [numbers(outcome) for outcome in folded.outcomes] == [("applied", n, n, n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (judged.write(URI, "a", unless_equal=True, offset=5), "unchanged"),
        (judged.write(URI, None, {"a": 1, "b": 2}, unless_equal=True, offset=5), "unchanged"),
        (judged.write(URI, None, {"b": 2, "a": 1}, unless_equal=True, offset=5), "unchanged"),
        (judged.write(URI, "a", {"a": 1, "b": 2}, unless_equal=True, offset=5), "unchanged"),
        (judged.write(URI, "a", {"a": 1}, unless_equal=True, offset=5), "applied"),
        (judged.write(URI, "b", {"a": 1, "b": 2}, unless_equal=True, offset=5), "applied"),
        (judged.write(URI, "a", {"a": 1, "b": 2}, offset=5), "applied"),
    ],
)
def test_unless_equal_compares_what_is_present(event: Event, outcome: str):
    """An import's write does nothing exactly when every part that it carries equals the stored one."""
    folded = fold(judged.write(URI, "a", {"a": 1, "b": 2}), event)

    assert folded.outcomes[1].outcome == outcome


def test_unless_equal_recreates_a_deleted_document():
    """A deleted document equals nothing, whatever its body was."""
    folded = fold(
        judged.write(URI, "a"), judged.delete(URI, offset=1), judged.write(URI, "a", unless_equal=True, offset=2)
    )

    assert numbers(folded.outcomes[2]) == ("applied", 3, 3, 3)


def test_unchanged_event_moves_the_position_only():
    """An event that changes nothing still makes older redriven ones superseded, and names no other source event."""
    folded = fold(judged.write(URI, "a"), judged.write(URI, "a", unless_equal=True, offset=9))

    assert after(folded).position.offset == 9
    assert after(folded).event_id == "e0"


def test_same_event_again_is_a_duplicate_with_the_first_outcome():
    """An id that was settled returns what became of it then, however the document stands now."""
    folded = fold(
        judged.write(URI, "a", event_id="one"),
        judged.write(URI, "b", offset=1),
        judged.write(URI, "a", offset=2, event_id="one"),
    )

    assert folded.outcomes[2] == replace(folded.outcomes[0], duplicate=True)
    assert after(folded).version == 2


def test_same_id_with_other_content_is_rejected():
    """An id stands for one event: another one under it is a dead letter, not a silent duplicate."""
    folded = fold(judged.write(URI, "a", event_id="one"), judged.write(URI, "b", offset=1, event_id="one"))

    assert folded.outcomes[1].reason == "id_reused"
    assert after(folded).version == 1


def test_rejection_settles_nothing():
    """An event that was rejected may come again under the same id and be applied."""
    folded = fold(
        judged.write(URI, None, {"n": 1}, event_id="one"),
        judged.write(URI, "a", offset=1),
        judged.write(URI, None, {"n": 1}, offset=2, event_id="one"),
    )

    assert [outcome.outcome for outcome in folded.outcomes] == ["rejected", "applied", "applied"]


def test_rejected_event_keeps_its_bytes_and_its_stage():
    """A dead letter is the event as it came, with where and why it was rejected."""
    event = judged.refused(reason="not_json", offset=4)

    folded = fold(event)

    letter = folded.letters[event.position]
    assert letter.event.raw == event.raw
    assert (letter.reason, letter.stage, letter.state, letter.attempts) == ("not_json", "decode", "open", 1)


def test_redriven_event_below_its_documents_position_is_superseded():
    """What was written since is not overwritten by an older event that comes again."""
    folded = fold(judged.write(URI, "new", offset=7), judged.again(judged.write(URI, "old", offset=3)))

    assert folded.outcomes[1].reason == "superseded"
    assert after(folded).version == 1
    assert [letter.state for letter in folded.letters.values()] == ["superseded"]


def test_redriven_event_above_its_documents_position_is_applied_and_closed():
    """A redriven event that is still the newest of its document is applied, and its letter is closed."""
    event = judged.again(judged.write(URI, "new", offset=7))

    folded = fold(judged.write(URI, "old", offset=3), event)

    assert folded.outcomes[1].outcome == "applied"
    assert folded.redriven == {event.position}


def test_live_event_below_its_documents_position_is_applied():
    """Only what is sent again can be too late: a live event counts, and the document keeps the larger position."""
    folded = fold(judged.write(URI, "replayed from an old log", offset=90), judged.write(URI, "live", offset=3))

    assert folded.outcomes[1].outcome == "applied"
    assert after(folded).position.offset == 90


def test_redriven_event_of_another_partition_is_not_compared():
    """Offsets of different partitions say nothing about which came first."""
    old = judged.again(judged.write(URI, "old", offset=3))
    elsewhere = replace(old, position=replace(old.position, partition=5))

    folded = fold(judged.write(URI, "new", offset=7), elsewhere)

    assert folded.outcomes[1].outcome == "applied"
    assert after(folded).position == elsewhere.position


def test_a_new_incarnation_is_later_than_every_offset_of_the_old_one():
    """Offsets begin at 0 in a log made anew, yet its events come after all of the old log's."""
    new = judged.write(URI, "new", offset=0)
    new = replace(new, position=replace(new.position, incarnation=2))

    folded = fold(judged.write(URI, "old", offset=90), new, judged.again(judged.write(URI, "late", offset=95)))

    assert [outcome.reason for outcome in folded.outcomes] == [None, None, "superseded"]


def test_several_rejections_at_one_position_are_one_letter():
    """A letter counts how often its event was rejected; being superseded does not hide why it first failed."""
    state = judged.write(URI, None, {"n": 1}, offset=3)

    folded = fold(state, judged.again(state), judged.write(URI, "new", offset=7), judged.again(state))

    [letter] = folded.letters.values()
    assert (letter.reason, letter.state, letter.attempts) == ("no_document", "superseded", 3)


def test_body_then_state_in_one_batch_still_clears():
    """The clearing of an earlier event of the batch is not undone by a later one that clears nothing."""
    folded = fold(judged.write(URI, "a"), judged.write(URI, None, {"n": 1}, offset=1))

    change = folded.changes[URI]
    assert change.cleared
    assert change.body == "a"
    assert (change.after.version, change.after.indexed_as) == (2, 1)
