"""A model with fixed answers for the collection of the user stories; files tell it when to stall.

Words of a body: an option of `topic`, `urgent`, `sevN` (severity N); those of `folder_evaluator` hold and fail a call.
"""

from collections.abc import Mapping
from dataclasses import replace

from folder_evaluator import FolderEvaluator

from facetline.evaluators.contract import Evaluated, Limits
from facetline.facets.answers import Answer, BooleanAnswer, ScoreAnswer
from facetline.facets.questions import Boolean, Question, Score

MODULE = '''
"""The collection of the user stories."""

from pathlib import Path

from support_evaluator import SupportEvaluator

from facetline.facets.collections import define_collection
from facetline.facets.questions import boolean, choice, score

topics = {"billing": "Money", "bug": "Broken", "feature": "Wished for", "praise": "Thanks", "other": "None of these"}
levels = ["cosmetic", "a nuisance", "annoying", "costs us money", "work is blocked"]
collections = [
    define_collection(
        name="support",
        pattern="support/*",
        evaluator=SupportEvaluator(Path(__file__).parent / "script"),
        llm_readable=True,
        state={"title": "string"},
        questions={
            "topic": choice(ask="What is this support ticket about?", options=topics),
            "urgent": boolean(ask="Does the customer need an answer today?"),
            "severity": score(ask="How bad is it for the customer?", levels=levels),
        },
    )
]
'''


class SupportEvaluator(FolderEvaluator):
    """Answers choice, boolean and score questions by a body's words."""

    limits = Limits(frozenset({"choice", "boolean", "score"}), 255, 10)

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Do as the body says."""
        made = await super().evaluate(body, questions, key=key, deadline_s=deadline_s)
        words = body.split()
        more: dict[str, Answer] = {}
        for name, question in questions.items():
            if isinstance(question, Boolean):
                more[name] = BooleanAnswer(probability=0.9 if "urgent" in words else 0.1)
            elif isinstance(question, Score):
                level = next((int(word[3:]) for word in words if word.startswith("sev")), 0)
                more[name] = ScoreAnswer(score=float(level), confidence=0.8)
        return replace(made, answers={**made.answers, **more})
