"""The public Python API of Facetline; everything else below this package may change between versions.

Each name is loaded when it is first used, so that `import facetline` costs nothing: neither a model library nor a
database is imported for a program that only defines a collection.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from facetline.evaluators.contract import Evaluated, Evaluator, Identity, Limits
    from facetline.facets import errors
    from facetline.facets.agents.sdk import AsyncTools, Tools
    from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
    from facetline.facets.client.async_client import AsyncClient
    from facetline.facets.client.client import Client
    from facetline.facets.collections import Collection, define_collection
    from facetline.facets.questions import Boolean, Choice, Question, Score, boolean, choice, score
    from facetline.streams.local import open_local
    from facetline.streams.pipeline import Pipeline

__all__ = [
    "AsyncClient",
    "AsyncTools",
    "Boolean",
    "BooleanAnswer",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "Collection",
    "Evaluated",
    "Evaluator",
    "Identity",
    "Limits",
    "Pipeline",
    "Question",
    "Score",
    "ScoreAnswer",
    "Tools",
    "boolean",
    "choice",
    "define_collection",
    "errors",
    "open_local",
    "score",
]

_HOMES = {
    "evaluators.contract": ("Evaluated", "Evaluator", "Identity", "Limits"),
    "facets.agents.sdk": ("AsyncTools", "Tools"),
    "facets.answers": ("BooleanAnswer", "ChoiceAnswer", "ScoreAnswer"),
    "facets.client.async_client": ("AsyncClient",),
    "facets.client.client": ("Client",),
    "facets.collections": ("Collection", "define_collection"),
    "facets.questions": ("Boolean", "Choice", "Question", "Score", "boolean", "choice", "score"),
    "streams.local": ("open_local",),
    "streams.pipeline": ("Pipeline",),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use.

    Raises:
        AttributeError: it is not public.
    """
    if name == "errors":
        return importlib.import_module(f"{__name__}.facets.errors")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
