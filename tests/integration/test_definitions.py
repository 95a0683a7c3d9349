"""Active definitions in the store: one generation after another, and no two collections that could own one uri."""

import asyncio
from collections.abc import Callable

import pytest

from facetline.facets import errors
from facetline.facets.definitions import Definition
from facetline.facets.questions import Question, boolean, choice, score
from facetline.storage import counters, definitions
from facetline.storage.db import engine

QUESTIONS: dict[str, Question] = {
    "topic": choice(ask="What is it about?", options={"outage": "Down", "billing": "Money"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["cosmetic", "annoying"]),
}


def definition(name: str, *, pattern: str | None = None, **changed: object) -> Definition:
    """Return a definition of a collection."""
    plain = {
        "name": name,
        "pattern": pattern or f"{name}/*",
        "scoped": False,
        "llm_readable": True,
        "state_schema": {"type": "object", "properties": {"title": {"type": ["string", "null"]}}},
        "questions": QUESTIONS,
        "evaluator": "triage",
        "kind": "embedded",
        "model": "m",
        "fingerprint": "f1",
    }
    return Definition.model_validate({**plain, **changed})


async def test_a_new_store_has_no_definitions(store: engine.Store):
    """Generation 0 is that of no definitions at all."""
    generation, active = await store.read(definitions.active)

    assert (generation.number, dict(active.by_name)) == (0, {})


async def test_what_was_activated_comes_back_the_same(store: engine.Store):
    """Questions, options in their declared order, schema and fingerprint survive the store exactly."""
    tickets = definition("tickets")

    done = await store.write(definitions.activate, [tickets, definition("notes")])
    generation, active = await store.read(definitions.active)

    assert (done.generation, sorted(done.names), generation.number) == (generation, ["notes", "tickets"], 1)
    assert active.by_name["tickets"].model_dump_json() == tickets.model_dump_json()


async def test_activating_the_same_again_changes_nothing(store: engine.Store):
    """The generation grows with a change only, so that nobody rebuilds for nothing."""
    await store.write(definitions.activate, [definition("tickets")])

    again = await store.write(definitions.activate, [definition("tickets")])

    assert (again.generation.number, again.names) == (1, ())
    assert (await store.read(definitions.generation)).number == 1


async def test_a_change_replaces_one_and_leaves_the_others(store: engine.Store):
    """A new definition takes the place of its collection's old one; collections not named stay active."""
    await store.write(definitions.activate, [definition("tickets"), definition("notes")])

    done = await store.write(definitions.activate, [definition("tickets", fingerprint="f2"), definition("notes")])
    _, active = await store.read(definitions.active)

    assert (done.generation.number, done.names) == (2, ("tickets",))
    assert {name: each.fingerprint for name, each in active.by_name.items()} == {"tickets": "f2", "notes": "f1"}


async def test_the_order_of_options_is_a_change(store: engine.Store):
    """Nothing is asked again for it, but people see options in their declared order."""
    await store.write(definitions.activate, [definition("tickets")])
    turned = choice(ask="What is it about?", options={"billing": "Money", "outage": "Down"})

    done = await store.write(definitions.activate, [definition("tickets", questions={**QUESTIONS, "topic": turned})])

    assert done.names == ("tickets",)


async def test_first_sight_activates_unknown_collections_only(store: engine.Store):
    """A file that says something else about a known collection changes nothing by being seen."""
    await store.write(definitions.activate, [definition("tickets")])

    done = await store.write(
        definitions.activate_unknown, [definition("tickets", fingerprint="other"), definition("notes")]
    )
    _, active = await store.read(definitions.active)

    assert done.names == ("notes",)
    assert active.by_name["tickets"].fingerprint == "f1"


@pytest.mark.parametrize("activate", [definitions.activate, definitions.activate_unknown])
async def test_overlapping_patterns_are_refused(store: engine.Store, activate: Callable[..., definitions.Activated]):
    """A uri belongs to one collection: the message names both, and nothing is activated."""
    await store.write(definitions.activate, [definition("tickets")])

    with pytest.raises(errors.InvalidDefinition, match=r"tickets/\*.*'tickets'|'tickets'.*tickets/\*"):
        await store.write(activate, [definition("notes"), definition("cases", pattern="tickets/*")])

    assert (await store.read(definitions.generation)).number == 1


async def test_a_collection_may_take_over_a_pattern_given_up_at_once(store: engine.Store):
    """What counts is how all the definitions stand together afterwards."""
    await store.write(definitions.activate, [definition("tickets")])

    done = await store.write(
        definitions.activate, [definition("cases", pattern="tickets/*"), definition("tickets", pattern="old/*")]
    )

    assert done.generation.number == 2


async def test_activations_at_once_are_one_after_another(store: engine.Store):
    """Every change has a generation of its own, whoever makes it at the same moment."""
    done = await asyncio.gather(*(store.write(definitions.activate, [definition(f"c{n}")]) for n in range(6)))

    assert sorted(each.generation.number for each in done) == [1, 2, 3, 4, 5, 6]
    assert len((await store.read(definitions.active))[1].by_name) == 6


async def test_counts_of_one_name_are_summed(store: engine.Store):
    """Counts from everywhere are summed by name."""
    await asyncio.gather(*(store.write(counters.add, name, n) for name, n in (("a", 1), ("b", 5), ("a", 2))))

    assert await store.read(counters.all) == {"a": 3, "b": 5}
