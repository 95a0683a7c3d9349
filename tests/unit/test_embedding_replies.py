"""Embedding replies as matrices: what libraries on the way would hide, and that extra members are of no account."""

from typing import Any

import pytest

from facetline.evaluators.embedders import reply


def response(*vectors: Any) -> dict[str, Any]:
    """A reply with these vectors."""
    return {"data": [{"embedding": each, "index": index, "object": "embedding"} for index, each in enumerate(vectors)]}


def test_whole_numbers_are_numbers():
    """JSON has one kind of number."""
    assert reply.matrix_of(response([1, 2], [0.5, 3]), 2).tolist() == [[1.0, 2.0], [0.5, 3.0]]


@pytest.mark.parametrize("row", [[True, False], [10**400, 1], [None, 1.0], ["1", "2"], [{}, 1.0]])
def test_what_is_no_number_is_refused(row: list[Any]):
    """Numpy would make numbers of some."""
    with pytest.raises(reply.Malformed, match="vector 1 of 1 holds what is no number"):
        reply.matrix_of(response(row), 1)


@pytest.mark.parametrize("index", [True, "0", -1, 1, 0.0, None])
def test_an_index_is_a_place(index: Any):
    """Anything else, also one index that is left out, does not say which text a vector is of."""
    given = response([1.0], [2.0])
    given["data"][0]["index"] = index
    with pytest.raises(reply.Malformed, match="not known"):
        reply.matrix_of(given, 2)
