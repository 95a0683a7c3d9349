"""The client's pure parts: what is sent again and when, what problems become, what is remembered, what is never shown.

Method: `talk` is a generator, driven here by hand with a clock of the test's own; errors make the whole way, through
the API's problems and back.
"""

import inspect
import json
import random
from typing import Any

import pytest

from facetline.facets import errors, public_messages
from facetline.facets.api import problems
from facetline.facets.api.problem_types import KINDS
from facetline.facets.client import calls
from facetline.facets.client.calls import Call, Lost, Patience, Pause, Reply
from facetline.facets.client.client import AsyncClient, Client
from facetline.facets.client.memory import WRITES_MAX, Memory, base_url, is_loopback

CALL = Call("PUT", "/v1/documents/t/1", key="k1")
OK = Reply(200, {}, b'{"a": 1}')
BUSY = Reply(503, {"retry-after": "2"}, b'{"type": "/v1/problems/busy", "detail": "too much"}')


def talked(came: list[Reply | Lost], *, timeout_s: float = 30.0) -> tuple[list[Call | Pause], Any]:
    """Return the steps of a talk whose tries end so, and its end: a value or an error."""
    now = [0.0]
    steps = calls.talk(CALL, Patience(timeout_s, 0.0, random.Random(1)), lambda: now[0])  # noqa: S311 (jitter)
    taken: list[Call | Pause] = []
    answers = iter(came)
    step = next(steps)
    try:
        while True:
            taken.append(step)
            if isinstance(step, Pause):
                now[0] += step.seconds
                step = steps.send(None)
            else:
                step = steps.send(next(answers))
    except StopIteration as ended:
        return taken, ended.value
    except errors.PipelineError as error:
        return taken, error


def test_an_answer_is_sent_once():
    """A reply that is no passing trouble ends the talk with its value."""
    assert talked([OK]) == ([CALL], {"a": 1})


def test_a_busy_server_is_asked_again_when_it_says():
    """After a 503 the same call, with the same key, is sent again, no sooner than `Retry-After` says."""
    taken, value = talked([BUSY, OK])

    assert value == {"a": 1}
    assert taken[0] is taken[2] is CALL
    assert isinstance(taken[1], Pause)
    assert taken[1].seconds >= 2


def test_a_lost_reply_is_asked_for_again():
    """A call whose reply was lost is sent again with growing pauses, five times at most; then it is unavailable."""
    taken, error = talked([Lost("gone")] * 9)

    pauses = [step.seconds for step in taken if isinstance(step, Pause)]
    assert taken.count(CALL) == calls.TRIES_MAX
    assert all(later > sooner for sooner, later in zip(pauses[::2], pauses[2::2], strict=False))
    assert isinstance(error, errors.ServerUnavailable)
    assert error.message == "gone"


def test_no_pause_outlasts_the_time_given():
    """A pause that would outlast the time is not begun: the server's own refusal is raised."""
    taken, error = talked([BUSY, OK], timeout_s=1.0)

    assert taken == [CALL]
    assert isinstance(error, errors.ServerUnavailable)
    assert error.message == "too much"


def test_refusals_are_not_repeated():
    """What the server refuses for good is raised at once."""
    problem = json.dumps({"type": "/v1/problems/unknown-value", "detail": "no", "allowed": ["a"]}).encode()
    taken, error = talked([Reply(400, {}, problem)])

    assert taken == [CALL]
    assert isinstance(error, errors.UnknownValue)
    assert error.allowed == ("a",)


RAISED = [
    errors.InvalidQuery("no", allowed=["x"]),
    errors.UnknownCollection("no", allowed=["x"]),
    errors.UnknownFacet("no", allowed=["x"]),
    errors.UnknownValue("no", allowed=["x"]),
    errors.InvalidFilter("no", allowed=["x"], line=2, column=3),
    errors.InvalidCursor("no"),
    errors.SearchTimeout("no"),
    errors.SqlRefused("no"),
    errors.SqlFailed("no", line=1, column=2),
    errors.SqlTimeout("no"),
    errors.SqlTooLarge("no"),
    errors.InvalidEvent("invalid_state", "no"),
    errors.InvalidEvent("too_large", "no"),
    errors.InvalidEvent("unknown_collection", "no"),
    errors.InvalidEvent("id_reused", "no"),
    errors.NotFound("no"),
    errors.Conflict("no"),
    errors.KeyReused("no"),
    errors.Forbidden("no"),
    errors.NotCaughtUp("no"),
    errors.WriteInDoubt("no"),
    errors.StoreUnavailable("no"),
    errors.BrokerUnavailable("no"),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda each: type(each).__name__)
def test_errors_come_back_as_they_were(raised: errors.PipelineError):
    """An error of the node arrives at the client as the same class, with its fields and what others are told of it."""
    problem = problems.of_error(raised)
    found = calls.error_of(Reply(problem.status, {}, problems.encoded(problem.members("/v1/x"))))

    assert type(found) is type(raised)
    assert found.message == public_messages.message_of(raised)
    for field in ("allowed", "line", "column", "reason", "code"):
        assert getattr(found, field, None) == getattr(raised, field, None)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_problem_is_an_error_of_its_duty(kind: Any):
    """Every kind of problem is an error to the client: above 500 one that may pass, below one that will not."""
    body = json.dumps({"type": kind.type, "title": kind.title, "status": kind.status, "detail": "why"}).encode()
    found = calls.error_of(Reply(kind.status, {}, body))

    assert found.message == "why"
    assert isinstance(found, errors.TransientError if kind.status >= 500 else errors.PermanentError)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(404, {}, b"<h1>nothing</h1>"), "HTTP 404 <h1>nothing</h1>"),
        (Reply(500, {}, b"\xff" * 5_000), "HTTP 500"),
        (Reply(302, {}, b""), "HTTP 302"),
        (Reply(200, {}, b"<html>"), "not JSON"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_other_servers_are_no_puzzle(reply: Reply, said: str):
    """What is no reply of ours is an error that shows what came, a bounded part of it."""
    with pytest.raises(errors.PipelineError) as raised:
        calls.value_of(reply)

    assert said in raised.value.message
    assert len(raised.value.message) < 400


@pytest.mark.parametrize("say", ["junk", "", "-1", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_retry_after_of_any_form_is_no_error(say: str):
    """A `Retry-After` that cannot be read, or lies in the past, is as if there were none."""
    taken, value = talked([Reply(503, {"retry-after": say}, b"{}"), OK])

    assert value == {"a": 1}
    assert isinstance(taken[1], Pause)
    assert taken[1].seconds < 1


def test_nothing_shows_the_token():
    """A client's `repr` does not hold its token, and an address with a password in it is refused without showing it."""
    client = Client("http://127.0.0.1:1/", token="flt_secret")

    assert repr(client) == "Client('http://127.0.0.1:1')"
    with pytest.raises(errors.InvalidSettings, match="as parameter 'token'") as refused:
        Client("http://name:flt_secret@127.0.0.1")
    assert "flt_secret" not in refused.value.message
    client.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", "http://x/?a=1"])
def test_addresses_are_checked(url: str):
    """What is no address of a server is refused with an example of one."""
    with pytest.raises(errors.InvalidSettings):
        base_url(url)


def test_this_machine_needs_no_proxy():
    """Loopback addresses are known by name and number."""
    near = ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080")

    assert [is_loopback(url) for url in (*near, "http://10.0.0.1", "https://x.example")] == [True] * 3 + [False] * 2


def test_both_clients_have_the_same_methods():
    """What `Client` can do `AsyncClient` can, with the same arguments and what they default to."""

    def methods(kind: type) -> dict[str, list[str]]:
        found = {name: value for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"}
        return {name.removeprefix("a"): str(inspect.signature(each)).split(" ->")[:1] for name, each in found.items()}

    assert methods(Client) == methods(AsyncClient)


def test_remembered_write_tokens_are_bounded():
    """Of many writes the newest tokens are kept, with the collection's own no more than a request may carry."""
    memory = Memory(on=True)
    for number in range(100):
        memory.written(f"t/{number}", {"token": f"w{number}"})
        memory.found(f"c{number}", {"as_of": {"token": f"s{number}"}})

    assert memory.for_search("c99") == ["s99", *(f"w{number}" for number in range(100 - WRITES_MAX, 100))]
    assert memory.params_of("t/99") == (("at_least", "w99"),)
    assert memory.params_of("t/0") == ()


def test_memory_can_be_off_and_forgotten():
    """A memory that is off keeps nothing; forgetting says whether there was anything."""
    off, on = Memory(on=False), Memory(on=True)
    for memory in (off, on):
        memory.written("t/1", {"token": "w"})

    assert off.for_search("c") == []
    assert [on.forget(), on.forget(), off.forget()] == [True, False, False]
    assert on.for_search("c") == []


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("tickets/t1", "/v1/documents/tickets/t1"),
        ("@alice/notes/a b?c#d%", "/v1/documents/@alice/notes/a%20b%3Fc%23d%25"),
        ("t/ü", "/v1/documents/t/%C3%BC"),
    ],
)
def test_uris_are_encoded_once(uri: str, path: str):
    """A uri of any letters is one address."""
    assert calls.document(uri) == path


@pytest.mark.parametrize("uri", ["", "a//b", "../x", "a\nb", "\ud800"])
def test_what_is_no_uri_is_not_sent(uri: str):
    """A uri that no server takes is refused before anything is sent."""
    with pytest.raises(errors.InvalidEvent):
        calls.document(uri)


@pytest.mark.parametrize(
    "content", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}], ids=["nan", "object", "surrogate"]
)
def test_what_is_no_json_is_not_sent(content: dict[str, Any]):
    """A body that is not JSON is refused before anything is sent."""
    with pytest.raises(errors.InvalidQuery):
        calls.encoded(content)
