"""Keys that stand several times in one file."""

from facetline.streams.files.repeated_keys import RepeatedKeys


def test_repeats_are_listed_with_their_lines() -> None:
    """Each key that came again is listed once, with all of its lines, also across parts of the file."""
    with RepeatedKeys() as keys:
        assert keys.add([("a", 2), ("b", 3), ("a", 4)]) == [True, True, False]
        keys.add([("c", 5), ("b", 6), ("a", 7)])

        assert keys.listed() == [{"key": "a", "lines": [2, 4, 7]}, {"key": "b", "lines": [3, 6]}]
