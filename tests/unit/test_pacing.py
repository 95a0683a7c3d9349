"""Recorded gaps, scaled: when each event is due, whatever the clocks of its recording did."""

import pytest

from facetline.streams.replay.pacing import Pace


@pytest.mark.parametrize(("speed", "due"), [(1.0, [0, 2, 2, 5]), (10.0, [0, 0.2, 0.2, 0.5]), (0.5, [0, 4, 4, 10])])
def test_gaps_are_those_of_the_recording(speed: float, due: list[float]):
    """The first event is due at once, each other one after the recording's gaps, divided by the speed."""
    pace = Pace(speed, gap_most_s=100)

    assert [pace.due_s(each) for each in (10_000, 12_000, 12_000, 15_000)] == pytest.approx(due)


def test_a_long_gap_is_cut():
    """A night without events is not waited for, and the gaps after it are again the recording's."""
    pace = Pace(2.0, gap_most_s=30)

    assert [pace.due_s(each) for each in (0, 90_000_000, 90_004_000)] == pytest.approx([0, 30, 32])


def test_a_time_that_goes_back_is_no_gap():
    """An event from before its predecessor, or without a time, is due with it; gaps are counted from the latest."""
    pace = Pace(1.0)

    assert [pace.due_s(each) for each in (5_000, 3_000, None, 4_000, 6_000)] == pytest.approx([0, 0, 0, 0, 1])
