"""What the embedded model makes of other languages than its own: guesses, and it does not call them sure."""

import pytest

from facetline.evaluators.embedded.evaluator import Embedded
from facetline.facets import questions
from facetline.facets.answers import ChoiceAnswer

SURE = 0.8
ASKED: dict[str, questions.Question] = {
    "topic": questions.choice(
        ask="What is it about?",
        options={
            "billing": "Invoices, payments, a double charge, a refund",
            "outage": "The service is down, errors, nothing loads",
            "delivery": "A parcel, shipping, tracking, a delivery that is late",
            "account": "Password, login, profile, deleting an account",
        },
    )
}
TICKETS = {
    "Mir wurde zweimal Geld abgebucht.": "billing",
    "Das Paket ist seit zwei Wochen unterwegs.": "delivery",
    "Ich komme nicht mehr in mein Konto.": "account",
    "Nichts lädt, alles ist ausgefallen.": "outage",
    "Me han cobrado dos veces.": "billing",
    "No puedo entrar en mi cuenta.": "account",
    "El pedido no ha llegado todavía.": "delivery",
    "Le colis n'est jamais arrivé.": "delivery",
    "Tout est en panne depuis ce matin.": "outage",
}


@pytest.fixture(scope="module")
def evaluator() -> Embedded:
    """The evaluator as a table without further keys makes it."""
    return Embedded()


@pytest.mark.parametrize("body", TICKETS)
async def test_another_language_gets_no_wrong_answer_that_is_sure(evaluator: Embedded, body: str):
    """Whoever filters by `min_confidence` does not find what the model guessed wrong."""
    said = await evaluator.evaluate(body, ASKED, key="k", deadline_s=60)

    answer = said.answers["topic"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.confidence is not None
    assert answer.choice == TICKETS[body] or answer.confidence < SURE


async def test_its_own_language_gets_sure_answers(evaluator: Embedded):
    """The bound above says something: the same in English is sure."""
    said = await evaluator.evaluate("I was charged twice, I want a refund.", ASKED, key="k", deadline_s=60)

    assert (said.answers["topic"].confidence or 0) >= SURE
