"""When a view that could not be built is tried again, and why it could not."""

from dataclasses import dataclass

from facetline.facets import errors

FIRST_S, MAX_S = 0.5, 60.0
"""Between two tries: doubled from one to the next."""
REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str
    pause_s: float
    due_s: float


class ViewRetries:
    """The collections whose views could not be built at their last try; moments are the caller's clock's seconds."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failed] = {}

    def failed(self, collection: str, error: Exception, now_s: float) -> float:
        """Note a failure; return the seconds until the next try."""
        before = self._failed.get(collection)
        pause_s = FIRST_S if before is None else min(before.pause_s * 2, MAX_S)
        self._failed[collection] = _Failed(reason_of(error), pause_s, now_s + pause_s)
        return pause_s

    def built(self, collection: str) -> None:
        """Forget a collection's failures."""
        self._failed.pop(collection, None)

    def keep_only(self, collections: set[str]) -> None:
        """Forget collections that are active no more."""
        self._failed = {name: each for name, each in self._failed.items() if name in collections}

    def is_due(self, collection: str, now_s: float) -> bool:
        """Say whether a collection may be tried now."""
        found = self._failed.get(collection)
        return found is None or now_s >= found.due_s

    def reason(self, collection: str) -> str | None:
        """Return why a collection's view could not be built the last time; None when it did not fail."""
        found = self._failed.get(collection)
        return None if found is None else found.reason


def reason_of(error: Exception) -> str:
    """Return an error for a health page: ours in words; another's by its kind, for its words may quote a document."""
    if isinstance(error, errors.PipelineError):
        return error.message[:REASON_CHARS_MAX]
    if isinstance(error, ImportError) and error.name:
        return f"{error.name} cannot be imported"
    return type(error).__name__
